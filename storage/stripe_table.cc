#include "storage/stripe_table.h"

#include <vector>

#include "base/assert.h"

namespace sluice::storage {

StripeTable::Lookup StripeTable::pin(StripeId id) {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(id);
  if (at == entries_.end()) return {Presence::kUnknown, {}};
  Entry& entry = at->second;
  if (entry.doomed || entry.record == nullptr) return {Presence::kGone, {}};
  ++entry.pins;
  return {Presence::kPinned, Pin(this, entry.record)};
}

void StripeTable::unpin(StripeId id) {
  RecordPtr doomed;
  {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(id);
    SLUICE_ASSERT(entry.pins > 0);
    --entry.pins;
    doomed = doom_if_free(entry);
  }
  if (doomed != nullptr) remove(doomed);
}

StripeTable::RecordPtr StripeTable::doom_if_free(Entry& entry) {
  if (entry.referred || entry.held || entry.record == nullptr) return nullptr;
  entry.doomed = true;
  if (entry.pins > 0 || entry.removing) return nullptr;
  entry.removing = true;
  return entry.record;
}

void StripeTable::remove(const RecordPtr& record) {
  const bool removed = remover_(*record);
  std::lock_guard lock(mutex_);
  // What is left of it must not be found again as a living stripe.
  if (removed) {
    entries_.erase(record->id);
  } else {
    entries_.at(record->id).removing = false;
  }
}

void StripeTable::writing(StripeId id) {
  std::lock_guard lock(mutex_);
  const bool is_new = entries_.try_emplace(id).second;
  SLUICE_ASSERT(is_new);
}

void StripeTable::written(RecordPtr record) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(record->id);
  SLUICE_ASSERT(entry.record == nullptr);
  entry.record = std::move(record);
  entry.held = true;
}

void StripeTable::abandoned(StripeId id) {
  std::lock_guard lock(mutex_);
  entries_.erase(id);
}

void StripeTable::found(RecordPtr record) {
  std::lock_guard lock(mutex_);
  const auto [at, is_new] = entries_.try_emplace(record->id);
  if (!is_new) return;
  at->second.record = std::move(record);
  at->second.held = true;
}

bool StripeTable::refer(const RecordPtr& record) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[record->id];
  SLUICE_ASSERT(!entry.doomed);
  // The published record knows the places of shards that could not be seen when the stripe was found.
  if (entry.record == nullptr || !entry.referred) entry.record = record;
  return !std::exchange(entry.referred, true);
}

void StripeTable::unrefer(StripeId id) {
  RecordPtr doomed;
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(id);
    if (at == entries_.end()) return;
    at->second.referred = false;
    doomed = doom_if_free(at->second);
  }
  if (doomed != nullptr) remove(doomed);
}

bool StripeTable::discard(StripeId id) {
  RecordPtr doomed;
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(id);
    if (at == entries_.end()) return false;
    at->second.held = false;
    doomed = doom_if_free(at->second);
  }
  if (doomed != nullptr) remove(doomed);
  return true;
}

void StripeTable::hold(StripeId id) {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(id);
  if (at != entries_.end() && !at->second.doomed) at->second.held = true;
}

bool StripeTable::known(StripeId id) {
  std::lock_guard lock(mutex_);
  return entries_.contains(id);
}

StripeTable::RecordPtr StripeTable::record(StripeId id) {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(id);
  return at == entries_.end() ? nullptr : at->second.record;
}

void StripeTable::remove_doomed() {
  std::vector<RecordPtr> doomed;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, entry] : entries_) {
      if (!entry.doomed || entry.pins > 0 || entry.removing) continue;
      entry.removing = true;
      doomed.push_back(entry.record);
    }
  }
  for (const RecordPtr& record : doomed) remove(record);
}

}  // namespace sluice::storage
