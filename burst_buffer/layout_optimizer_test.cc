#include "burst_buffer/layout_optimizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace sluice::burst_buffer {
namespace {

constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

TEST(LayoutOptimizer, small_extents_share_a_stripe_in_the_order_of_the_file) {
  const std::vector<Extent> extents{ext(50, 53), ext(10, 12), ext(30, 31)};
  const auto stripes = plan_stripes(extents, Length(100));
  ASSERT_EQ(stripes.size(), 1u);
  ASSERT_EQ(stripes[0].parts.size(), 3u);
  EXPECT_EQ(stripes[0].parts[0].source, 1u);
  EXPECT_EQ(stripes[0].parts[1].extent, ext(30, 31));
  EXPECT_EQ(stripes[0].parts[2].stripe_offset, 3u);
  EXPECT_EQ(stripes[0].length, Length(6));
}

TEST(LayoutOptimizer, a_large_extent_is_split_where_a_stripe_is_full) {
  const std::vector<Extent> extents{ext(5, 30)};
  const auto stripes = plan_stripes(extents, Length(10));
  ASSERT_EQ(stripes.size(), 3u);
  EXPECT_EQ(stripes[1].parts[0].extent, ext(15, 25));
  EXPECT_EQ(stripes[2].length, Length(5));
}

TEST(LayoutOptimizer, nothing_needs_no_stripe) {
  EXPECT_TRUE(plan_stripes({}, Length(10)).empty());
}

RC_GTEST_PROP(LayoutOptimizerProperty, every_byte_is_placed_once_and_only_the_last_stripe_is_not_full, ()) {
  std::vector<Extent> extents;
  uint64_t at = 0;
  uint64_t total = 0;
  const auto count = *rc::gen::inRange(0, 20);
  for (int i = 0; i < count; ++i) {
    at += *rc::gen::inRange<uint64_t>(0, 5);
    const auto length = *rc::gen::inRange<uint64_t>(1, 30);
    extents.push_back(ext(at, at + length));
    at += length;
    total += length;
  }
  std::shuffle(extents.begin(), extents.end(), std::mt19937(*rc::gen::arbitrary<uint32_t>()));
  const Length stripe_bytes(*rc::gen::inRange<uint64_t>(1, 40));
  const auto stripes = plan_stripes(extents, stripe_bytes);

  std::map<uint64_t, size_t> source_of;
  uint64_t last = 0;
  for (size_t s = 0; s < stripes.size(); ++s) {
    RC_ASSERT(stripes[s].length.value > 0u);
    const bool last_one = s + 1 == stripes.size();
    RC_ASSERT(stripes[s].length == stripe_bytes || (last_one && stripes[s].length < stripe_bytes));
    uint64_t filled = 0;
    for (const auto& part : stripes[s].parts) {
      RC_ASSERT(part.stripe_offset == filled);
      RC_ASSERT(extents[part.source].contains(part.extent));
      RC_ASSERT(last <= part.extent.begin.value);
      last = part.extent.end.value;
      for (uint64_t b = part.extent.begin.value; b < part.extent.end.value; ++b) {
        RC_ASSERT(source_of.emplace(b, part.source).second);
      }
      filled += part.extent.length().value;
    }
    RC_ASSERT(filled == stripes[s].length.value);
  }
  RC_ASSERT(source_of.size() == total);
}

}  // namespace
}  // namespace sluice::burst_buffer
