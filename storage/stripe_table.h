#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/types.h"
#include "storage/stripe.h"

namespace sluice::storage {

// Which stripes are alive, and why: a published version refers to it, whoever placed it holds it, or somebody
// reads it. A stripe that neither is referred to nor held is doomed: it is gone for new readers, and its
// shards are removed when the last pin is let go. Thread-safe; never calls the remover under its lock.
class StripeTable {
 public:
  using RecordPtr = std::shared_ptr<const StripeRecord>;
  // Removes the shards; true when none is left on any target that can be reached. What could not be removed
  // stays doomed.
  using Remover = std::function<bool(const StripeRecord&)>;

  explicit StripeTable(Remover remover) : remover_(std::move(remover)) {}

  // Keeps a stripe's shards where they are. Move-only; must not outlive the table.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept
        : table_(std::exchange(other.table_, nullptr)), record_(std::move(other.record_)) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(record_, other.record_);
      return *this;
    }
    ~Pin() {
      if (table_ != nullptr) table_->unpin(record_->id);
    }
    explicit operator bool() const { return record_ != nullptr; }
    const StripeRecord& record() const { return *record_; }
    const RecordPtr& shared_record() const { return record_; }

   private:
    friend class StripeTable;
    Pin(StripeTable* table, RecordPtr record) : table_(table), record_(std::move(record)) {}
    StripeTable* table_ = nullptr;
    RecordPtr record_;
  };

  enum class Presence { kPinned, kGone, kUnknown };
  struct Lookup {
    Presence presence = Presence::kUnknown;
    Pin pin;
  };
  Lookup pin(StripeId id);

  // A stripe is about to be written: an orphan collection leaves it alone. Then either written(), or
  // abandoned() when its shards are removed already.
  void writing(StripeId id);
  void written(RecordPtr record);
  void abandoned(StripeId id);

  // A stripe of an earlier run was found on the targets: whoever placed it may still want it. Known ones stay
  // as they are.
  void found(RecordPtr record);

  // A published version refers to it, from now on. Answers false when one did before. A doomed one must not
  // be referred to.
  bool refer(const RecordPtr& record);
  // No published version refers to it any more.
  void unrefer(StripeId id);
  // Its placer gives it up. Answers false for a stripe that is not known.
  bool discard(StripeId id);
  // The placer still wants this one of an earlier run.
  void hold(StripeId id);

  // Not an orphan?
  bool known(StripeId id);
  // Nothing when it is not known, or being written.
  RecordPtr record(StripeId id);
  // Tries again what could not be removed.
  void remove_doomed();

 private:
  struct Entry {
    RecordPtr record;  // none while it is being written
    uint64_t pins = 0;
    bool referred = false;
    bool held = false;
    bool doomed = false;
    bool removing = false;
  };
  using Entries = std::unordered_map<StripeId, Entry>;

  void unpin(StripeId id);
  // Dooms the entry when nothing keeps it; answers it when its shards are to be removed now.
  RecordPtr doom_if_free(Entry& entry);
  void remove(const RecordPtr& record);

  Remover remover_;
  std::mutex mutex_;
  Entries entries_;
};

}  // namespace sluice::storage
