#include "burst_buffer/stage_index.h"

#include <algorithm>

#include "base/assert.h"

namespace sluice::burst_buffer {
namespace {

constexpr Extent from(Length begin) {
  return {Offset(begin.value), Offset(kMaxFileBytes)};
}

void append_plain(Extent extent, Segment::Kind kind, std::vector<StagedSegment>& found) {
  if (extent.empty()) return;
  if (!found.empty() && found.back().kind == kind && found.back().extent.end == extent.begin) {
    found.back().extent.end = extent.end;
    return;
  }
  found.push_back({extent, kind, {}, {}});
}

void append_piece(Extent extent, const StagedPiece& piece, std::vector<StagedSegment>& found) {
  const bool hot = piece.place.tier == StagedPlace::Tier::kHot;
  found.push_back({extent, hot ? Segment::Kind::kBytes : Segment::Kind::kStripe, piece, {}});
}

// `extent` cut in two at `cut`: what lies below it, and what does not.
struct Split {
  Extent below;
  Extent beyond;
};
Split split_at(Extent extent, std::optional<Length> cut) {
  if (!cut) return {extent, {extent.end, extent.end}};
  const Offset at = std::clamp(Offset(cut->value), extent.begin, extent.end);
  return {{extent.begin, at}, {at, extent.end}};
}

// Calls `piece(entry)` and `hole(extent)` in order, so that they cover `extent`.
template <class P, class H>
void walk(const ExtentMap<StagedPiece>& pieces, Extent extent, P&& piece, H&& hole) {
  Offset at = extent.begin;
  for (const auto& entry : pieces.lookup(extent)) {
    if (at < entry.extent.begin) hole(Extent{at, entry.extent.begin});
    piece(entry);
    at = entry.extent.end;
  }
  if (at < extent.end) hole(Extent{at, extent.end});
}

}  // namespace

void StageLayer::write(Extent extent, StagedPiece piece) {
  floor = std::max(floor, Length(extent.end.value));
  pieces.assign(extent, std::move(piece));
}

void StageLayer::truncate(Length size) {
  pieces.erase(from(size));
  cut = cut ? std::min(*cut, size) : size;
  floor = size;
}

Length StageLayer::size(Length below) const {
  return std::max(cut ? std::min(below, *cut) : below, floor);
}

void StageIndex::open(TxnId txn) {
  const bool fresh = open_.try_emplace(txn).second;
  SLUICE_ASSERT(fresh);
}

const StageLayer& StageIndex::layer(TxnId txn) const {
  const auto found = open_.find(txn);
  SLUICE_ASSERT(found != open_.end());
  return found->second;
}

StageLayer& StageIndex::open_layer(TxnId txn) {
  return const_cast<StageLayer&>(layer(txn));
}

void StageIndex::write(TxnId txn, Extent extent, StagedPiece piece) {
  open_layer(txn).write(extent, std::move(piece));
}

void StageIndex::truncate(TxnId txn, Length size) {
  open_layer(txn).truncate(size);
}

void StageIndex::commit(TxnId txn, Epoch epoch) {
  auto node = open_.extract(txn);
  SLUICE_ASSERT(!node.empty());
  const StageLayer& layer = node.mapped();
  if (layer.cut) {
    committed_.erase(from(*layer.cut));
    SLUICE_ASSERT(cuts_.empty() || cuts_.rbegin()->first < epoch);
    while (!cuts_.empty() && cuts_.rbegin()->second >= *layer.cut) cuts_.erase(std::prev(cuts_.end()));
    cuts_.emplace(epoch, *layer.cut);
    floor_ = std::min(floor_, *layer.cut);
  }
  floor_ = std::max(floor_, layer.floor);
  layer.pieces.for_each([&](Extent extent, const StagedPiece& piece) {
    committed_.assign(extent, {piece.place, epoch, piece.keep});
  });
}

void StageIndex::abort(TxnId txn) {
  const size_t erased = open_.erase(txn);
  SLUICE_ASSERT(erased == 1);
}

void StageIndex::append_committed(Extent extent, std::vector<StagedSegment>& found) const {
  walk(
      committed_, extent, [&](const auto& entry) { append_piece(entry.extent, entry.value, found); },
      [&](Extent hole) {
        const Split split = split_at(hole, cut());
        append_plain(split.below, Segment::Kind::kBelow, found);
        append_plain(split.beyond, Segment::Kind::kZeros, found);
      });
}

std::vector<StagedSegment> StageIndex::lookup(std::optional<TxnId> txn, Extent extent) const {
  std::vector<StagedSegment> found;
  if (!txn) {
    append_committed(extent, found);
    return found;
  }
  const StageLayer& own = layer(*txn);
  walk(
      own.pieces, extent, [&](const auto& entry) { append_piece(entry.extent, entry.value, found); },
      [&](Extent hole) {
        const Split split = split_at(hole, own.cut);
        if (!split.below.empty()) append_committed(split.below, found);
        append_plain(split.beyond, Segment::Kind::kZeros, found);
      });
  return found;
}

std::optional<Length> StageIndex::cut() const {
  // The first is the lowest, because cuts grow with their epochs.
  if (cuts_.empty()) return std::nullopt;
  return cuts_.begin()->second;
}

Length StageIndex::size(std::optional<TxnId> txn, Length published) const {
  const auto lowest = cut();
  const Length committed = std::max(lowest ? std::min(published, *lowest) : published, floor_);
  return txn ? layer(*txn).size(committed) : committed;
}

ExtentMap<StagedPiece>& StageIndex::pieces_of(std::optional<TxnId> txn) {
  return txn ? open_layer(*txn).pieces : committed_;
}

const ExtentMap<StagedPiece>& StageIndex::pieces_of(std::optional<TxnId> txn) const {
  return txn ? layer(*txn).pieces : committed_;
}

std::vector<Extent> StageIndex::hot_parts(std::optional<TxnId> txn, Extent extent, uint64_t record) const {
  std::vector<Extent> parts;
  for (const auto& entry : pieces_of(txn).lookup(extent)) {
    const StagedPlace& place = entry.value.place;
    if (place.tier == StagedPlace::Tier::kHot && place.record == record) parts.push_back(entry.extent);
  }
  return parts;
}

void StageIndex::move(std::optional<TxnId> txn, Extent extent, uint64_t record, StagedPlace place,
                      std::shared_ptr<void> keep) {
  auto& pieces = pieces_of(txn);
  for (const auto& entry : pieces.lookup(extent)) {
    const StagedPlace& now = entry.value.place;
    if (now.tier != StagedPlace::Tier::kHot || now.record != record) continue;
    pieces.assign(entry.extent, {place.advanced(entry.extent.begin - extent.begin), entry.value.epoch, keep});
  }
}

void StageIndex::drained(Epoch epoch) {
  std::vector<Extent> gone;
  committed_.for_each([&](Extent extent, const StagedPiece& piece) {
    if (piece.epoch <= epoch) gone.push_back(extent);
  });
  for (const Extent extent : gone) committed_.erase(extent);
  cuts_.erase(cuts_.begin(), cuts_.upper_bound(epoch));
  // The floor stays: what earlier epochs added to it, the published size says as well.
  if (committed_.empty() && cuts_.empty()) floor_ = Length(0);
}

void StageIndex::restore_committed(std::map<Epoch, Length> cuts, Length floor) {
  cuts_ = std::move(cuts);
  floor_ = floor;
}

void StageIndex::restore_layer(TxnId txn, std::optional<Length> cut, Length floor) {
  StageLayer& own = open_layer(txn);
  own.cut = cut;
  own.floor = floor;
}

void StageIndex::restore_piece(std::optional<TxnId> txn, Extent extent, StagedPiece piece) {
  pieces_of(txn).assign(extent, std::move(piece));
}

}  // namespace sluice::burst_buffer
