#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/types.h"
#include "burst_buffer/persist_domain.h"
#include "burst_buffer/slab_allocator.h"

// Who still needs a slab or a stripe: pieces of the stage index, and pins of readers.
//
// Both are counted by shared_ptr. A piece does not hold its bytes directly but through a Keeper: when the
// last piece of a record is gone the hold is *retired*, not dropped, because a crash could bring the record
// back as long as what replaced it is not durable. The hot tier drops retired holds when it is; with the last
// pin gone too, the bytes are free.
namespace sluice::burst_buffer {

class SlabPool;

// Something that must not be given away while this object lives.
class Hold {
 public:
  virtual ~Hold() = default;
};

// The bytes of one write record.
class SlabHold final : public Hold {
 public:
  SlabHold(Slab slab_, std::vector<uint32_t> checksums_, uint64_t record_, TxnId txn_)
      : slab(slab_), checksums(std::move(checksums_)), record(record_), txn(txn_) {}
  ~SlabHold() override;

  const Slab slab;
  const std::vector<uint32_t> checksums;
  const uint64_t record;
  const TxnId txn;
  // The drain was given committed bytes of it, and may be publishing the stripe it put them in.
  std::atomic<bool> offered{false};

 private:
  friend class SlabPool;
  std::shared_ptr<SlabPool> pool_;  // none while the log is replayed: nothing is given back then
};

// A stripe of the storage tier that pieces refer to.
class StripeHold final : public Hold {
 public:
  StripeHold(ContainerId container_, StripeId stripe_) : container(container_), stripe(stripe_) {}
  ~StripeHold() override;

  const ContainerId container;
  const StripeId stripe;

 private:
  friend class SlabPool;
  std::shared_ptr<SlabPool> pool_;
  bool offered_ = false;  // guarded by the pool's mutex
};

// Holds whose last piece is gone; and of the slabs that still have one, their records and bytes.
struct Retired {
  std::vector<std::shared_ptr<Hold>> holds;
  std::unordered_set<uint64_t> live_records;
  uint64_t live_bytes = 0;
};

// What pieces of one record share. Made and dropped under the hot tier's mutex; outlived by `retired`.
class Keeper {
 public:
  Keeper(std::shared_ptr<SlabHold> hold, Retired& retired)
      : bytes_(hold->slab.length.value), record_(hold->record), hold_(std::move(hold)), retired_(&retired) {
    retired_->live_bytes += bytes_;
    retired_->live_records.insert(record_);
  }
  // `in_table`: the pieces are parts of one table.
  Keeper(std::shared_ptr<StripeHold> hold, Retired& retired, bool in_table)
      : hold_(std::move(hold)), retired_(&retired), in_table_(in_table) {}
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() {
    retired_->live_bytes -= bytes_;
    retired_->live_records.erase(record_);
    retired_->holds.push_back(std::move(hold_));
  }
  const std::shared_ptr<Hold>& hold() const { return hold_; }
  bool in_table() const { return in_table_; }

 private:
  uint64_t bytes_ = 0;
  uint64_t record_ = 0;  // 0 belongs to no record
  std::shared_ptr<Hold> hold_;
  Retired* retired_;
  bool in_table_ = false;
};

// The data area: its free space and its holds. Thread-safe; lives until the last hold is gone, and keeps the
// mapping alive.
class SlabPool : public std::enable_shared_from_this<SlabPool> {
 public:
  SlabPool(std::shared_ptr<PersistDomain> domain, uint64_t data_offset, uint64_t data_bytes);

  std::optional<Slab> allocate(Length length);
  void free(const Slab& slab);
  // Takes what is free of this range.
  std::vector<Slab> claim(uint64_t begin, uint64_t end);
  // Where the data area begins in the domain's memory.
  uint64_t data_offset() const { return static_cast<uint64_t>(data_.data() - domain_->memory().data()); }
  std::span<std::byte> bytes(const Slab& slab) const;

  // From now on the slab (allocated already, or found in the log) is free when this hold dies.
  void adopt(const std::shared_ptr<SlabHold>& hold);
  // As adopt(), for a slab found in the log; false when it overlaps another.
  bool adopt_found(const std::shared_ptr<SlabHold>& hold);
  // The living hold of the slab that begins here; none when there is none.
  std::shared_ptr<SlabHold> hold_at(uint64_t slab_offset) const;

  // The one hold of a stripe; made when there is none.
  std::shared_ptr<StripeHold> stripe(ContainerId container, StripeId stripe);
  // The stripe may become part of a version that is being published: it is not dead before that is settled.
  void offered(StripeId stripe);
  // The same for a stripe that has no hold.
  void offered_unheld(ContainerId container, StripeId stripe);
  // No publication of this container is under way: what was offered for the last one is dead with its last
  // hold, as far as this tier is concerned.
  void settled(ContainerId container);
  std::set<StripeId> stripes_in_use() const;
  // Stripes that lost their last hold and are not offered; each is answered once.
  std::vector<StripeId> take_dead_stripes();
  bool has_dead_stripes() const;

  uint64_t capacity_bytes() const;
  uint64_t used_bytes() const;
  uint64_t largest_free_bytes() const;

 private:
  friend class SlabHold;
  friend class StripeHold;
  void released(const SlabHold& hold);
  void released(const StripeHold& hold);

  const std::shared_ptr<PersistDomain> domain_;
  const std::span<std::byte> data_;
  mutable std::mutex mutex_;
  SlabAllocator allocator_;
  std::unordered_map<uint64_t, std::weak_ptr<SlabHold>> holds_;
  std::unordered_map<StripeId, std::weak_ptr<StripeHold>> stripes_;
  std::vector<StripeId> dead_stripes_;
  std::map<ContainerId, std::vector<StripeId>> unsettled_;  // offered, and without a hold
};

}  // namespace sluice::burst_buffer
