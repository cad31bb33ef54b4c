#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/extent.h"
#include "base/result.h"
#include "base/types.h"
#include "burst_buffer/hot_tier.h"

// The records of the staging log and their form on the medium (FORMAT.md, "Staging log"). Pure.
//
// A record changes the state of the hot tier. The first group is appended as things happen; the second is
// written by checkpoints only, which put the live state at the head of a log half.
namespace sluice::burst_buffer {

// --- appended as things happen, and in checkpoints ---

struct BeginRecord {
  TxnId txn;
  ContainerId container;
  SessionId session;
  // In checkpoints: what the transaction had done already.
  uint64_t last_record = 0;
  std::optional<Length> cut;
  Length floor;
};

// An extent of the file and where in the record's slab its bytes are.
struct SlabPart {
  Extent extent;
  uint64_t offset = 0;
};

struct WriteRecord {
  TxnId txn;
  ContainerId container;
  Epoch epoch;          // 0: the transaction is open. In checkpoints also the epoch it was committed as
  uint64_t record = 0;  // its number; the log's sequence number of its first appearance
  Slab slab;
  std::vector<uint32_t> checksums;  // of the slab
  std::vector<SlabPart> parts;      // later ones lie over earlier ones; in checkpoints what is still seen
};

struct TruncateRecord {
  TxnId txn;
  uint64_t record = 0;
  Length size;
};

struct CommitRecord {
  TxnId txn;
  ContainerId container;
  Epoch epoch;
  Length size;
  bool remembered = false;  // checkpoints: only the answer is kept, the bytes have records of their own
};

struct AbortRecord {
  TxnId txn;
};

struct StripePart {
  Extent extent;
  uint64_t record = 0;  // the write whose bytes these are
  StripeId stripe;
  uint64_t stripe_offset = 0;
};

struct PlacedRecord {
  ContainerId container;
  std::optional<TxnId> txn;  // none: committed bytes
  std::vector<StripePart> parts;
};

// As PlacedRecord or, in checkpoints, as StripeRecord, for the many parts of one stripe: they are a table in
// a slab (part_table.h).
struct TableRecord {
  ContainerId container;
  std::optional<TxnId> txn;  // none: committed, as `epoch`
  Epoch epoch;
  StripeId stripe;
  Slab slab;  // the table's bytes
  uint32_t crc32c = 0;
  uint32_t count = 0;  // of the parts
  bool in_checkpoint = false;
  // In checkpoints: what lies at and beyond it is gone. Parts may be hidden there by those of later tables
  // and by what other records say.
  std::optional<Length> cut;
  std::vector<StripePart> parts;  // not in the record
};

struct DrainedRecord {
  ContainerId container;
  CommitInfo published;
};

struct ForgetRecord {
  ContainerId container;
};

// --- before a container's first transaction, and in checkpoints ---

struct ContainerRecord {
  ContainerId container;
  CommitInfo published;
  Epoch committed;
  Length floor;
  std::vector<std::pair<Epoch, Length>> cuts;
};

// --- checkpoints only ---

// Pieces that lie in stripes already.
struct StripeRecord {
  ContainerId container;
  std::optional<TxnId> txn;  // none: committed, as `epoch`
  Epoch epoch;
  std::vector<StripePart> parts;
};

// Numbers of records that a restart cannot vouch for: lost, or never given.
struct LostRecord {
  uint64_t first = 0;
  uint64_t end = 0;
};

using LogRecord =
    std::variant<BeginRecord, WriteRecord, TruncateRecord, CommitRecord, AbortRecord, PlacedRecord,
                 DrainedRecord, ForgetRecord, ContainerRecord, StripeRecord, LostRecord, TableRecord>;

// What every record carries besides.
struct RecordStamp {
  uint32_t generation = 0;  // of the log half
  uint64_t sequence = 0;    // one higher than the record before
  uint64_t durable = 0;     // every record up to this one was persisted when this one was appended
};

inline constexpr size_t kRecordHeaderBytes = 32;
inline constexpr size_t kRecordAlignBytes = 8;

// Bytes encode_record() needs, a multiple of kRecordAlignBytes.
size_t encoded_bytes(const LogRecord& record);
// Replaces `out` by the record's bytes.
void encode_record(const LogRecord& record, const RecordStamp& stamp, std::vector<std::byte>& out);

struct DecodedRecord {
  LogRecord record;
  RecordStamp stamp;
  size_t bytes = 0;
};

// The record at the start of `bytes`, which are hostile: kCorrupt when they hold none, or not all of it.
// Nothing that a record says is trusted further than its checksum and its own shape (lengths, counts, valid
// extents). The parts of a table are for read_part_table().
Result<DecodedRecord> decode_record(std::span<const std::byte> bytes);

// One line for a reader of a dump.
std::string describe(const LogRecord& record);

}  // namespace sluice::burst_buffer
