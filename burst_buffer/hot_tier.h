#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/extent.h"
#include "base/result.h"
#include "base/types.h"
#include "burst_buffer/persist_domain.h"

// The hot tier: staged writes and transactions that outlive the process, in front of the storage tier.
//
// It is the staging log (what survives), the slab allocator (where bytes lie) and the stage index (what a
// reader sees), kept in step. Epochs are per container: commit allots the next one.
namespace sluice::burst_buffer {

inline constexpr size_t kMaxRecordExtents = 1024;

// Bytes in the data area of the hot tier. Only a record in the log makes what they hold survive.
struct Slab {
  uint64_t offset = 0;
  Length length;
};

// Where the bytes of a staged extent are: in the hot tier, or already in a stripe of the storage tier (an
// open transaction larger than the hot tier is placed before it is committed).
struct StagedPlace {
  enum class Tier : uint8_t { kHot, kStripe };
  Tier tier = Tier::kHot;
  uint64_t where = 0;   // kHot: offset in the data area; kStripe: the stripe's number
  uint64_t offset = 0;  // into the record's slab, or into the stripe
  uint64_t record = 0;  // the sequence number of the record that put it there

  StagedPlace advanced(Length by) const { return {tier, where, offset + by.value, record}; }
};

// Keeps slabs from being reused while somebody reads or writes them. Release from any thread.
class Pin {
 public:
  virtual ~Pin() = default;
};

struct Segment {
  enum class Kind { kBytes, kStripe, kBelow, kZeros };
  Extent extent;
  Kind kind = Kind::kBelow;
  std::span<const std::byte> bytes;  // kBytes: in the hot tier, valid while the View lives
  StripeId stripe;                   // kStripe
  uint64_t stripe_offset = 0;
  // kBytes: where `bytes` begin in the data area and in the slab that they were written in,
  // how long that is, and its block checksums; valid while the View lives.
  uint64_t area_offset = 0;
  uint64_t in_slab = 0;
  uint64_t slab_length = 0;
  std::span<const uint32_t> checksums = {};
  bool clean = false;  // kBytes: the storage tier has them as well
};

// What a reader of an extent finds, in order and without gaps: staged bytes, bytes placed in a stripe, "ask
// the published version below", or zeros (beyond a truncation that is not yet published).
struct View {
  std::vector<Segment> segments;
  std::unique_ptr<Pin> pin;
  Epoch committed;  // from staged(): the container's newest, of which this is
};

struct TransactionInfo {
  TxnId txn;
  ContainerId container;
  SessionId session;
  uint64_t last_record = 0;  // sequence number of its last record; 0 when it has none
};

struct CommitInfo {
  Epoch epoch;
  Length size;
};

struct Usage {
  uint64_t bytes_total = 0;
  uint64_t bytes_used = 0;       // slabs in use or reserved
  uint64_t bytes_clean = 0;      // besides: kept for readers, and free when somebody wants them
  uint64_t bytes_undrained = 0;  // of those, named by records
  bool log_full = false;         // the last record that asked for room in the log found none
  bool dead_stripes = false;     // placed() has stripes to answer
};

// What one container has to give to the storage tier.
struct DrainWork {
  ContainerId container;
  Epoch from;  // published already
  Epoch to;    // the newest committed; equal to `from` when only open transactions have bytes
  std::optional<Length> cut;
  Length size;
  struct Piece {
    Extent extent;
    StagedPlace place;
    std::optional<TxnId> open_txn;     // set: not committed yet
    std::span<const std::byte> bytes;  // for kHot
  };
  std::vector<Piece> pieces;  // committed ones cover no byte twice
  std::unique_ptr<Pin> pin;
};

struct PlacedPiece {
  Extent extent;
  StagedPlace before;  // as in DrainWork
  StripeId stripe;
  uint64_t stripe_offset = 0;
};

// Thread-safe. Flushes never hold up readers: what changes the log goes through one mutex, what is read
// through another that no I/O happens under. A transaction's own bytes are flushed before its commit takes
// the log, so other writers wait only for one small flush of the log's tail. Readers wait while a commit lays
// its pieces over the committed ones, about 0.3 us for each (1.5 ms for 5000, the rest of a 140 ms commit to
// a disk goes on beside them).
//
// After a failed flush nothing is known about what is durable: the tier then refuses every change (kIo, the
// first failure's words) and goes on answering readers; a restart recovers from what the medium has. A commit
// that fails in its last flush is outcome_unknown until then.
//
// Whoever publishes a version past the hot tier (a rollback) drains and forgets the container first: epochs
// are counted here.
class HotTier {
 public:
  struct Options {
    std::string path;         // of the pool file; names the tier in messages
    uint64_t size_bytes = 0;  // used when the file is created; an existing file keeps its size
    // The published version of a container; nothing for one that does not exist. Asked with no lock of the
    // hot tier held: at recovery (a log that missed its own "drained" record is put right by the answer, the
    // records of a container that no longer exists are dropped), at the first transaction of a container, and
    // by reconcile(). Without it containers are taken to begin empty at epoch 0. An error is "not known now":
    // recovery then fails rather than take a container for removed, and drop what it was promised to keep.
    std::function<Result<std::optional<CommitInfo>>(ContainerId)> published;
    // What readers of the container see has changed. Called before anybody can see it, with a lock held: it
    // returns at once and calls nothing here.
    std::function<void(ContainerId)> on_change = nullptr;
    // Drained pieces of at least this length stay for readers until their room is wanted.
    uint64_t least_clean_bytes = 4096;
    // Parts of an open transaction in one stripe: more of them are one table in the data area, not in the
    // log.
    size_t most_parts_in_log = 64;
  };

  // Creates or recovers; with a null `domain` the PMDK pool file options.path is opened. After a crash:
  // committed transactions are there whole, uncommitted ones are there up to their last surviving record (the
  // engine resumes or aborts them), nothing else is. The bytes of uncommitted records are checked against
  // their checksums here, because a power loss may have kept a record and lost its bytes; those of committed
  // ones were persisted before the commit, and are checked when they leave (verify). kCorrupt with data_loss:
  // the log is damaged behind what was durable. kBusy: another process has the pool open.
  static Result<std::unique_ptr<HotTier>> open(Options options, std::shared_ptr<PersistDomain> domain);
  virtual ~HotTier() = default;

  // --- writing ---
  // kNoSpace (retryable) when no slab of that size is free now; kTooLarge when none ever will be.
  virtual Result<Slab> reserve(Length length) = 0;
  virtual std::span<std::byte> bytes(const Slab& slab) = 0;
  virtual void cancel(const Slab& slab) = 0;
  // Reserves what is free of this range of the data area, and answers which pieces that was. A reserved slab
  // may be cancelled piece by piece, at multiples of kGranuleBytes.
  virtual std::vector<Slab> claim(uint64_t begin, uint64_t end) = 0;
  // Where other processes may map the data area; nothing when they may not.
  struct SharedArea {
    std::string path;
    uint64_t file_offset = 0;
    uint64_t bytes = 0;
    bool in_memory = false;
  };
  virtual std::optional<SharedArea> shared_area() = 0;

  // After each of these returns, the record survives a crash of the process; it survives a power loss after
  // the next persist() or commit(). Unknown transactions are kNotFound, a begin of a known one kExists, a
  // begin in a container that `published` does not know kNotFound. kNoSpace (retryable): the log has no room
  // until the drain has moved something.
  virtual Result<> begin(TxnId txn, ContainerId container, SessionId session) = 0;
  // One record for a list of extents whose bytes lie one behind the other in the slab, from its start,
  // without gaps (their lengths sum up to slab.length; at most kMaxRecordExtents; later ones of the list lie
  // over earlier ones). `checksums`: block_checksums() of the whole slab's bytes (base/checksum.h). Takes the
  // slab over, also on failure. Answers the record's sequence number.
  virtual Result<uint64_t> write(TxnId txn, std::span<const Extent> extents, const Slab& slab,
                                 std::span<const uint32_t> checksums) = 0;
  // As write(), for a slab that was filled by somebody else: after a failure it is still the caller's.
  virtual Result<uint64_t> record(TxnId txn, std::span<const Extent> extents, const Slab& slab,
                                  std::span<const uint32_t> checksums) = 0;
  // Whether an appended record waits for no device: then a thread that must not block may append.
  virtual bool appends_at_once() const = 0;
  virtual Result<uint64_t> truncate(TxnId txn, Length size) = 0;
  // Durable on return: its slabs are free.
  virtual Result<> abort(TxnId txn) = 0;
  virtual Result<> persist() = 0;

  // The transaction becomes the container's next epoch, whole, durable on return as the medium can. An empty
  // transaction commits too, without a new epoch. Committing a committed transaction again answers what it
  // answered (remembered until the epoch is drained; then kNotFound).
  virtual Result<CommitInfo> commit(TxnId txn) = 0;

  // --- reading ---
  // With `txn`, its own uncommitted writes lie on top of what is committed.
  virtual Result<View> view(ContainerId container, std::optional<TxnId> txn, Extent extent) = 0;
  // All of these extents, one behind the other, at one moment, when every byte of them is staged in the hot
  // tier; nothing otherwise. `txn` that is not open: without it. Behind them the first of `ahead`'s bytes, up
  // to the first that is not staged, as long as all are at most `most_segments`.
  virtual Result<std::optional<View>> staged(ContainerId container, std::optional<TxnId> txn,
                                             std::span<const Extent> extents, Extent ahead = {},
                                             size_t most_segments = 0) = 0;
  // Where a container stands: as long as this is the same, so are its committed bytes.
  struct Standing {
    Epoch committed;
    uint64_t removals = 0;  // of any container, and versions of any that were published past the hot tier
    bool operator==(const Standing&) const = default;
  };
  virtual Standing standing(ContainerId container) = 0;
  // These extents were read from the storage tier, and their bytes lie one behind the other in the slab: they
  // stay for readers until their room is wanted, unless the container stands elsewhere than `then`. Takes the
  // slab over. `checksums` as in write().
  virtual void keep(ContainerId container, const Standing& then, std::span<const Extent> extents,
                    const Slab& slab, std::vector<uint32_t> checksums) = 0;
  // The bytes of this clean segment of a view that is still held are damaged: nothing of its slab is kept for
  // readers any more.
  virtual void damaged(ContainerId container, const Segment& segment) = 0;
  // Size as the transaction, or a stranger, sees it. `published` is the storage tier's.
  virtual Length size(ContainerId container, std::optional<TxnId> txn, Length published) = 0;
  virtual Epoch committed(ContainerId container, Epoch published) = 0;
  // Bytes of the file, committed or in open transactions, that no published version has yet, wherever they
  // are staged.
  virtual uint64_t undrained_bytes(ContainerId container) = 0;
  // Committed bytes of all containers that no published version has yet. A container with an unpublished
  // epoch counts for at least 1, also when the epoch only cut bytes off: 0 when everything committed is
  // published.
  virtual uint64_t unpublished_bytes() = 0;
  virtual std::vector<TransactionInfo> open_transactions() = 0;
  // Whether this record and those before it of the same transaction survived every restart since it was
  // acknowledged (of the last 64). May deny it for a record that did survive a power loss that took an
  // earlier one; never the other way.
  virtual bool survived(uint64_t record) = 0;
  // The number of the newest write or truncation that survived or was made since. Right after open(), a
  // client whose newest acknowledged record is at most this has lost nothing in this restart; survived()
  // knows of earlier ones too.
  virtual uint64_t last_record() = 0;
  // Checks the record's block checksums over the blocks of its slab that hold this piece, before the bytes
  // leave the hot tier. kCorrupt when they do not match.
  virtual Result<> verify(const DrainWork::Piece& piece) = 0;

  // --- draining (see drain.h) ---
  // Containers with a committed epoch that is not published.
  virtual std::vector<ContainerId> undrained() = 0;
  // With `include_open`, hot bytes of open transactions are offered too. Committed pieces are offered in
  // either tier.
  virtual DrainWork drain_work(ContainerId container, bool include_open) = 0;
  // These pieces lie durable in stripes now: their slabs are freed (when unpinned). Pieces overwritten or
  // gone meanwhile are passed over; answers the stripes that nothing here refers to any more, of any
  // container, durable before they are answered: the storage tier removes those that no published version
  // refers to. Stripes of committed pieces are not answered before drained() or forget() of their container,
  // because the drain may be publishing them until then. May be called with no pieces.
  // When the log has room for some of them only, the others stay hot; kNoSpace when it has for none.
  virtual Result<std::vector<StripeId>> placed(ContainerId container,
                                               std::span<const PlacedPiece> pieces) = 0;
  // The storage tier published this epoch: records up to it are forgotten.
  virtual Result<> drained(ContainerId container, Epoch epoch) = 0;
  // Asks Options::published again, after a publish with unknown outcome or a conflict, and forgets what it
  // covers. Answers the published epoch. kConflict: a version was published that did not come from here.
  // kNotFound: there is no such container any more, and nothing of it here.
  virtual Result<Epoch> reconcile(ContainerId container) = 0;
  // The container was removed from the storage tier (before, so that no publication names its stripes any
  // more): everything of it is forgotten, open transactions too; answers stripes as placed() does.
  virtual Result<std::vector<StripeId>> forget(ContainerId container) = 0;
  // Stripes that records refer to: they must outlive an orphan collection.
  virtual std::set<StripeId> stripes_in_use() = 0;

  virtual Usage usage() = 0;
};

}  // namespace sluice::burst_buffer
