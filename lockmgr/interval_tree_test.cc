#include "lockmgr/interval_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/rng.h"

namespace sluice::lockmgr {
namespace {

struct Entry {
  Extent extent;
  IntervalTree::Party party;
  uint32_t id;
};

constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

// A tree and the list of what should be in it.
class Checked {
 public:
  void insert(Extent extent, IntervalTree::Party party) {
    tree_.insert(extent, party, next_id_);
    entries_.push_back({extent, party, next_id_++});
  }
  void erase(size_t at) {
    tree_.erase(entries_[at].extent, entries_[at].id);
    entries_[at] = entries_.back();
    entries_.pop_back();
  }

  void compare(Extent e, IntervalTree::Party except) const {
    std::vector<uint32_t> overlapping;
    std::vector<uint32_t> containing;
    uint64_t below = 0;
    uint64_t from = kMaxFileBytes;
    for (const Entry& entry : entries_) {
      if (entry.extent.contains(e)) containing.push_back(entry.id);
      if (entry.party == except) continue;
      if (entry.extent.overlaps(e)) overlapping.push_back(entry.id);
      if (entry.extent.begin < e.begin) below = std::max(below, entry.extent.end.value);
      if (entry.extent.begin >= e.begin) from = std::min(from, entry.extent.begin.value);
    }
    ASSERT_EQ(tree_.overlaps(e, except), !overlapping.empty());
    ASSERT_EQ(tree_.end_below(e.begin, except).value, below);
    ASSERT_EQ(tree_.begin_from(e.begin, except).value, from);
    std::vector<uint32_t> visited;
    const auto collect = [&](uint32_t id, IntervalTree::Party) {
      visited.push_back(id);
      return true;
    };
    tree_.visit_overlapping(e, except, collect);
    ASSERT_EQ(sorted(visited), sorted(overlapping));
    visited.clear();
    tree_.visit_containing(e, collect);
    ASSERT_EQ(sorted(visited), sorted(containing));
  }

  void check() const {
    tree_.check();
    ASSERT_EQ(tree_.size(), entries_.size());
  }

  size_t size() const { return entries_.size(); }
  const IntervalTree& tree() const { return tree_; }

 private:
  static std::vector<uint32_t> sorted(std::vector<uint32_t> ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  IntervalTree tree_;
  std::vector<Entry> entries_;
  uint32_t next_id_ = 7;
};

// What the extents look like decides how the tree splits and merges.
enum class Shape { kScattered, kForward, kBackward, kOnePlace, kNested };

Extent next_extent(Shape shape, uint64_t step, Rng& rng) {
  switch (shape) {
    case Shape::kScattered: {
      const uint64_t begin = rng.below(100'000);
      return ext(begin, begin + 1 + rng.below(rng.below(10) == 0 ? 5'000 : 50));
    }
    case Shape::kForward:
      return ext(step * 10, step * 10 + 10);
    case Shape::kBackward:
      return ext(1'000'000 - step * 10, 1'000'010 - step * 10);
    case Shape::kOnePlace:
      return ext(500, 501 + rng.below(100));
    case Shape::kNested:
      return ext(50'000 - step % 40'000, 50'001 + step);
  }
  return ext(0, 1);
}

class IntervalTreeShapes : public testing::TestWithParam<Shape> {};

TEST_P(IntervalTreeShapes, answers_as_a_list_does_while_it_grows_and_shrinks) {
  SeededRng rng(11 + static_cast<uint64_t>(GetParam()));
  Checked checked;
  const auto probe = [&] {
    const uint64_t begin = rng.below(110'000);
    checked.compare(ext(begin, begin + 1 + rng.below(2'000)), rng.below(5));
  };
  uint64_t step = 0;
  for (int round = 0; round < 3; ++round) {
    while (checked.size() < 3'000) {
      checked.insert(next_extent(GetParam(), step++, rng), 1 + rng.below(4));
      if (rng.below(3) == 0) checked.erase(rng.below(checked.size()));
      if (step % 64 == 0) {
        ASSERT_NO_FATAL_FAILURE(probe());
      }
      if (step % 500 == 0) {
        ASSERT_NO_FATAL_FAILURE(checked.check());
      }
    }
    const size_t left = round == 2 ? 0 : 100;
    while (checked.size() > left) {
      checked.erase(rng.below(checked.size()));
      if (checked.size() % 64 == 0) {
        ASSERT_NO_FATAL_FAILURE(probe());
      }
      if (checked.size() % 250 == 0) {
        ASSERT_NO_FATAL_FAILURE(checked.check());
      }
    }
  }
  EXPECT_TRUE(checked.tree().empty());
  EXPECT_EQ(checked.tree().memory_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, IntervalTreeShapes,
                         testing::Values(Shape::kScattered, Shape::kForward, Shape::kBackward,
                                         Shape::kOnePlace, Shape::kNested));

// Whole leaves go empty and vanish, new extents come into their place, and then nodes merge around them.
TEST(IntervalTree, gaps_that_are_filled_again_keep_the_order) {
  IntervalTree tree;
  std::map<uint64_t, uint32_t> ids;
  uint32_t next_id = 1;
  const auto insert = [&](uint64_t at) {
    tree.insert(ext(at * 10, at * 10 + 5), 1, next_id);
    ids[at] = next_id++;
  };
  const auto erase = [&](uint64_t at) {
    const auto found = ids.find(at);
    if (found == ids.end()) return;
    tree.erase(ext(at * 10, at * 10 + 5), found->second);
    ids.erase(found);
  };
  for (uint64_t at = 0; at < 8'000; ++at) insert(at);
  for (uint64_t at = 0; at < 8'000; ++at) {
    if (at % 200 < 120) erase(at);
  }
  tree.check();
  for (uint64_t at = 0; at < 8'000; at += 3) {
    if (at % 200 < 120) insert(at);
  }
  tree.check();
  SeededRng rng(5);
  for (int i = 0; i < 20'000; ++i) {
    erase(rng.below(8'000));
    if (i % 250 == 0) tree.check();
  }
  EXPECT_EQ(tree.size(), ids.size());
}

TEST(IntervalTree, an_empty_tree_meets_nothing) {
  const IntervalTree tree;
  EXPECT_FALSE(tree.overlaps(ext(0, kMaxFileBytes), IntervalTree::kNobody));
  EXPECT_EQ(tree.end_below(Offset(5), IntervalTree::kNobody), Offset(0));
  EXPECT_EQ(tree.begin_from(Offset(5), IntervalTree::kNobody), Offset(kMaxFileBytes));
}

TEST(IntervalTree, one_foreign_extent_is_found_among_thousands_of_own) {
  IntervalTree tree;
  for (uint32_t i = 0; i < 10'000; ++i) tree.insert(ext(i, 20'000), 1, i);
  EXPECT_FALSE(tree.overlaps(ext(0, 20'000), 1));
  tree.insert(ext(7'000, 7'001), 2, 10'000);
  EXPECT_TRUE(tree.overlaps(ext(0, 20'000), 1));
  EXPECT_FALSE(tree.overlaps(ext(7'001, 20'000), 1));
  EXPECT_EQ(tree.end_below(Offset(20'000), 1), Offset(7'001));
  EXPECT_EQ(tree.begin_from(Offset(0), 1), Offset(7'000));
}

TEST(IntervalTree, a_visit_stops_when_told_to) {
  IntervalTree tree;
  for (uint32_t i = 0; i < 500; ++i) tree.insert(ext(i, i + 10), 1, i);
  int visits = 0;
  tree.visit_overlapping(ext(0, 600), IntervalTree::kNobody,
                         [&](uint32_t, IntervalTree::Party) { return ++visits < 3; });
  EXPECT_EQ(visits, 3);
}

}  // namespace
}  // namespace sluice::lockmgr
