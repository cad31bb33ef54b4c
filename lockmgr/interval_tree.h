#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/extent.h"

namespace sluice::lockmgr {

// A set of extents, which may overlap and repeat, each with an id and a party. Pure; not thread-safe.
//
// A B+-tree ordered by (begin, id). Every inner node knows of each child the largest end, whose party that
// is, and the largest end of all other parties. That answers "does anything not of party P overlap this?" on
// one path from the root, however many extents of P lie in the way.
//
// insert, erase, overlaps, end_below, begin_from: O(log n). visit_*: O(log n + visited). A party is never
// 0; as `except`, kNobody means that all parties count. No two have the same begin and id.
//
// Entries within a leaf are in no order: scanning one costs less than keeping it sorted.
class IntervalTree {
 public:
  using Party = uint64_t;
  static constexpr Party kNobody = 0;

  IntervalTree() = default;
  ~IntervalTree();
  IntervalTree(const IntervalTree&) = delete;
  IntervalTree& operator=(const IntervalTree&) = delete;

  void insert(const Extent& extent, Party party, uint32_t id);
  // The extent must be there, with that id.
  void erase(const Extent& extent, uint32_t id);

  bool overlaps(const Extent& extent, Party except) const;
  // The largest end among those that begin below `at`; 0 when there is none.
  Offset end_below(Offset at, Party except) const;
  // The smallest begin at or above `at`; kMaxFileBytes when there is none.
  Offset begin_from(Offset at, Party except) const;

  // Calls visit(id, party) for each that overlaps `extent`, until it answers false.
  // The tree must not change meanwhile.
  template <class Visit>
  void visit_overlapping(const Extent& extent, Party except, Visit&& visit) const {
    if (root_ != nullptr) visit_node(root_, height_, extent.end, extent.begin.value + 1, except, visit);
  }
  // The same for each that contains `extent` wholly.
  template <class Visit>
  void visit_containing(const Extent& extent, Visit&& visit) const {
    if (root_ != nullptr) {
      visit_node(root_, height_, extent.begin + Length(1), extent.end.value, kNobody, visit);
    }
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t memory_bytes() const { return leaves_ * sizeof(Leaf) + inners_ * sizeof(Inner); }
  // For tests: aborts when order, fill or a summary is wrong.
  void check() const;

 private:
  static constexpr uint32_t kLeafCapacity = 32;
  static constexpr uint32_t kInnerCapacity = 32;
  static constexpr int kMaxHeight = 16;

  struct Summary {
    uint64_t top_end = 0;
    Party top_party = kNobody;
    uint64_t other_end = 0;  // the largest end of a party other than top_party; 0 when there is none

    void add(uint64_t end, Party party);
    void add(const Summary& other);
    bool operator==(const Summary&) const = default;
  };
  struct Key {
    uint64_t begin;
    uint32_t id;
    constexpr auto operator<=>(const Key&) const = default;
  };
  struct Leaf {
    uint32_t count = 0;
    std::array<uint32_t, kLeafCapacity> id;
    std::array<uint64_t, kLeafCapacity> begin;
    std::array<uint64_t, kLeafCapacity> end;
    std::array<Party, kLeafCapacity> party;
  };
  // separator[i] <= every key in child i, and > every key in child i - 1. separator[0] is not looked at.
  // A Summary of each child, column by column: most questions are settled by top_end alone.
  struct Inner {
    uint32_t count = 0;
    std::array<uint32_t, kInnerCapacity> separator_id;
    std::array<uint64_t, kInnerCapacity> separator;
    std::array<uint64_t, kInnerCapacity> top_end;
    std::array<Party, kInnerCapacity> top_party;
    std::array<uint64_t, kInnerCapacity> other_end;
    std::array<void*, kInnerCapacity> child;

    Summary summary(uint32_t i) const { return {top_end[i], top_party[i], other_end[i]}; }
    void set_summary(uint32_t i, const Summary& s) {
      top_end[i] = s.top_end;
      top_party[i] = s.top_party;
      other_end[i] = s.other_end;
    }
    // Among child `i`, the largest end that is not of `except`.
    uint64_t end_of_others(uint32_t i, Party except) const {
      return top_party[i] != except ? top_end[i] : other_end[i];
    }
    // The largest end_of_others among the first `n` children, if above `least`; else `least`.
    uint64_t end_of_others_before(uint32_t n, Party except, uint64_t least) const;
    // How many children can hold a begin below `at`: all before the last of them hold nothing else.
    uint32_t children_below(uint64_t at) const;
    uint32_t child_for(Key key) const;
  };
  struct Step {
    Inner* node;
    uint32_t index;
  };
  struct Path {
    std::array<Step, kMaxHeight> steps;
    Leaf* leaf = nullptr;
  };

  // Visits those with begin < `below` and end >= `least_end`.
  template <class Visit>
  static bool visit_node(const void* node, int level, Offset below, uint64_t least_end, Party except,
                         Visit& visit) {
    if (level == 0) {
      const Leaf& leaf = *static_cast<const Leaf*>(node);
      for (uint32_t i = 0; i < leaf.count; ++i) {
        if (leaf.begin[i] >= below.value || leaf.end[i] < least_end || leaf.party[i] == except) continue;
        if (!visit(leaf.id[i], leaf.party[i])) return false;
      }
      return true;
    }
    const Inner& inner = *static_cast<const Inner*>(node);
    const uint32_t n = inner.children_below(below.value);
    for (uint32_t i = 0; i < n; ++i) {
      if (inner.end_of_others(i, except) < least_end) continue;
      if (!visit_node(inner.child[i], level - 1, below, least_end, except, visit)) return false;
    }
    return true;
  }

  Leaf* new_leaf();
  Inner* new_inner();
  void free_node(void* node, int level);
  void free_subtree(void* node, int level);
  static uint32_t count_of(const void* node, int level);
  static Summary summarize(const void* node, int level);

  void split_upwards(Path& path, Key key, uint64_t end, Party party);
  static void leaf_append(Leaf& leaf, Key key, uint64_t end, Party party);
  static Key split_leaf(Leaf& left, Leaf& right, uint32_t keep);
  static void inner_insert(Inner& inner, uint32_t at, Key separator, void* child, const Summary& summary);
  static void inner_erase(Inner& inner, uint32_t at);
  bool fix_child(Inner& parent, uint32_t& index, int child_level);
  void merge_children(Inner& parent, uint32_t left, int child_level);
  void shrink_root();
  static std::optional<uint64_t> first_begin(const void* node, int level, uint64_t at, Party except);
  Summary check_node(const void* node, int level, std::optional<Key> low, std::optional<Key> high,
                     size_t& seen) const;

  void* root_ = nullptr;  // a Leaf at height 0, else an Inner; null when empty from the start
  int height_ = 0;
  size_t size_ = 0;
  size_t leaves_ = 0;
  size_t inners_ = 0;
};

}  // namespace sluice::lockmgr
