#include "storage/erasure/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/checksum.h"

namespace sluice::storage {
namespace {

TEST(StripeShape, shards_are_even_and_aligned) {
  EXPECT_EQ(shape_of(4, 2, Length(4 << 20)).shard, Length(1 << 20));
  EXPECT_EQ(shape_of(4, 2, Length(1)).shard, Length(64));
  EXPECT_EQ(shape_of(1, 1, Length(65)).shard, Length(128));
  EXPECT_EQ(shape_of(8, 2, Length(8 * 64 + 1)).shard, Length(128));
}

TEST(StripeShape, unsound_shapes_are_told) {
  const StripeShape good = shape_of(4, 2, Length(1000));
  EXPECT_TRUE(is_sound(good));
  StripeShape bad = good;
  bad.shard = Length(good.shard.value + 64);
  EXPECT_FALSE(is_sound(bad));
  bad = good;
  bad.k = 0;
  EXPECT_FALSE(is_sound(bad));
  bad = good;
  bad.m = 61;
  EXPECT_FALSE(is_sound(bad));
  bad = good;
  bad.m = UINT32_MAX;
  EXPECT_FALSE(is_sound(bad));
  bad = good;
  bad.data = Length(0);
  EXPECT_FALSE(is_sound(bad));
  bad = good;
  bad.data = Length(4 * kMaxShardBytes + 1);
  EXPECT_FALSE(is_sound(bad));
}

TEST(Blocks, count_and_bounds) {
  EXPECT_EQ(block_count(Length(64)), 1u);
  EXPECT_EQ(block_count(Length(kChecksumBlockBytes)), 1u);
  EXPECT_EQ(block_count(Length(kChecksumBlockBytes + 64)), 2u);
  EXPECT_EQ(blocks_of(0, 1), (BlockRange{0, 1}));
  EXPECT_EQ(blocks_of(kChecksumBlockBytes - 1, kChecksumBlockBytes + 1), (BlockRange{0, 2}));
  EXPECT_EQ(block_end(Length(kChecksumBlockBytes + 64), 1), kChecksumBlockBytes + 64);
}

TEST(Survivors, data_shards_come_first) {
  const StripeShape shape = shape_of(4, 2, Length(1000));
  EXPECT_EQ(choose_survivors(shape, 0b111111),
            (std::vector{ShardIndex(0), ShardIndex(1), ShardIndex(2), ShardIndex(3)}));
  EXPECT_EQ(choose_survivors(shape, 0b110101),
            (std::vector{ShardIndex(0), ShardIndex(2), ShardIndex(4), ShardIndex(5)}));
  EXPECT_EQ(choose_survivors(shape, 0b100101), std::nullopt);
  EXPECT_EQ(choose_survivors(shape, ~ShardSet{0} << 6), std::nullopt);
}

// Every byte of a range is found exactly once, in order, at b / shard and b % shard.
RC_GTEST_PROP(ShardRangesProperty, equal_the_naive_byte_walk, ()) {
  const auto k = *rc::gen::inRange<uint32_t>(1, 9);
  const auto data = *rc::gen::inRange<uint64_t>(1, 3000);
  const StripeShape shape = shape_of(k, 2, Length(data));
  RC_ASSERT(is_sound(shape));
  RC_ASSERT(shape.shard.value * k >= data);
  const auto offset = *rc::gen::inRange<uint64_t>(0, data);
  const auto length = *rc::gen::inRange<uint64_t>(0, data - offset + 1);
  uint64_t at = 0;
  for (const ShardRange& range : shard_ranges(shape, offset, Length(length))) {
    RC_ASSERT(range.begin < range.end);
    RC_ASSERT(range.end <= shape.shard.value);
    RC_ASSERT(range.out == at);
    for (uint64_t byte = range.begin; byte < range.end; ++byte, ++at) {
      RC_ASSERT(range.shard.value == (offset + at) / shape.shard.value);
      RC_ASSERT(byte == (offset + at) % shape.shard.value);
    }
  }
  RC_ASSERT(at == length);
}

}  // namespace
}  // namespace sluice::storage
