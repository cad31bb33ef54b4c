#include "burst_buffer/clean_cache.h"

#include <algorithm>
#include <utility>

#include "burst_buffer/slab_allocator.h"

namespace sluice::burst_buffer {

void CleanCache::keep(ContainerId container, Extent extent, std::shared_ptr<SlabHold> hold, uint64_t offset) {
  make_room();
  auto& known = by_slab_[hold->slab.offset];
  std::shared_ptr<Kept> kept = known.lock();
  if (!kept) {
    kept = std::make_shared<Kept>(*this, container, std::move(hold));
    known = kept;
    in_order_.push_back(kept);
    // What was overwritten before its room was wanted left its place in the order.
    if (in_order_.size() > 2 * by_slab_.size() + 64)
      std::erase_if(in_order_, [](const std::weak_ptr<Kept>& one) { return one.expired(); });
  }
  kept->extents.push_back(extent);
  ++extents_;
  Pieces& pieces = containers_[container];
  cut_out(pieces, extent);
  pieces.assign(extent, {std::move(kept), offset});
  ++pieces_;
}

// One more piece, or one that is split, still fits afterwards.
void CleanCache::make_room() {
  while ((extents_ >= kMaxPieces || pieces_ + 2 > kMaxPieces) && give_up_one()) {
  }
}

void CleanCache::cut_out(Pieces& pieces, Extent extent) {
  const size_t before = pieces.size();
  pieces.erase(extent);
  // A rest that fills these is long enough.
  const Extent left{Offset(extent.begin.value - std::min(extent.begin.value, least_bytes_)), extent.begin};
  const Extent right{extent.end, Offset(std::min(extent.end.value + least_bytes_, kMaxFileBytes))};
  for (const auto& entry : pieces.lookup(left)) {
    if (entry.extent.end == left.end && entry.extent.length().value < least_bytes_)
      pieces.erase(entry.extent);
  }
  for (const auto& entry : pieces.lookup(right)) {
    if (entry.extent.begin == right.begin && entry.extent.length().value < least_bytes_)
      pieces.erase(entry.extent);
  }
  pieces_ = pieces_ + pieces.size() - before;
}

void CleanCache::spare(const SlabHold& hold) {
  const auto found = by_slab_.find(hold.slab.offset);
  const auto kept = found == by_slab_.end() ? nullptr : found->second.lock();
  if (!kept || kept->spare) return;
  kept->spare = true;
  spare_bytes_ += SlabAllocator::footprint(hold.slab.length);
}

void CleanCache::gone(const Kept& kept) {
  if (kept.spare) spare_bytes_ -= SlabAllocator::footprint(kept.hold->slab.length);
  extents_ -= kept.extents.size();
  by_slab_.erase(kept.hold->slab.offset);
}

void CleanCache::changed(ContainerId container, Extent extent) {
  const auto found = containers_.find(container);
  if (found == containers_.end()) return;
  cut_out(found->second, extent);
  if (found->second.empty()) containers_.erase(found);
  make_room();
}

void CleanCache::cut(ContainerId container, Length size) {
  changed(container, {Offset(size.value), Offset(kMaxFileBytes)});
}

void CleanCache::forget(ContainerId container) {
  const auto found = containers_.find(container);
  if (found == containers_.end()) return;
  pieces_ -= found->second.size();
  containers_.erase(found);
}

std::vector<StagedSegment> CleanCache::fill_in(ContainerId container,
                                               std::vector<StagedSegment> found) const {
  const auto pieces = containers_.find(container);
  if (pieces == containers_.end()) return found;
  std::vector<StagedSegment> filled;
  filled.reserve(found.size());
  for (StagedSegment& segment : found) {
    const bool committed_stripe = segment.kind == Segment::Kind::kStripe && segment.piece.epoch != Epoch(0);
    if (segment.kind != Segment::Kind::kBelow && !committed_stripe) {
      filled.push_back(std::move(segment));
      continue;
    }
    const auto rest = [&](Extent extent) {
      if (extent.empty()) return;
      const Length by = extent.begin - segment.extent.begin;
      filled.push_back(
          {extent, segment.kind, committed_stripe ? segment.piece.advanced(by) : segment.piece, {}});
    };
    Offset at = segment.extent.begin;
    for (const auto& [extent, piece] : pieces->second.lookup(segment.extent)) {
      rest({at, extent.begin});
      const SlabHold& hold = *piece.kept->hold;
      const StagedPlace place{StagedPlace::Tier::kHot, hold.slab.offset, piece.offset, hold.record};
      filled.push_back(
          {extent, Segment::Kind::kBytes, {place, segment.piece.epoch, nullptr}, piece.kept->hold});
      at = extent.end;
    }
    rest({at, segment.extent.end});
  }
  return filled;
}

bool CleanCache::give_up_one() {
  while (!in_order_.empty()) {
    const auto kept = in_order_.front().lock();
    in_order_.pop_front();
    if (!kept) continue;
    give_up(kept);
    return true;
  }
  return false;
}

bool CleanCache::give_up(uint64_t slab_offset) {
  const auto found = by_slab_.find(slab_offset);
  const auto kept = found == by_slab_.end() ? nullptr : found->second.lock();
  if (kept) give_up(kept);
  return kept != nullptr;
}

void CleanCache::give_up(const std::shared_ptr<Kept>& kept) {
  Pieces& pieces = containers_.at(kept->container);
  const size_t before = pieces.size();
  for (const Extent& extent : kept->extents) {
    for (const auto& entry : pieces.lookup(extent)) {
      if (entry.value.kept == kept) pieces.erase(entry.extent);
    }
  }
  pieces_ -= before - pieces.size();
  if (pieces.empty()) containers_.erase(kept->container);
}

}  // namespace sluice::burst_buffer
