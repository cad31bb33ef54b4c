#include "base/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

TEST(StreamCopy, copies_exactly_the_bytes_it_was_told_to_at_any_boundary_and_length) {
  std::vector<std::byte> from(70'000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 256);
  for (const size_t bytes : {0UL, 1UL, 63UL, 4095UL, 4096UL, 4097UL, 65'536UL, 65'537UL}) {
    for (const size_t shift : {0UL, 1UL, 16UL, 61UL}) {
      std::vector<std::byte> to(from.size() + 256, std::byte{0xEE});
      stream_copy(to.data() + 64 + shift, from.data() + shift, bytes);
      EXPECT_TRUE(std::equal(from.begin() + static_cast<long>(shift),
                             from.begin() + static_cast<long>(shift + bytes),
                             to.begin() + static_cast<long>(64 + shift)));
      EXPECT_EQ(to[63 + shift], std::byte{0xEE});
      EXPECT_EQ(to[64 + shift + bytes], std::byte{0xEE});
    }
  }
}

}  // namespace
}  // namespace sluice
