#include "lockmgr/interval_tree.h"

#include <algorithm>
#include <numeric>

#include "base/assert.h"

namespace sluice::lockmgr {

void IntervalTree::Summary::add(uint64_t end, Party party) {
  if (party == top_party) {
    top_end = std::max(top_end, end);
  } else if (end > top_end) {
    other_end = top_end;
    top_end = end;
    top_party = party;
  } else {
    other_end = std::max(other_end, end);
  }
}

void IntervalTree::Summary::add(const Summary& other) {
  if (other.top_end == 0) return;
  const Party party = other.top_party;
  add(other.top_end, party);
  // Whatever the best of the others is, it is not of other.top_party; it competes with whoever is not the top
  // now.
  if (other.other_end == 0) return;
  if (top_party == party) {
    other_end = std::max(other_end, other.other_end);
  } else {
    // other.top_party is itself not the top, and other.top_end >= other.other_end: it is already counted.
    SLUICE_ASSERT(other_end >= other.other_end);
  }
}

// The searches below choose by value instead of by branch: which way they go is not predictable.
uint32_t IntervalTree::Inner::children_below(uint64_t at) const {
  uint32_t last = 0;
  for (uint32_t left = count; left > 1;) {
    const uint32_t half = left / 2;
    last = separator[last + half] < at ? last + half : last;
    left -= half;
  }
  return last + 1;
}

uint32_t IntervalTree::Inner::child_for(Key key) const {
  uint32_t last = 0;
  for (uint32_t left = count; left > 1;) {
    const uint32_t half = left / 2;
    const uint64_t begin = separator[last + half];
    const bool right = (begin < key.begin) | ((begin == key.begin) & (separator_id[last + half] <= key.id));
    last = right ? last + half : last;
    left -= half;
  }
  return last;
}

uint64_t IntervalTree::Inner::end_of_others_before(uint32_t n, Party except, uint64_t least) const {
  uint64_t any = 0;
  for (uint32_t i = 0; i < n; ++i) any = std::max(any, top_end[i]);
  if (any <= least) return least;
  for (uint32_t i = 0; i < n; ++i) least = std::max(least, end_of_others(i, except));
  return least;
}

IntervalTree::~IntervalTree() {
  if (root_ != nullptr) free_subtree(root_, height_);
}

IntervalTree::Leaf* IntervalTree::new_leaf() {
  ++leaves_;
  return new Leaf;
}

IntervalTree::Inner* IntervalTree::new_inner() {
  ++inners_;
  return new Inner;
}

void IntervalTree::free_node(void* node, int level) {
  if (level == 0) {
    --leaves_;
    delete static_cast<Leaf*>(node);
  } else {
    --inners_;
    delete static_cast<Inner*>(node);
  }
}

void IntervalTree::free_subtree(void* node, int level) {
  if (level > 0) {
    const Inner& inner = *static_cast<Inner*>(node);
    for (uint32_t i = 0; i < inner.count; ++i) free_subtree(inner.child[i], level - 1);
  }
  free_node(node, level);
}

uint32_t IntervalTree::count_of(const void* node, int level) {
  return level == 0 ? static_cast<const Leaf*>(node)->count : static_cast<const Inner*>(node)->count;
}

IntervalTree::Summary IntervalTree::summarize(const void* node, int level) {
  Summary sum;
  if (level == 0) {
    const Leaf& leaf = *static_cast<const Leaf*>(node);
    for (uint32_t i = 0; i < leaf.count; ++i) sum.add(leaf.end[i], leaf.party[i]);
  } else {
    const Inner& inner = *static_cast<const Inner*>(node);
    for (uint32_t i = 0; i < inner.count; ++i) sum.add(inner.summary(i));
  }
  return sum;
}

void IntervalTree::leaf_append(Leaf& leaf, Key key, uint64_t end, Party party) {
  SLUICE_ASSERT(leaf.count < kLeafCapacity);
  leaf.id[leaf.count] = key.id;
  leaf.begin[leaf.count] = key.begin;
  leaf.end[leaf.count] = end;
  leaf.party[leaf.count] = party;
  ++leaf.count;
}

// Leaves the `keep` smallest keys of a full leaf where they are and moves the others. Answers the smallest
// one moved.
IntervalTree::Key IntervalTree::split_leaf(Leaf& left, Leaf& right, uint32_t keep) {
  std::array<uint32_t, kLeafCapacity> order;
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](uint32_t i) { return Key{left.begin[i], left.id[i]}; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  const Leaf full = left;
  left.count = 0;
  for (uint32_t i = 0; i < kLeafCapacity; ++i) {
    const uint32_t from = order[i];
    leaf_append(i < keep ? left : right, {full.begin[from], full.id[from]}, full.end[from], full.party[from]);
  }
  return {right.begin[0], right.id[0]};
}

void IntervalTree::inner_insert(Inner& inner, uint32_t at, Key separator, void* child,
                                const Summary& summary) {
  const auto open = [&](auto& column) {
    std::copy_backward(column.begin() + at, column.begin() + inner.count, column.begin() + inner.count + 1);
  };
  open(inner.separator_id);
  open(inner.separator);
  open(inner.top_end);
  open(inner.top_party);
  open(inner.other_end);
  open(inner.child);
  inner.separator_id[at] = separator.id;
  inner.separator[at] = separator.begin;
  inner.set_summary(at, summary);
  inner.child[at] = child;
  ++inner.count;
}

void IntervalTree::inner_erase(Inner& inner, uint32_t at) {
  const auto close = [&](auto& column) {
    std::copy(column.begin() + at + 1, column.begin() + inner.count, column.begin() + at);
  };
  close(inner.separator_id);
  close(inner.separator);
  close(inner.top_end);
  close(inner.top_party);
  close(inner.other_end);
  close(inner.child);
  --inner.count;
}

void IntervalTree::insert(const Extent& extent, Party party, uint32_t id) {
  SLUICE_ASSERT(extent.valid() && !extent.empty() && party != kNobody);
  if (root_ == nullptr) root_ = new_leaf();
  const Key key{extent.begin.value, id};
  const uint64_t end = extent.end.value;
  Path path;
  void* node = root_;
  for (int level = height_; level > 0; --level) {
    Inner* inner = static_cast<Inner*>(node);
    const uint32_t i = inner->child_for(key);
    Summary sum = inner->summary(i);
    sum.add(end, party);
    inner->set_summary(i, sum);
    path.steps[level] = {inner, i};
    node = inner->child[i];
  }
  path.leaf = static_cast<Leaf*>(node);
  ++size_;
  if (path.leaf->count < kLeafCapacity) {
    leaf_append(*path.leaf, key, end, party);
  } else {
    split_upwards(path, key, end, party);
  }
}

// The leaf of `path` is full. Inserts, and hands each new right half up until a parent has room for it.
void IntervalTree::split_upwards(Path& path, Key key, uint64_t end, Party party) {
  Leaf* leaf = path.leaf;
  Leaf* right_leaf = new_leaf();
  // Files are written from front to back: at the end of the tree leave the old leaf nearly full.
  bool at_the_end = *std::max_element(leaf->begin.begin(), leaf->begin.end()) <= key.begin;
  for (int level = 1; level <= height_; ++level) {
    at_the_end = at_the_end && path.steps[level].index + 1 == path.steps[level].node->count;
  }
  Key separator = split_leaf(*leaf, *right_leaf, at_the_end ? kLeafCapacity - 2 : kLeafCapacity / 2);
  leaf_append(key < separator ? *leaf : *right_leaf, key, end, party);

  void* left = leaf;
  void* right = right_leaf;
  for (int level = 1; level <= height_; ++level) {
    Inner* parent = path.steps[level].node;
    const uint32_t i = path.steps[level].index;
    parent->set_summary(i, summarize(left, level - 1));
    if (parent->count < kInnerCapacity) {
      inner_insert(*parent, i + 1, separator, right, summarize(right, level - 1));
      return;
    }
    Inner* sibling = new_inner();
    const uint32_t half = kInnerCapacity / 2;
    for (uint32_t k = half; k < kInnerCapacity; ++k) {
      inner_insert(*sibling, k - half, {parent->separator[k], parent->separator_id[k]}, parent->child[k],
                   parent->summary(k));
    }
    parent->count = half;
    Inner* target = i + 1 <= half ? parent : sibling;
    inner_insert(*target, i + 1 <= half ? i + 1 : i + 1 - half, separator, right,
                 summarize(right, level - 1));
    separator = {sibling->separator[0], sibling->separator_id[0]};
    left = parent;
    right = sibling;
  }
  SLUICE_ASSERT(height_ + 1 < kMaxHeight);
  Inner* root = new_inner();
  inner_insert(*root, 0, {0, 0}, left, summarize(left, height_));
  inner_insert(*root, 1, separator, right, summarize(right, height_));
  root_ = root;
  ++height_;
}

void IntervalTree::erase(const Extent& extent, uint32_t id) {
  SLUICE_ASSERT(root_ != nullptr);
  const Key key{extent.begin.value, id};
  const uint64_t end = extent.end.value;
  Path path;
  void* node = root_;
  for (int level = height_; level > 0; --level) {
    Inner* inner = static_cast<Inner*>(node);
    path.steps[level] = {inner, inner->child_for(key)};
    node = inner->child[path.steps[level].index];
  }
  Leaf& leaf = *static_cast<Leaf*>(node);
  uint32_t at = 0;
  while (at < leaf.count && leaf.id[at] != id) ++at;
  SLUICE_ASSERT(at < leaf.count && leaf.begin[at] == key.begin && leaf.end[at] == end);
  const Party party = leaf.party[at];
  const uint32_t last = --leaf.count;
  leaf.id[at] = leaf.id[last];
  leaf.begin[at] = leaf.begin[last];
  leaf.end[at] = leaf.end[last];
  leaf.party[at] = leaf.party[last];
  --size_;

  bool child_shrank = true;
  for (int level = 1; level <= height_; ++level) {
    Inner& parent = *path.steps[level].node;
    uint32_t i = path.steps[level].index;
    child_shrank = child_shrank && fix_child(parent, i, level - 1);
    bool summary_changed = false;
    if (i < parent.count) {
      const Summary sum = parent.summary(i);
      const bool counted =
          (end == sum.top_end && party == sum.top_party) || (end == sum.other_end && party != sum.top_party);
      if (counted || child_shrank) {
        const Summary fresh = summarize(parent.child[i], level - 1);
        summary_changed = fresh != sum;
        parent.set_summary(i, fresh);
      }
    }
    if (!child_shrank && !summary_changed) break;
  }
  shrink_root();
}

// Child `index` lost something. Frees it when empty, or merges it with a neighbour when both fit well into
// one node. Answers whether the parent lost a child; `index` then names the merged one, or parent.count when
// it was freed.
bool IntervalTree::fix_child(Inner& parent, uint32_t& index, int child_level) {
  const uint32_t capacity = child_level == 0 ? kLeafCapacity : kInnerCapacity;
  const uint32_t count = count_of(parent.child[index], child_level);
  if (count == 0) {
    free_node(parent.child[index], child_level);
    inner_erase(parent, index);
    index = parent.count;
    return true;
  }
  if (count >= capacity / 2) return false;
  // Below full by an eighth, or the next insert would split it again.
  const auto fits = [&](uint32_t neighbour) {
    return count + count_of(parent.child[neighbour], child_level) <= capacity - capacity / 8;
  };
  if (index + 1 < parent.count && fits(index + 1)) {
    merge_children(parent, index, child_level);
    return true;
  }
  if (index > 0 && fits(index - 1)) {
    merge_children(parent, --index, child_level);
    return true;
  }
  return false;
}

void IntervalTree::merge_children(Inner& parent, uint32_t left, int child_level) {
  void* from = parent.child[left + 1];
  if (child_level == 0) {
    Leaf& a = *static_cast<Leaf*>(parent.child[left]);
    const Leaf& b = *static_cast<Leaf*>(from);
    const auto append = [&](auto& to, const auto& tail) {
      std::copy(tail.begin(), tail.begin() + b.count, to.begin() + a.count);
    };
    append(a.id, b.id);
    append(a.begin, b.begin);
    append(a.end, b.end);
    append(a.party, b.party);
    a.count += b.count;
  } else {
    Inner& a = *static_cast<Inner*>(parent.child[left]);
    const Inner& b = *static_cast<Inner*>(from);
    for (uint32_t k = 0; k < b.count; ++k) {
      // The first separator of a node is not kept up to date; the parent's is right.
      const Key separator = k == 0 ? Key{parent.separator[left + 1], parent.separator_id[left + 1]}
                                   : Key{b.separator[k], b.separator_id[k]};
      inner_insert(a, a.count, separator, b.child[k], b.summary(k));
    }
  }
  free_node(from, child_level);
  inner_erase(parent, left + 1);
}

void IntervalTree::shrink_root() {
  while (height_ > 0) {
    Inner* inner = static_cast<Inner*>(root_);
    if (inner->count > 1) return;
    root_ = inner->count == 1 ? inner->child[0] : nullptr;
    free_node(inner, height_);
    height_ = root_ == nullptr ? 0 : height_ - 1;
    if (root_ == nullptr) return;
  }
  if (root_ != nullptr && static_cast<Leaf*>(root_)->count == 0) {
    free_node(root_, 0);
    root_ = nullptr;
  }
}

bool IntervalTree::overlaps(const Extent& extent, Party except) const {
  if (root_ == nullptr) return false;
  const void* node = root_;
  for (int level = height_; level > 0; --level) {
    const Inner& inner = *static_cast<const Inner*>(node);
    const uint32_t n = inner.children_below(extent.end.value);
    // All in a child before the last begin below extent.end; one that ends above extent.begin overlaps.
    if (inner.end_of_others_before(n - 1, except, extent.begin.value) > extent.begin.value) return true;
    if (inner.end_of_others(n - 1, except) <= extent.begin.value) return false;
    node = inner.child[n - 1];
  }
  const Leaf& leaf = *static_cast<const Leaf*>(node);
  bool any = false;
  for (uint32_t i = 0; i < leaf.count; ++i) {
    any |= (leaf.begin[i] < extent.end.value) & (leaf.end[i] > extent.begin.value);
  }
  if (!any || except == kNobody) return any;
  // Seldom reached, so that the parties' cache lines stay untouched.
  for (uint32_t i = 0; i < leaf.count; ++i) {
    if (leaf.begin[i] < extent.end.value && leaf.end[i] > extent.begin.value && leaf.party[i] != except)
      return true;
  }
  return false;
}

Offset IntervalTree::end_below(Offset at, Party except) const {
  uint64_t best = 0;
  if (root_ == nullptr) return Offset(0);
  const void* node = root_;
  for (int level = height_; level > 0; --level) {
    const Inner& inner = *static_cast<const Inner*>(node);
    const uint32_t n = inner.children_below(at.value);
    best = inner.end_of_others_before(n - 1, except, best);
    if (inner.end_of_others(n - 1, except) <= best) return Offset(best);
    node = inner.child[n - 1];
  }
  const Leaf& leaf = *static_cast<const Leaf*>(node);
  for (uint32_t i = 0; i < leaf.count; ++i) {
    if (leaf.begin[i] < at.value && leaf.party[i] != except) best = std::max(best, leaf.end[i]);
  }
  return Offset(best);
}

std::optional<uint64_t> IntervalTree::first_begin(const void* node, int level, uint64_t at, Party except) {
  if (level == 0) {
    const Leaf& leaf = *static_cast<const Leaf*>(node);
    std::optional<uint64_t> first;
    for (uint32_t i = 0; i < leaf.count; ++i) {
      if (leaf.begin[i] < at || leaf.party[i] == except) continue;
      first = std::min(first.value_or(kMaxFileBytes), leaf.begin[i]);
    }
    return first;
  }
  const Inner& inner = *static_cast<const Inner*>(node);
  // Only the first child looked at can hold begins below `at`; any other with someone else in it has the
  // answer.
  for (uint32_t i = inner.children_below(at) - 1; i < inner.count; ++i) {
    if (inner.end_of_others(i, except) == 0) continue;
    if (const auto found = first_begin(inner.child[i], level - 1, at, except)) return found;
  }
  return std::nullopt;
}

Offset IntervalTree::begin_from(Offset at, Party except) const {
  if (root_ == nullptr) return Offset(kMaxFileBytes);
  return Offset(first_begin(root_, height_, at.value, except).value_or(kMaxFileBytes));
}

IntervalTree::Summary IntervalTree::check_node(const void* node, int level, std::optional<Key> low,
                                               std::optional<Key> high, size_t& seen) const {
  Summary sum;
  if (level == 0) {
    const Leaf& leaf = *static_cast<const Leaf*>(node);
    SLUICE_ASSERT(leaf.count > 0 && leaf.count <= kLeafCapacity);
    for (uint32_t i = 0; i < leaf.count; ++i) {
      const Key key{leaf.begin[i], leaf.id[i]};
      SLUICE_ASSERT(leaf.begin[i] < leaf.end[i] && leaf.party[i] != kNobody);
      SLUICE_ASSERT((!low || *low <= key) && (!high || key < *high));
      sum.add(leaf.end[i], leaf.party[i]);
    }
    seen += leaf.count;
    return sum;
  }
  const Inner& inner = *static_cast<const Inner*>(node);
  SLUICE_ASSERT(inner.count > 0 && inner.count <= kInnerCapacity);
  for (uint32_t i = 0; i < inner.count; ++i) {
    const auto key = [&](uint32_t k) { return Key{inner.separator[k], inner.separator_id[k]}; };
    const Summary child = check_node(inner.child[i], level - 1, i == 0 ? low : key(i),
                                     i + 1 < inner.count ? key(i + 1) : high, seen);
    // Ties between parties may be told either way; the two ends are the same.
    SLUICE_ASSERT(child.top_end == inner.top_end[i] && child.other_end == inner.other_end[i]);
    sum.add(inner.summary(i));
  }
  return sum;
}

void IntervalTree::check() const {
  size_t seen = 0;
  if (root_ != nullptr) check_node(root_, height_, std::nullopt, std::nullopt, seen);
  SLUICE_ASSERT(seen == size_);
}

}  // namespace sluice::lockmgr
