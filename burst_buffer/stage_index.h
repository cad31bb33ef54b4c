#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/extent.h"
#include "base/extent_map.h"
#include "base/types.h"
#include "burst_buffer/hot_tier.h"

// What a reader of one container sees of its staged bytes. Pure; not thread-safe.
namespace sluice::burst_buffer {

class Hold;

// Where a staged extent lies, the epoch that made it visible, and what must stay alive as long as a piece of
// it does.
struct StagedPiece {
  StagedPlace place;
  Epoch epoch;  // 0 while its transaction is open
  std::shared_ptr<void> keep;

  StagedPiece advanced(Length by) const { return {place.advanced(by), epoch, keep}; }
};

// Writes and truncations on top of something below. Three facts, whatever their number and order:
//   pieces  what was written and neither overwritten nor cut off since
//   cut     the lowest truncation: bytes of the thing below are gone from here on
//   floor   the size is at least this: the last truncation, or the highest end of a write since
// A reader sees the pieces; in their holes what is below up to the cut, and zeros from it on.
struct StageLayer {
  ExtentMap<StagedPiece> pieces;
  std::optional<Length> cut;
  Length floor;

  void write(Extent extent, StagedPiece piece);
  void truncate(Length size);
  Length size(Length below) const;
  bool untouched() const { return pieces.empty() && !cut && floor == Length(0); }
};

struct StagedSegment {
  Extent extent;
  Segment::Kind kind = Segment::Kind::kBelow;  // kBytes and kStripe: `piece` says where
  StagedPiece piece;
  std::shared_ptr<Hold> clean;  // kBytes of the clean cache, which no piece keeps alive
};

// One committed layer over the published version, and one layer over it for each open transaction.
//
// Committed pieces and cuts remember their epoch, so that a published prefix of the epochs can be dropped. A
// cut whose epoch is not higher and whose place is not lower than another's says nothing: only the others are
// kept, so cuts grow with their epochs.
class StageIndex {
 public:
  // --- transactions ---
  void open(TxnId txn);
  bool is_open(TxnId txn) const { return open_.contains(txn); }
  const StageLayer& layer(TxnId txn) const;
  void write(TxnId txn, Extent extent, StagedPiece piece);
  void truncate(TxnId txn, Length size);
  // Lays the transaction's layer over the committed one as this epoch, higher than every earlier one.
  void commit(TxnId txn, Epoch epoch);
  void abort(TxnId txn);

  // --- readers: with `txn`, its layer over the committed one ---
  // The whole extent in order without gaps; neighbours of zeros or of "below" are one segment.
  std::vector<StagedSegment> lookup(std::optional<TxnId> txn, Extent extent) const;
  Length size(std::optional<TxnId> txn, Length published) const;

  // --- drain ---
  // The parts of `extent` that are still in the hot tier by this record, of a transaction or committed.
  std::vector<Extent> hot_parts(std::optional<TxnId> txn, Extent extent, uint64_t record) const;
  // They are in a stripe now: `place` is where extent.begin lies.
  void move(std::optional<TxnId> txn, Extent extent, uint64_t record, StagedPlace place,
            std::shared_ptr<void> keep);
  // Epochs up to this one are what is below now.
  void drained(Epoch epoch);

  const ExtentMap<StagedPiece>& committed() const { return committed_; }
  const std::map<Epoch, Length>& cuts() const { return cuts_; }
  std::optional<Length> cut() const;
  Length floor() const { return floor_; }
  const std::map<TxnId, StageLayer>& open_layers() const { return open_; }
  // No open transaction, and nothing committed that is not below.
  bool idle() const { return open_.empty() && committed_.empty() && cuts_.empty(); }

  // --- rebuilding from a checkpoint ---
  void restore_committed(std::map<Epoch, Length> cuts, Length floor);
  void restore_layer(TxnId txn, std::optional<Length> cut, Length floor);
  void restore_piece(std::optional<TxnId> txn, Extent extent, StagedPiece piece);

 private:
  StageLayer& open_layer(TxnId txn);
  ExtentMap<StagedPiece>& pieces_of(std::optional<TxnId> txn);
  const ExtentMap<StagedPiece>& pieces_of(std::optional<TxnId> txn) const;
  void append_committed(Extent extent, std::vector<StagedSegment>& found) const;

  ExtentMap<StagedPiece> committed_;
  std::map<Epoch, Length> cuts_;
  Length floor_;
  std::map<TxnId, StageLayer> open_;
};

}  // namespace sluice::burst_buffer
