#include "burst_buffer/slab_allocator.h"

#include <algorithm>
#include <iterator>

#include "base/assert.h"

namespace sluice::burst_buffer {

SlabAllocator::SlabAllocator(uint64_t capacity_bytes)
    : capacity_(capacity_bytes / kGranuleBytes * kGranuleBytes) {
  if (capacity_ > 0) add_range(0, capacity_);
}

uint64_t SlabAllocator::footprint(Length length) {
  SLUICE_ASSERT(length.value <= kMaxFileBytes);
  return (length.value + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
}

std::optional<Slab> SlabAllocator::allocate(Length length) {
  SLUICE_ASSERT(length.value > 0);
  if (length.value > capacity_) return std::nullopt;
  const uint64_t need = footprint(length);
  const auto best = by_size_.lower_bound({need, 0});
  if (best == by_size_.end()) return std::nullopt;
  const auto [size, offset] = *best;
  remove_range(by_offset_.find(offset));
  if (size > need) add_range(offset + need, size - need);
  return Slab{offset, length};
}

void SlabAllocator::free(const Slab& slab) {
  SLUICE_ASSERT(slab.offset % kGranuleBytes == 0 && slab.length.value > 0);
  uint64_t begin = slab.offset;
  uint64_t end = slab.offset + footprint(slab.length);
  SLUICE_ASSERT(end <= capacity_);
  auto after = by_offset_.lower_bound(begin);
  if (after != by_offset_.end()) {
    SLUICE_ASSERT(end <= after->first);
    if (end == after->first) {
      end += after->second;
      const auto merged = after++;
      remove_range(merged);
    }
  }
  if (after != by_offset_.begin()) {
    const auto before = std::prev(after);
    SLUICE_ASSERT(before->first + before->second <= begin);
    if (before->first + before->second == begin) {
      begin = before->first;
      remove_range(before);
    }
  }
  add_range(begin, end - begin);
}

bool SlabAllocator::take(const Slab& slab) {
  if (slab.offset % kGranuleBytes != 0 || slab.length.value == 0) return false;
  if (slab.offset >= capacity_ || slab.length.value > capacity_ - slab.offset) return false;
  const uint64_t begin = slab.offset;
  const uint64_t end = begin + footprint(slab.length);
  auto range = by_offset_.upper_bound(begin);
  if (range == by_offset_.begin()) return false;
  --range;
  const uint64_t range_begin = range->first;
  const uint64_t range_end = range_begin + range->second;
  if (range_end < end) return false;
  remove_range(range);
  if (range_begin < begin) add_range(range_begin, begin - range_begin);
  if (end < range_end) add_range(end, range_end - end);
  return true;
}

std::vector<Slab> SlabAllocator::take_free(uint64_t begin, uint64_t end) {
  std::vector<Slab> free_pieces;
  if (begin % kGranuleBytes != 0 || end % kGranuleBytes != 0) return free_pieces;
  auto range = by_offset_.upper_bound(begin);
  if (range != by_offset_.begin()) --range;
  for (; range != by_offset_.end() && range->first < end; ++range) {
    const uint64_t from = std::max(begin, range->first);
    const uint64_t to = std::min(end, range->first + range->second);
    if (from < to) free_pieces.push_back({from, Length(to - from)});
  }
  for (const Slab& piece : free_pieces) {
    const bool taken = take(piece);
    SLUICE_ASSERT(taken);
  }
  return free_pieces;
}

void SlabAllocator::add_range(uint64_t offset, uint64_t length) {
  by_offset_.emplace(offset, length);
  by_size_.emplace(length, offset);
  free_bytes_ += length;
}

void SlabAllocator::remove_range(ByOffset::iterator at) {
  free_bytes_ -= at->second;
  by_size_.erase({at->second, at->first});
  by_offset_.erase(at);
}

}  // namespace sluice::burst_buffer
