#include "burst_buffer/slab_allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace sluice::burst_buffer {
namespace {

constexpr uint64_t kGranules = 64;

TEST(SlabAllocator, a_small_slab_costs_one_granule) {
  SlabAllocator slabs(8 * kGranuleBytes);
  const auto slab = slabs.allocate(Length(1));
  ASSERT_TRUE(slab);
  EXPECT_EQ(slab->length, Length(1));
  EXPECT_EQ(slabs.used_bytes(), kGranuleBytes);
}

TEST(SlabAllocator, takes_the_range_that_fits_best) {
  SlabAllocator slabs(10 * kGranuleBytes);
  std::vector<Slab> taken;
  for (const uint64_t granules : {4, 1, 2, 1})
    taken.push_back(*slabs.allocate(Length(granules * kGranuleBytes)));
  slabs.free(taken[0]);
  slabs.free(taken[2]);
  EXPECT_EQ(slabs.allocate(Length(2 * kGranuleBytes))->offset, taken[2].offset);
}

TEST(SlabAllocator, neighbours_that_are_free_become_one_range) {
  SlabAllocator slabs(3 * kGranuleBytes);
  std::vector<Slab> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(*slabs.allocate(Length(kGranuleBytes)));
  EXPECT_FALSE(slabs.allocate(Length(1)));
  slabs.free(taken[0]);
  slabs.free(taken[2]);
  EXPECT_FALSE(slabs.allocate(Length(2 * kGranuleBytes)));
  slabs.free(taken[1]);
  EXPECT_EQ(slabs.largest_free_bytes(), 3 * kGranuleBytes);
}

TEST(SlabAllocator, take_refuses_what_no_log_may_say) {
  SlabAllocator slabs(8 * kGranuleBytes);
  EXPECT_TRUE(slabs.take({2 * kGranuleBytes, Length(kGranuleBytes + 1)}));
  EXPECT_FALSE(slabs.take({3 * kGranuleBytes, Length(1)}));                // overlaps
  EXPECT_FALSE(slabs.take({1, Length(1)}));                                // misaligned
  EXPECT_FALSE(slabs.take({0, Length(0)}));                                // empty
  EXPECT_FALSE(slabs.take({8 * kGranuleBytes, Length(1)}));                // out of range
  EXPECT_FALSE(slabs.take({7 * kGranuleBytes, Length(UINT64_MAX - 10)}));  // wraps
  EXPECT_EQ(slabs.used_bytes(), 2 * kGranuleBytes);
}

// The naive model: one flag per granule.
struct Model {
  std::vector<bool> used = std::vector<bool>(kGranules, false);

  uint64_t longest_free_run() const {
    uint64_t longest = 0;
    uint64_t run = 0;
    for (const bool u : used) {
      run = u ? 0 : run + 1;
      longest = std::max(longest, run);
    }
    return longest;
  }
  void set(const Slab& slab, bool to) {
    const uint64_t first = slab.offset / kGranuleBytes;
    for (uint64_t g = first; g < first + SlabAllocator::footprint(slab.length) / kGranuleBytes; ++g) {
      RC_ASSERT(used[g] != to);
      used[g] = to;
    }
  }
};

RC_GTEST_PROP(SlabAllocatorProperty, equals_a_flag_per_granule, ()) {
  SlabAllocator slabs(kGranules * kGranuleBytes + 100);
  Model model;
  std::vector<Slab> live;
  const auto steps = *rc::gen::inRange(0, 80);
  for (int step = 0; step < steps; ++step) {
    if (live.empty() || *rc::gen::inRange(0, 3) > 0) {
      const Length length(*rc::gen::inRange<uint64_t>(1, 20 * kGranuleBytes));
      const auto slab = slabs.allocate(length);
      const uint64_t granules = SlabAllocator::footprint(length) / kGranuleBytes;
      RC_ASSERT(slab.has_value() == (granules <= model.longest_free_run()));
      if (slab) {
        RC_ASSERT(slab->length == length);
        model.set(*slab, true);
        live.push_back(*slab);
      }
    } else {
      const auto victim = *rc::gen::inRange<size_t>(0, live.size());
      slabs.free(live[victim]);
      model.set(live[victim], false);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    RC_ASSERT(slabs.largest_free_bytes() == model.longest_free_run() * kGranuleBytes);
  }
  SlabAllocator rebuilt(kGranules * kGranuleBytes);
  for (const Slab& slab : live) RC_ASSERT(rebuilt.take(slab));
  RC_ASSERT(rebuilt.used_bytes() == slabs.used_bytes());
  RC_ASSERT(rebuilt.largest_free_bytes() == slabs.largest_free_bytes());
}

TEST(SlabAllocator, what_is_free_of_a_range_is_taken_and_nothing_else) {
  SlabAllocator slabs(16 * kGranuleBytes);
  ASSERT_TRUE(slabs.take({4 * kGranuleBytes, Length(kGranuleBytes)}));
  ASSERT_TRUE(slabs.take({9 * kGranuleBytes, Length(5 * kGranuleBytes)}));
  const auto pieces = slabs.take_free(2 * kGranuleBytes, 12 * kGranuleBytes);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].offset, 2 * kGranuleBytes);
  EXPECT_EQ(pieces[0].length, Length(2 * kGranuleBytes));
  EXPECT_EQ(pieces[1].offset, 5 * kGranuleBytes);
  EXPECT_EQ(pieces[1].length, Length(4 * kGranuleBytes));
  EXPECT_EQ(slabs.used_bytes(), 12 * kGranuleBytes);
  EXPECT_TRUE(slabs.take_free(2 * kGranuleBytes, 12 * kGranuleBytes).empty());
  EXPECT_TRUE(slabs.take_free(1, 12 * kGranuleBytes).empty()) << "off a granule";
  slabs.free({5 * kGranuleBytes, Length(kGranuleBytes)});  // piece by piece
  EXPECT_EQ(slabs.used_bytes(), 11 * kGranuleBytes);
}

}  // namespace
}  // namespace sluice::burst_buffer
