#include "client/pieces.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace sluice::client {
namespace {

constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

TEST(PlanBatches, neighbours_are_joined_on_both_sides) {
  std::vector<std::byte> memory(30);
  const std::vector<Extent> extents = {ext(0, 10), ext(10, 20), ext(40, 50)};
  const std::vector<Piece> pieces = {{memory.data(), 10}, {memory.data() + 10, 20}};
  const auto plan = plan_batches(extents, pieces, {});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->size(), 1u);
  EXPECT_EQ(plan->front().extents, (std::vector<Extent>{ext(0, 20), ext(40, 50)}));
  EXPECT_TRUE(plan->front().contiguous());
}

TEST(PlanBatches, sides_that_do_not_add_up_are_refused) {
  std::vector<std::byte> memory(9);
  const std::vector<Extent> extents = {ext(0, 10)};
  const std::vector<Piece> pieces = {{memory.data(), 9}};
  const auto plan = plan_batches(extents, pieces, {});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
}

TEST(Extents, the_place_of_a_byte_is_counted_in_the_order_of_the_extents) {
  const std::vector<Extent> extents = {ext(100, 110), ext(7, 7), ext(20, 25)};
  EXPECT_EQ(bounds(extents), ext(7, 110));
  EXPECT_EQ(total_bytes(extents), 15u);
  EXPECT_EQ(place_of(extents, 0), 100u);
  EXPECT_EQ(place_of(extents, 9), 109u);
  EXPECT_EQ(place_of(extents, 10), 20u);
  EXPECT_EQ(place_of(extents, 15), kMaxFileBytes);
}

TEST(PlanBatches, nothing_to_move_is_no_batch) {
  const std::vector<Extent> extents = {ext(5, 5)};
  const std::vector<Piece> pieces = {{nullptr, 0}};
  EXPECT_TRUE(plan_batches(extents, pieces, {})->empty());
}

// Every byte of the file side meets the byte of memory that it met before the cutting, in the same order.
RC_GTEST_PROP(PlanBatchesProperty, keeps_the_pairing_and_the_limits, ()) {
  std::vector<std::byte> memory(4096);
  std::vector<Extent> extents;
  std::vector<Piece> pieces;
  std::vector<std::pair<uint64_t, std::byte*>> expected;
  uint64_t total = 0;
  const auto count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; ++i) {
    const auto begin = *rc::gen::inRange<uint64_t>(0, 300);
    const auto length = *rc::gen::inRange<uint64_t>(0, 60);
    extents.push_back(ext(begin, begin + length));
    total += length;
  }
  std::vector<std::byte*> bytes;
  for (uint64_t left = total; left > 0;) {
    const auto size = *rc::gen::inRange<uint64_t>(1, left + 1);
    auto* at = memory.data() + *rc::gen::inRange<size_t>(0, 2000);
    pieces.push_back({at, size});
    for (uint64_t i = 0; i < size; ++i) bytes.push_back(at + i);
    left -= size;
  }
  size_t index = 0;
  for (const Extent& extent : extents) {
    for (uint64_t at = extent.begin.value; at < extent.end.value; ++at)
      expected.emplace_back(at, bytes[index++]);
  }
  const BatchLimits limits{*rc::gen::inRange<uint64_t>(1, 100), *rc::gen::inRange<size_t>(1, 5)};
  const auto plan = plan_batches(extents, pieces, limits);
  RC_ASSERT(plan.has_value());
  std::vector<std::pair<uint64_t, std::byte*>> seen;
  for (const Batch& batch : *plan) {
    RC_ASSERT(batch.bytes > 0 && batch.bytes <= limits.bytes);
    RC_ASSERT(batch.extents.size() <= limits.extents);
    std::vector<std::byte*> batch_bytes;
    for (const Piece& piece : batch.memory) {
      for (size_t i = 0; i < piece.bytes; ++i) batch_bytes.push_back(static_cast<std::byte*>(piece.data) + i);
    }
    size_t at_byte = 0;
    for (const Extent& extent : batch.extents) {
      for (uint64_t at = extent.begin.value; at < extent.end.value; ++at)
        seen.emplace_back(at, batch_bytes[at_byte++]);
    }
    RC_ASSERT(at_byte == batch.bytes);
    RC_ASSERT(batch_bytes.size() == batch.bytes);
  }
  RC_ASSERT(seen == expected);
}

}  // namespace
}  // namespace sluice::client
