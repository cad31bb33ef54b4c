#include "storage/container.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "base/assert.h"
#include "base/log.h"

namespace sluice::storage {

Error Container::removed_error() const {
  return {ErrorCode::kNotFound, info_.attributes.path + " was removed"};
}

Result<> Container::load() {
  {
    std::shared_lock shared(mutex_);
    if (removed_) return fail(removed_error());
    if (loaded_) return {};
  }
  std::lock_guard publishing(publish_mutex_);
  std::unique_lock exclusive(mutex_);
  if (removed_) return fail(removed_error());
  if (loaded_) return {};
  return load_locked(exclusive);
}

// After a publication whose outcome is unknown, the old version is still in manifest_: what it had and the
// newly loaded one has not is freed.
Result<> Container::load_locked(std::unique_lock<std::shared_mutex>& exclusive) {
  const auto info = metastore_.find(info_.id);
  if (!info) return fail(info.error());
  const auto encoded = metastore_.steps(info_.id);
  if (!encoded) return fail(encoded.error());
  Manifest fresh(info_.id);
  size_t extents = 0;
  for (const std::string& bytes : *encoded) {
    const auto step = decode_step(std::as_bytes(std::span(bytes)), info_.id);
    if (!step) return fail_with_context(info_.attributes.path, step.error());
    if (auto ok = fresh.check(*step); !ok) {
      return fail(ErrorCode::kCorrupt, fmt::format("{}: its manifest steps do not follow each other: {}",
                                                   info_.attributes.path, ok.error().message));
    }
    extents += step->extents.size();
    fresh.apply(*step);
  }
  if (fresh.epoch() != info->published || fresh.size() != info->size) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}: its manifest leads to version {}, its root is at {}", info_.attributes.path,
                            fresh.epoch().value, info->published.value));
  }
  for (const auto& record : fresh.stripes()) stripes_.refer(record);
  const Manifest old = std::exchange(manifest_, std::move(fresh));
  loaded_ = true;
  steps_ = encoded->size();
  step_extents_ = extents;
  exclusive.unlock();
  for (const auto& record : old.stripes()) {
    if (manifest_.stripe(record->id) == nullptr) stripes_.unrefer(record->id);
  }
  return {};
}

Result<std::vector<Container::ReadPiece>> Container::lookup(Extent extent) {
  // A failed publication may unload it between two looks.
  while (true) {
    if (auto ok = load(); !ok) return fail(ok.error());
    std::shared_lock shared(mutex_);
    if (removed_) return fail(removed_error());
    if (!loaded_) continue;
    std::vector<ReadPiece> pieces;
    for (const PlacedExtent& placed : manifest_.lookup(extent)) {
      auto found = stripes_.pin(placed.place.stripe);
      SLUICE_ASSERT(found.presence == StripeTable::Presence::kPinned);
      pieces.push_back({placed, std::move(found.pin)});
    }
    return pieces;
  }
}

Result<std::vector<PlacedExtent>> Container::layout() {
  if (auto ok = load(); !ok) return fail(ok.error());
  std::shared_lock shared(mutex_);
  return manifest_.lookup({Offset(0), Offset(kMaxFileBytes)});
}

std::vector<StripeTable::RecordPtr> Container::stripes() {
  std::shared_lock shared(mutex_);
  return manifest_.stripes();
}

ManifestStep Container::step_of(const Publication& step, const std::vector<StripeTable::Pin>& pins) const {
  ManifestStep encoded;
  encoded.from = step.from;
  encoded.to = step.to;
  encoded.cut = step.cut;
  encoded.size = step.size;
  encoded.extents = coalesced(step.extents);
  std::set<StripeId> named;
  for (const StripeTable::Pin& pin : pins) {
    if (manifest_.stripe(pin.record().id) != nullptr || !named.insert(pin.record().id).second) continue;
    encoded.stripes.push_back(pin.record());
  }
  return encoded;
}

// Write ordering: the stripes are durable (place), they are counted as referred to, then the step and the
// root go into the metastore in one transaction, then readers go over, then what nobody refers to any more is
// removed. A crash before the transaction leaves orphans; one after it leaves the overwritten stripes as
// orphans.
Result<> Container::publish(const Publication& step, const std::vector<StripeTable::Pin>& pins,
                            uint64_t now_s) {
  std::lock_guard publishing(publish_mutex_);
  if (!loaded_) {
    std::unique_lock exclusive(mutex_);
    if (auto ok = load_locked(exclusive); !ok) return ok;
  }
  // Only this thread changes manifest_ while it has publish_mutex_.
  if (removed_) return fail(removed_error());
  if (manifest_.epoch() == step.to && step.from < step.to) return {};
  if (manifest_.epoch() != step.from) {
    return fail(ErrorCode::kConflict,
                fmt::format("the published version of {} is {}, not {}", info_.attributes.path,
                            manifest_.epoch().value, step.from.value));
  }
  const ManifestStep encoded = step_of(step, pins);
  if (auto ok = manifest_.check(encoded); !ok) return fail_with_context(info_.attributes.path, ok.error());

  std::vector<StripeId> newly_referred;
  for (const StripeTable::Pin& pin : pins) {
    if (stripes_.refer(pin.shared_record())) newly_referred.push_back(pin.record().id);
  }
  if (auto ok = advance(encoded, now_s); !ok) {
    if (!ok.error().outcome_unknown) {
      for (const StripeId id : newly_referred) stripes_.unrefer(id);
    }
    return ok;
  }
  std::vector<StripeTable::RecordPtr> freed;
  {
    std::unique_lock exclusive(mutex_);
    freed = manifest_.apply(encoded);
  }
  for (const StripeTable::Pin& pin : pins) {
    if (!step.still_held.contains(pin.record().id)) stripes_.discard(pin.record().id);
  }
  for (const auto& record : freed) stripes_.unrefer(record->id);
  ++steps_;
  step_extents_ += encoded.extents.size();
  aggregate_if_due();
  return {};
}

// The metastore's transaction. When it fails, the root tells whether it did.
Result<> Container::advance(const ManifestStep& step, uint64_t now_s) {
  auto advanced = metastore_.advance(info_.id, step.from, step.to, step.size, encode_step(step), now_s);
  if (advanced) return advanced;
  const auto info = metastore_.find(info_.id);
  if (info && info->published == step.to) return {};
  if (info && info->published == step.from)
    return fail_with_context("publish " + info_.attributes.path, advanced.error());
  std::unique_lock exclusive(mutex_);
  loaded_ = false;  // looked up again by whoever comes next
  Error error = advanced.error();
  error.mark_outcome_unknown();
  return fail_with_context("publish " + info_.attributes.path, std::move(error));
}

void Container::aggregate_if_due() {
  if (steps_ <= kAggregateSteps) return;
  if (step_extents_ < manifest_.extent_count() && steps_ <= kMaxSteps) return;
  const ManifestStep merged = manifest_.merged();
  if (merged.extents.size() > kMaxStepExtents || merged.stripes.size() > kMaxStepStripes) return;
  const auto aggregated = metastore_.aggregate(info_.id, merged.to, encode_step(merged));
  if (!aggregated) {
    // Nothing is lost but time at the next load. Not tried again at each step.
    log::warn("the {} manifest steps of {} could not be merged: {}", steps_, info_.attributes.path,
              aggregated.error().message);
  }
  steps_ = aggregated ? 1 : 0;
  step_extents_ = 0;
}

Result<> Container::remove() {
  std::lock_guard publishing(publish_mutex_);
  if (!loaded_ && !removed_) {
    std::unique_lock exclusive(mutex_);
    // A container whose manifest cannot be read can still be removed; its stripes are orphans then.
    if (auto ok = load_locked(exclusive); !ok) log::warn("{}", ok.error().message);
  }
  if (removed_) return fail(removed_error());
  if (auto removed = metastore_.remove(info_.id); !removed) {
    const auto info = metastore_.find(info_.id);
    const bool gone = !info && info.error().code == ErrorCode::kNotFound;
    if (!gone) return removed;
  }
  std::vector<StripeTable::RecordPtr> stripes;
  {
    std::unique_lock exclusive(mutex_);
    removed_ = true;
    stripes = manifest_.stripes();
  }
  for (const auto& record : stripes) stripes_.unrefer(record->id);
  return {};
}

}  // namespace sluice::storage
