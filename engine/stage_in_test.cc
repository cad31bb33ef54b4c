#include "engine/stage_in.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/checksum.h"

namespace sluice::engine {
namespace {

constexpr uint64_t kBlock = kChecksumBlockBytes;

Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

TEST(StageInBlocks, small_pieces_of_one_block_are_that_block_and_neighbours_are_one) {
  EXPECT_EQ(blocks_around({ext(10, 20), ext(kBlock - 1, kBlock), ext(30, 30)}),
            (std::vector{ext(0, kBlock)}));
  EXPECT_EQ(blocks_around({ext(5 * kBlock, 5 * kBlock + 1), ext(kBlock - 1, kBlock + 1)}),
            (std::vector{ext(0, 2 * kBlock), ext(5 * kBlock, 6 * kBlock)}));
  EXPECT_EQ(blocks_around({ext(kMaxFileBytes - 1, kMaxFileBytes)}).back().end.value, kMaxFileBytes);
}

RC_GTEST_PROP(StageInProperty, blocks_hold_the_extents_in_order_and_touch_what_a_flag_per_block_says, ()) {
  constexpr uint64_t kBlocks = 40;
  const auto draw = [] {
    std::vector<Extent> extents;
    const auto count = *rc::gen::inRange(0, 6);
    for (int i = 0; i < count; ++i) {
      const auto begin = *rc::gen::inRange<uint64_t>(0, kBlocks * kBlock);
      extents.push_back(ext(begin, begin + *rc::gen::inRange<uint64_t>(0, 3 * kBlock)));
    }
    return extents;
  };
  const auto flags_of = [](const std::vector<Extent>& extents) {
    std::vector<bool> flags(kBlocks + 4);
    for (const Extent& extent : extents) {
      for (uint64_t at = extent.begin.value; at < extent.end.value; ++at) {
        flags[at / kBlock] = true;
        at = at / kBlock * kBlock + kBlock - 1;
      }
    }
    return flags;
  };
  const auto one = draw();
  const auto other = draw();
  const auto blocks = blocks_around(one);
  RC_ASSERT(flags_of(blocks) == flags_of(one));
  for (size_t i = 0; i < blocks.size(); ++i) {
    RC_ASSERT(blocks[i].begin.value % kBlock == 0u);
    if (i > 0) RC_ASSERT(blocks[i - 1].end < blocks[i].begin);
  }
  const auto a = flags_of(one);
  const auto b = flags_of(other);
  bool common = false;
  for (size_t i = 0; i < a.size(); ++i) common = common || (a[i] && b[i]);
  RC_ASSERT(have_common(blocks, blocks_around(other)) == common);
}

}  // namespace
}  // namespace sluice::engine
