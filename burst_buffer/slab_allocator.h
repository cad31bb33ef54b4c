#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/types.h"
#include "burst_buffer/hot_tier.h"

namespace sluice::burst_buffer {

// Slabs begin and end at multiples of this in the data area: a sector, so that a small strided write does not
// cost a page.
inline constexpr uint64_t kGranuleBytes = 512;

// Which parts of the data area are in use. Pure and volatile: what survives a restart is in the staging log,
// from whose live slabs it is rebuilt with take(). Not thread-safe.
//
// Best fit, lowest offset first, with coalescing; allocate, free and take are O(log n) in the number of free
// ranges.
class SlabAllocator {
 public:
  // A capacity that is no multiple of the granule loses its tail.
  explicit SlabAllocator(uint64_t capacity_bytes);

  // Nothing when no free range is long enough. `length` is at least 1; the slab has exactly this length.
  std::optional<Slab> allocate(Length length);
  // A slab that allocate() or take() gave. Freeing what is free is a broken assertion.
  void free(const Slab& slab);
  // Marks a slab as in use. False, and nothing changed, when it is misaligned, empty, out of range or
  // overlaps one in use.
  bool take(const Slab& slab);
  // Marks as in use what is free in [begin, end), which are multiples of the granule; the pieces, in order.
  std::vector<Slab> take_free(uint64_t begin, uint64_t end);

  uint64_t capacity_bytes() const { return capacity_; }
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t used_bytes() const { return capacity_ - free_bytes_; }
  uint64_t largest_free_bytes() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  // Bytes of the data area a slab of this length occupies.
  static uint64_t footprint(Length length);

 private:
  using ByOffset = std::map<uint64_t, uint64_t>;  // offset -> length of a free range

  void add_range(uint64_t offset, uint64_t length);
  void remove_range(ByOffset::iterator at);

  uint64_t capacity_;
  uint64_t free_bytes_ = 0;
  ByOffset by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (length, offset) of the same ranges
};

}  // namespace sluice::burst_buffer
