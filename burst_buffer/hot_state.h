#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/result.h"
#include "burst_buffer/log_record.h"
#include "burst_buffer/slab_pool.h"
#include "burst_buffer/stage_index.h"

namespace sluice::burst_buffer {

// So many restarts back it is known which numbers were lost.
inline constexpr size_t kMaxLostRanges = 64;

// The state of the hot tier as a function of its log: transactions, containers, and who needs which bytes.
// The same apply() serves the living tier and recovery. Not thread-safe; does no I/O.
class HotState {
 public:
  struct Dirty {
    uint64_t record = 0;
    Slab slab;
  };
  struct Txn {
    ContainerId container;
    SessionId session;
    uint64_t last_record = 0;
    std::vector<Dirty> dirty;                    // slabs not persisted yet, by record
    std::vector<std::shared_ptr<Hold>> retired;  // what its own later records replaced, see Retired
  };
  // Parts of a stripe that the log knows by their table.
  struct Table {
    TableRecord record;           // without its parts, as a checkpoint has it
    std::weak_ptr<Keeper> parts;  // expired: none of them is seen any more

    void cut(Length at) { record.cut = record.cut ? std::min(*record.cut, at) : at; }
  };
  struct Container {
    StageIndex index;
    CommitInfo published;               // the version below the index
    Epoch committed;                    // the newest
    std::vector<CommitRecord> commits;  // the answers given for epochs that are not published, by epoch
    std::vector<Table> tables;  // of one epoch, or transaction, in the order in which they were placed
  };

  // Without a pool: for replaying a log, holds give nothing back. With one: `loading` a checkpoint, whose
  // slabs are taken from the free space, until loaded() is called.
  explicit HotState(uint64_t data_bytes, std::shared_ptr<SlabPool> pool = nullptr);
  HotState(const HotState&) = delete;
  HotState& operator=(const HotState&) = delete;
  void loaded() { loading_ = false; }

  // Writes and truncations of this transaction from this record on are passed over in apply(): their bytes
  // did not survive.
  void cut_off(TxnId txn, uint64_t record) { cut_off_[txn] = record; }
  const std::map<TxnId, uint64_t>& cut_off() const { return cut_off_; }

  // The state after this record. kCorrupt, and nothing changed that matters, when it cannot follow the ones
  // before.
  Result<> apply(const LogRecord& record);

  // Records that lead from nothing to this state; tables without their parts.
  std::vector<LogRecord> live_records() const;
  // The log is nothing but live_records() now: slabs of other tables are free.
  void log_rewritten();
  // Bytes of the slabs that log_rewritten() would free.
  uint64_t spare_table_bytes() const;

  const Txn* txn(TxnId id) const;
  Txn* txn(TxnId id);
  const Container* container(ContainerId id) const;
  const std::map<TxnId, Txn>& txns() const { return txns_; }
  const std::map<ContainerId, Container>& containers() const { return containers_; }
  // The answer a commit got, while it is remembered.
  std::optional<CommitInfo> remembered(TxnId id) const;
  // The published version of a container, as far as it was ever heard here.
  std::optional<CommitInfo> published(ContainerId id) const;
  // What committing this open transaction now gives.
  CommitInfo next_commit(TxnId id) const;
  // Size of an unpublished (or the published) epoch; nothing when it is not known.
  std::optional<Length> size_at(const Container& container, Epoch epoch) const;

  // Whether a number is not among those that a restart could not vouch for.
  bool vouched(uint64_t record) const;

  Retired& retired() { return retired_; }
  uint64_t live_bytes() const { return retired_.live_bytes; }
  // Whether bytes of this write are still seen in the hot tier by anybody.
  bool is_live(uint64_t record) const { return retired_.live_records.contains(record); }

 private:
  Result<> on(const BeginRecord& r);
  Result<> on(const WriteRecord& r);
  Result<> on(const TruncateRecord& r);
  Result<> on(const CommitRecord& r);
  Result<> on(const AbortRecord& r);
  Result<> on(const PlacedRecord& r);
  Result<> on(const DrainedRecord& r);
  Result<> on(const ForgetRecord& r);
  Result<> on(const ContainerRecord& r);
  Result<> on(const StripeRecord& r);
  Result<> on(const LostRecord& r);
  Result<> on(const TableRecord& r);

  bool is_cut_off(TxnId txn, uint64_t record) const;
  // Numbers of writes and truncations grow along the log.
  bool next_number(uint64_t record);
  Result<std::shared_ptr<Keeper>> keep_slab(const WriteRecord& r);
  std::shared_ptr<Keeper> keep_stripe(ContainerId container, StripeId stripe, bool in_table = false);
  Result<> keep_table(const TableRecord& r);
  template <class Keep>
  static void move_parts(Container& c, std::optional<TxnId> txn, const std::vector<StripePart>& parts,
                         Keep&& keep);
  // The transaction's tables become the epoch's; before its layer does.
  static void commit_tables(Container& c, const CommitRecord& r);
  std::set<uint64_t> live_tables() const;  // by where their slabs begin
  static void append_tables(const Container& c, std::vector<LogRecord>& records);
  // A container with nothing left in it is forgotten, but for what is published of it.
  void rest_if_idle(ContainerId id);

  const uint64_t data_bytes_;
  const std::shared_ptr<SlabPool> pool_;
  bool loading_ = true;  // or replaying
  uint64_t highest_record_ = 0;
  Retired retired_;  // before everything that has keepers
  std::map<ContainerId, Container> containers_;
  std::map<ContainerId, CommitInfo> resting_;
  std::map<TxnId, Txn> txns_;
  std::map<TxnId, CommitInfo> remembered_;
  std::vector<LostRecord> lost_;
  // Of every table that the log names, whether anything of it is seen or not: recovery reads them all.
  std::vector<std::shared_ptr<SlabHold>> table_slabs_;
  std::map<TxnId, uint64_t> cut_off_;
};

}  // namespace sluice::burst_buffer
