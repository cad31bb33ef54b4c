#include "base/checksum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

namespace sluice {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Checksum, matches_the_published_check_value) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
}

TEST(Checksum, matches_rfc3720_vectors) {
  std::vector<std::byte> block(32, std::byte{0});
  EXPECT_EQ(crc32c(block), 0x8A9136AAu);
  std::fill(block.begin(), block.end(), std::byte{0xff});
  EXPECT_EQ(crc32c(block), 0x62A8AB43u);
}

TEST(Checksum, continues_over_split_input) {
  EXPECT_EQ(crc32c(bytes_of("6789"), crc32c(bytes_of("12345"))), crc32c(bytes_of("123456789")));
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Checksum, one_flipped_bit_in_any_block_is_seen) {
  std::vector<std::byte> data(3 * kChecksumBlockBytes + 17, std::byte{7});
  const auto sums = block_checksums(data);
  ASSERT_EQ(sums.size(), 4u);
  EXPECT_TRUE(checksums_match(data, sums));
  for (const size_t at : {size_t{0}, kChecksumBlockBytes, data.size() - 1}) {
    data[at] ^= std::byte{1};
    EXPECT_FALSE(checksums_match(data, sums)) << at;
    data[at] ^= std::byte{1};
  }
  EXPECT_FALSE(checksums_match(data, std::span(sums).first(3)));
}

}  // namespace
}  // namespace sluice
