#include "base/extent.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

TEST(Extent, neighbours_do_not_overlap) {
  EXPECT_FALSE(ext(0, 10).overlaps(ext(10, 20)));
  EXPECT_TRUE(ext(0, 11).overlaps(ext(10, 20)));
  EXPECT_EQ(ext(0, 10).intersect(ext(10, 20)), std::nullopt);
  EXPECT_EQ(ext(0, 15).intersect(ext(10, 20)), ext(10, 15));
}

TEST(Extent, what_a_message_may_not_contain_is_invalid) {
  EXPECT_TRUE(ext(5, 5).valid());
  EXPECT_FALSE(ext(6, 5).valid());
  EXPECT_FALSE(ext(0, kMaxFileBytes + 1).valid());
}

TEST(Extent, contains_its_begin_and_not_its_end) {
  EXPECT_TRUE(ext(3, 5).contains(Offset(3)));
  EXPECT_FALSE(ext(3, 5).contains(Offset(5)));
  EXPECT_TRUE(ext(3, 5).contains(ext(4, 5)));
  EXPECT_FALSE(ext(3, 5).contains(ext(4, 6)));
}

}  // namespace
}  // namespace sluice
