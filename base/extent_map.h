#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "base/extent.h"

namespace sluice {

// A map from disjoint extents to values, where a later assignment covers an earlier one. Pure; not
// thread-safe.
//
// V says where the bytes of an extent lie and must have `V advanced(Length) const`: the value for the rest of
// the extent after that many bytes. Assign and erase are O(log n + extents covered), lookup O(log n + extents
// found). Adjacent extents are not merged: each keeps the value it was given.
template <class V>
class ExtentMap {
 public:
  struct Entry {
    Extent extent;
    V value;
  };

  // From now on `extent` maps to `value`; what it covered of others is cut away. Empty extents change
  // nothing.
  void assign(Extent extent, V value) {
    SLUICE_ASSERT(extent.valid());
    if (extent.empty()) return;
    erase(extent);
    entries_.emplace(extent.begin, Node{extent.end, std::move(value)});
  }

  // From now on nothing in `extent` is mapped.
  void erase(Extent extent) {
    if (extent.empty()) return;
    auto at = first_overlapping(extent);
    while (at != entries_.end() && at->first < extent.end) {
      const Offset begin = at->first;
      Node node = std::move(at->second);
      at = entries_.erase(at);
      if (extent.end < node.end) {
        at = entries_.emplace_hint(at, extent.end, Node{node.end, node.value.advanced(extent.end - begin)});
      }
      if (begin < extent.begin) entries_.emplace(begin, Node{extent.begin, std::move(node.value)});
    }
  }

  // What is mapped inside `extent`, in order, cut to it. Holes are left out.
  std::vector<Entry> lookup(Extent extent) const {
    std::vector<Entry> found;
    if (extent.empty()) return found;
    for (auto at = first_overlapping(extent); at != entries_.end() && at->first < extent.end; ++at) {
      const Extent whole{at->first, at->second.end};
      const Extent cut = *whole.intersect(extent);
      found.push_back({cut, at->second.value.advanced(cut.begin - whole.begin)});
    }
    return found;
  }

  // What is not mapped inside `extent`, in order.
  std::vector<Extent> holes(Extent extent) const {
    std::vector<Extent> found;
    Offset at = extent.begin;
    for (const Entry& entry : lookup(extent)) {
      if (at < entry.extent.begin) found.push_back({at, entry.extent.begin});
      at = entry.extent.end;
    }
    if (at < extent.end) found.push_back({at, extent.end});
    return found;
  }

  template <class F>
  void for_each(F&& visit) const {
    for (const auto& [begin, node] : entries_) visit(Extent{begin, node.end}, node.value);
  }

  // The end of the highest mapped extent; nothing when the map is empty.
  std::optional<Offset> end() const {
    if (entries_.empty()) return std::nullopt;
    return entries_.rbegin()->second.end;
  }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }

 private:
  struct Node {
    Offset end;
    V value;
  };
  using Entries = std::map<Offset, Node>;

  template <class Self>
  static auto first_overlapping_in(Self& entries, Extent extent) {
    auto at = entries.upper_bound(extent.begin);
    if (at != entries.begin()) {
      auto before = std::prev(at);
      if (extent.begin < before->second.end) return before;
    }
    return at;
  }
  typename Entries::iterator first_overlapping(Extent extent) {
    return first_overlapping_in(entries_, extent);
  }
  typename Entries::const_iterator first_overlapping(Extent extent) const {
    return first_overlapping_in(entries_, extent);
  }

  Entries entries_;
};

}  // namespace sluice
