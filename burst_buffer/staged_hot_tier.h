#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "burst_buffer/clean_cache.h"
#include "burst_buffer/hot_state.h"
#include "burst_buffer/hot_tier.h"
#include "burst_buffer/slab_pool.h"
#include "burst_buffer/staging_log.h"

// The hot tier behind hot_tier.h; included by its own sources only.
namespace sluice::burst_buffer {

struct HoldsPin final : Pin {
  std::vector<std::shared_ptr<Hold>> holds;
};

// Locks: log_mutex_ is held by everything that appends, through its flushes; state_mutex_ by everything that
// reads or changes the state, never through I/O. The first before the second. A holder of log_mutex_ may read
// what only appenders change (everything in state_ but Txn::dirty and Txn::retired) without the second.
class StagedHotTier final : public HotTier {
 public:
  StagedHotTier(Options options, std::shared_ptr<PersistDomain> domain, std::shared_ptr<SlabPool> pool,
                std::unique_ptr<HotState> state, StagingLog log, uint64_t last_record)
      : options_(std::move(options)),
        domain_(std::move(domain)),
        pool_(std::move(pool)),
        state_(std::move(state)),
        log_(std::move(log)),
        last_record_(last_record) {}

  Result<Slab> reserve(Length length) override;
  std::span<std::byte> bytes(const Slab& slab) override { return pool_->bytes(slab); }
  void cancel(const Slab& slab) override { pool_->free(slab); }
  std::vector<Slab> claim(uint64_t begin, uint64_t end) override { return pool_->claim(begin, end); }
  std::optional<SharedArea> shared_area() override;

  Result<> begin(TxnId txn, ContainerId container, SessionId session) override;
  Result<uint64_t> write(TxnId txn, std::span<const Extent> extents, const Slab& slab,
                         std::span<const uint32_t> checksums) override;
  Result<uint64_t> record(TxnId txn, std::span<const Extent> extents, const Slab& slab,
                          std::span<const uint32_t> checksums) override;
  bool appends_at_once() const override { return appends_at_once_; }
  Result<uint64_t> truncate(TxnId txn, Length size) override;
  Result<> abort(TxnId txn) override;
  Result<> persist() override;
  Result<CommitInfo> commit(TxnId txn) override;

  Result<View> view(ContainerId container, std::optional<TxnId> txn, Extent extent) override;
  Result<std::optional<View>> staged(ContainerId container, std::optional<TxnId> txn,
                                     std::span<const Extent> extents, Extent ahead,
                                     size_t most_segments) override;
  Standing standing(ContainerId container) override;
  void keep(ContainerId container, const Standing& then, std::span<const Extent> extents, const Slab& slab,
            std::vector<uint32_t> checksums) override;
  void damaged(ContainerId container, const Segment& segment) override;
  Length size(ContainerId container, std::optional<TxnId> txn, Length published) override;
  Epoch committed(ContainerId container, Epoch published) override;
  uint64_t undrained_bytes(ContainerId container) override;
  uint64_t unpublished_bytes() override;
  std::vector<TransactionInfo> open_transactions() override;
  bool survived(uint64_t record) override;
  uint64_t last_record() override { return last_record_.load(std::memory_order_acquire); }
  Result<> verify(const DrainWork::Piece& piece) override;

  std::vector<ContainerId> undrained() override;
  DrainWork drain_work(ContainerId container, bool include_open) override;
  Result<std::vector<StripeId>> placed(ContainerId container, std::span<const PlacedPiece> pieces) override;
  Result<> drained(ContainerId container, Epoch epoch) override;
  Result<Epoch> reconcile(ContainerId container) override;
  Result<std::vector<StripeId>> forget(ContainerId container) override;
  std::set<StripeId> stripes_in_use() override { return pool_->stripes_in_use(); }

  Usage usage() override;

 private:
  // --- under state_mutex_ ---
  std::vector<StagedSegment> look_up(ContainerId container, std::optional<TxnId> txn, Extent extent) const;
  // What it refers to stays as long as the pin does.
  Segment hold_staged(const StagedSegment& found, HoldsPin& pin) const;
  // What this record, about to be applied, means for what is kept clean.
  void keep_clean(const LogRecord& record);
  void keep_clean(ContainerId container, Extent extent, const StagedPiece& piece);
  // Nothing of it is kept, nor is what is being read from the storage tier now.
  void forget_clean(ContainerId container);
  // The log needs these no more.
  void let_go(std::vector<std::shared_ptr<Hold>> holds);
  Epoch committed_locked(ContainerId container, Epoch published) const;
  Standing standing_locked(ContainerId container) const {
    return {committed_locked(container, Epoch(0)), removals_};
  }
  Result<> admit();  // any thread

  // --- under log_mutex_ ---
  Error broken(Error error);
  Result<> make_room(size_t bytes, StagingLog::Room room);
  Result<> checkpoint();
  Result<> persist_log();
  // The state after a record that was just appended. What it replaced is retired to its transaction, or
  // dropped when the record is durable already.
  void apply_open(const LogRecord& record, TxnId txn);
  void apply_durable(const LogRecord& record);
  Result<> append_durable(const LogRecord& record, StagingLog::Room room);
  Result<> drained_locked(ContainerId container, CommitInfo published);
  Result<uint64_t> write_locked(TxnId txn, std::span<const Extent> extents, const Slab& slab,
                                std::span<const uint32_t> checksums);
  Result<CommitInfo> commit_locked(TxnId txn);
  Result<> persist_placed(std::span<const PlacedRecord> records);
  enum class Need { kNone, kByPublication, kByRecord };
  using Replaced = std::vector<std::shared_ptr<Hold>>;  // not free before what replaced it is durable
  Result<> append_placed(const PlacedRecord& placed, Replaced& replaced, std::map<StripeId, Need>& needed);
  Result<> append_placed(const LogRecord& record, Replaced& replaced);
  // A table of the parts; nothing when there is no slab for it.
  Result<std::optional<TableRecord>> make_table(const PlacedRecord& placed);
  // What of these pieces is still there to be recorded; and which of their stripes the publication of this
  // round may name, whatever is recorded.
  std::vector<PlacedRecord> placed_records(ContainerId container, std::span<const PlacedPiece> pieces,
                                           std::map<StripeId, Need>& needed);

  // --- without log_mutex_ ---
  Result<> forget_container(ContainerId container);

  // --- with or without log_mutex_ ---
  // Gives up clean bytes for it.
  std::optional<Slab> allocate(Length length);
  // Slabs of this transaction, or of all, durable on return.
  Result<> persist_slabs(std::optional<TxnId> txn);
  Result<> not_found(TxnId txn) const;
  // The size of the published version, best known here.
  Length published_size(ContainerId container, Length told) const;

  const Options options_;
  const std::shared_ptr<PersistDomain> domain_;
  const std::shared_ptr<SlabPool> pool_;
  const bool appends_at_once_ = domain_->medium() != "disk";

  std::mutex log_mutex_;
  std::mutex state_mutex_;
  const std::unique_ptr<HotState> state_;
  uint64_t removals_ = 0;                         // state_mutex_
  CleanCache clean_{options_.least_clean_bytes};  // state_mutex_
  std::map<ContainerId, Epoch> offered_to_;       // the highest epoch given to the drain; state_mutex_
  std::optional<Error> broken_;                   // state_mutex_
  StagingLog log_;                                // log_mutex_
  std::vector<std::shared_ptr<Hold>> lost_;       // what a failed flush keeps from being free; log_mutex_
  std::atomic<bool> may_have_shrunk_{true};       // since the last checkpoint; changed under log_mutex_
  std::atomic<uint64_t> last_record_;
  std::atomic<bool> log_full_{false};
};

}  // namespace sluice::burst_buffer
