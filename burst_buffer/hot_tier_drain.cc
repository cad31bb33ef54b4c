#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "burst_buffer/part_table.h"
#include "burst_buffer/staged_hot_tier.h"

// The side of the hot tier that the drain sees.
namespace sluice::burst_buffer {
namespace {

using Room = StagingLog::Room;

// A placed record names at most this many parts, so that it fits in any log half.
constexpr size_t kMaxPartsPerRecord = 64;

}  // namespace

std::vector<ContainerId> StagedHotTier::undrained() {
  const std::lock_guard lock(state_mutex_);
  std::vector<ContainerId> found;
  for (const auto& [id, c] : state_->containers()) {
    if (c.published.epoch < c.committed) found.push_back(id);
  }
  return found;
}

DrainWork StagedHotTier::drain_work(ContainerId container, bool include_open) {
  auto pin = std::make_unique<HoldsPin>();
  DrainWork work;
  work.container = container;
  const std::lock_guard lock(state_mutex_);
  const HotState::Container* c = state_->container(container);
  if (c == nullptr) {
    const auto known = state_->published(container).value_or(CommitInfo{});
    work.from = work.to = known.epoch;
    work.size = known.size;
    work.pin = std::move(pin);
    return work;
  }
  work.from = c->published.epoch;
  work.to = c->committed;
  work.cut = c->index.cut();
  work.size = c->index.size(std::nullopt, c->published.size);
  const auto add = [&](Extent extent, const StagedPiece& piece, std::optional<TxnId> open) {
    const bool hot = piece.place.tier == StagedPlace::Tier::kHot;
    if (open && !hot) return;
    DrainWork::Piece& added = work.pieces.emplace_back(DrainWork::Piece{extent, piece.place, open, {}});
    if (hot) added.bytes = pool_->bytes({piece.place.where + piece.place.offset, extent.length()});
    if (!hot) pool_->offered(StripeId(piece.place.where));
    const auto& hold = static_cast<const Keeper*>(piece.keep.get())->hold();
    if (hot && !open) static_cast<SlabHold&>(*hold).offered = true;
    pin->holds.push_back(hold);
  };
  c->index.committed().for_each(
      [&](Extent extent, const StagedPiece& piece) { add(extent, piece, std::nullopt); });
  if (include_open) {
    for (const auto& [id, layer] : c->index.open_layers()) {
      layer.pieces.for_each(
          [&, txn = id](Extent extent, const StagedPiece& piece) { add(extent, piece, txn); });
    }
  }
  offered_to_[container] = std::max(offered_to_[container], work.to);
  work.pin = std::move(pin);
  return work;
}

std::vector<PlacedRecord> StagedHotTier::placed_records(ContainerId container,
                                                        std::span<const PlacedPiece> pieces,
                                                        std::map<StripeId, Need>& needed) {
  std::vector<PlacedRecord> records;
  const HotState::Container* c = state_->container(container);
  for (const PlacedPiece& piece : pieces) {
    Need& need = needed[piece.stripe];
    if (c == nullptr) continue;  // forgotten, or all of it aborted: no publication names it
    const auto hold = pool_->hold_at(piece.before.where);
    if (!hold || hold->record != piece.before.record || hold->offered) need = Need::kByPublication;
    if (!hold || hold->record != piece.before.record) continue;
    const bool open = c->index.is_open(hold->txn);
    const auto owner = open ? std::optional(hold->txn) : std::nullopt;
    for (const Extent part : c->index.hot_parts(owner, piece.extent, hold->record)) {
      // A table is of one stripe.
      const bool another = records.empty() || records.back().txn != owner ||
                           (owner ? records.back().parts.back().stripe != piece.stripe ||
                                        records.back().parts.size() == kMaxTableParts
                                  : records.back().parts.size() == kMaxPartsPerRecord);
      if (another) records.push_back({container, owner, {}});
      const uint64_t offset = piece.stripe_offset + (part.begin - piece.extent.begin).value;
      records.back().parts.push_back({part, hold->record, piece.stripe, offset});
    }
  }
  return records;
}

// A placed write may have given up the last bytes of its slab because later writes of its transaction cover
// the others. If their bytes could be lost, it would have to come back, so they are made durable before its
// slab is free.
Result<> StagedHotTier::persist_placed(std::span<const PlacedRecord> records) {
  for (size_t i = 0; i < records.size(); ++i) {
    const bool repeated = i > 0 && records[i].txn == records[i - 1].txn;
    if (!records[i].txn || repeated) continue;
    if (auto ok = persist_slabs(*records[i].txn); !ok) return ok;
  }
  return persist_log();
}

Result<std::optional<TableRecord>> StagedHotTier::make_table(const PlacedRecord& placed) {
  const std::vector<std::byte> table = encode_part_table(placed.parts);
  const auto slab = allocate(Length(table.size()));
  if (!slab) return std::optional<TableRecord>();
  const auto bytes = pool_->bytes(*slab);
  std::memcpy(bytes.data(), table.data(), table.size());
  if (auto ok = domain_->persist(bytes.data(), bytes.size()); !ok) return fail(broken(ok.error()));
  return std::optional(TableRecord{placed.container,
                                   placed.txn,
                                   Epoch(0),
                                   placed.parts.front().stripe,
                                   *slab,
                                   crc32c(bytes),
                                   static_cast<uint32_t>(placed.parts.size()),
                                   false,
                                   {},
                                   placed.parts});
}

Result<> StagedHotTier::append_placed(const LogRecord& record, Replaced& replaced) {
  if (auto ok = make_room(encoded_bytes(record), Room::kPlacing); !ok) return ok;
  log_.append(record);
  const std::lock_guard lock(state_mutex_);
  keep_clean(record);
  const auto applied = state_->apply(record);
  SLUICE_ASSERT(applied);
  auto& retired = state_->retired().holds;
  replaced.insert(replaced.end(), std::make_move_iterator(retired.begin()),
                  std::make_move_iterator(retired.end()));
  retired.clear();
  return {};
}

Result<> StagedHotTier::append_placed(const PlacedRecord& placed, Replaced& replaced,
                                      std::map<StripeId, Need>& needed) {
  if (placed.txn && placed.parts.size() > options_.most_parts_in_log) {
    auto table = make_table(placed);
    if (!table) return fail(table.error());
    if (*table) {
      const Slab slab = (*table)->slab;
      const auto ok = append_placed(LogRecord(std::move(**table)), replaced);
      if (ok) needed[placed.parts.front().stripe] = Need::kByRecord;
      if (!ok) pool_->free(slab);
      return ok;
    }
  }
  for (size_t first = 0; first < placed.parts.size(); first += kMaxPartsPerRecord) {
    const auto begin = placed.parts.begin() + static_cast<ptrdiff_t>(first);
    const size_t count = std::min(kMaxPartsPerRecord, placed.parts.size() - first);
    const PlacedRecord record{placed.container, placed.txn, {begin, begin + static_cast<ptrdiff_t>(count)}};
    if (auto ok = append_placed(LogRecord(record), replaced); !ok) return ok;
    for (const StripePart& part : record.parts) {
      needed[part.stripe] = Need::kByRecord;
      if (!record.txn) pool_->offered(part.stripe);
    }
  }
  return {};
}

Result<std::vector<StripeId>> StagedHotTier::placed(ContainerId container,
                                                    std::span<const PlacedPiece> pieces) {
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return fail(ok.error());
  std::map<StripeId, Need> needed;
  const std::vector<PlacedRecord> records = placed_records(container, pieces, needed);
  Replaced replaced;
  for (const PlacedRecord& record : records) {
    if (auto ok = append_placed(record, replaced, needed); !ok) {
      if (replaced.empty() || ok.error().code != ErrorCode::kNoSpace) return fail(ok.error());
      break;  // the rest stays hot
    }
  }
  if (!records.empty()) {
    may_have_shrunk_ = true;
    if (auto ok = persist_placed(records); !ok) {
      lost_.insert(lost_.end(), std::make_move_iterator(replaced.begin()),
                   std::make_move_iterator(replaced.end()));
      return fail(ok.error());
    }
  }
  {
    const std::lock_guard lock(state_mutex_);
    let_go(std::move(replaced));
  }
  std::vector<StripeId> dead = pool_->take_dead_stripes();
  for (const auto& [stripe, need] : needed) {
    if (need == Need::kNone) dead.push_back(stripe);
    if (need == Need::kByPublication) pool_->offered_unheld(container, stripe);
  }
  return dead;
}

Result<> StagedHotTier::drained(ContainerId container, Epoch epoch) {
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return ok;
  const auto known = state_->published(container);
  if (known && epoch <= known->epoch) return {};
  const HotState::Container* c = state_->container(container);
  if (c == nullptr) {
    return fail(ErrorCode::kNotFound,
                fmt::format("container {} has nothing in the hot tier", container.value));
  }
  const auto size = state_->size_at(*c, epoch);
  if (!size) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("epoch {} of container {} was never committed here",
                                                         epoch.value, container.value));
  }
  return drained_locked(container, {epoch, *size});
}

Result<> StagedHotTier::drained_locked(ContainerId container, CommitInfo published) {
  if (auto ok = append_durable(DrainedRecord{container, published}, Room::kEnding); !ok) return ok;
  pool_->settled(container);
  return {};
}

Result<Epoch> StagedHotTier::reconcile(ContainerId container) {
  std::optional<CommitInfo> told;
  if (options_.published) {
    auto answer = options_.published(container);
    if (!answer) return fail(answer.error());
    told = *answer;
  }
  if (!told && options_.published) {
    if (auto ok = forget_container(container); !ok) return fail(ok.error());
    return fail(ErrorCode::kNotFound, fmt::format("container {} was removed", container.value));
  }
  if (!told) {
    Error error(ErrorCode::kUnavailable,
                fmt::format("the published version of container {} is not known", container.value));
    return fail(error.mark_retryable());
  }
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return fail(ok.error());
  const HotState::Container* c = state_->container(container);
  if (c == nullptr || told->epoch <= c->published.epoch) return told->epoch;
  Epoch offered;
  {
    const std::lock_guard lock(state_mutex_);
    const auto found = offered_to_.find(container);
    if (found != offered_to_.end()) offered = found->second;
  }
  if (offered < told->epoch) {
    {
      const std::lock_guard lock(state_mutex_);
      forget_clean(container);
    }
    return fail(ErrorCode::kConflict,
                fmt::format("epoch {} of container {} was published, but not by this hot tier",
                            told->epoch.value, container.value));
  }
  if (auto ok = drained_locked(container, *told); !ok) return fail(ok.error());
  return told->epoch;
}

Result<> StagedHotTier::forget_container(ContainerId container) {
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return ok;
  if (state_->container(container) == nullptr) {
    apply_durable(ForgetRecord{container});  // nothing of it is in the log
  } else if (auto ok = append_durable(ForgetRecord{container}, Room::kEnding); !ok) {
    return ok;
  }
  pool_->settled(container);
  const std::lock_guard lock(state_mutex_);
  offered_to_.erase(container);
  return {};
}

Result<std::vector<StripeId>> StagedHotTier::forget(ContainerId container) {
  if (auto ok = forget_container(container); !ok) return fail(ok.error());
  return pool_->take_dead_stripes();
}

}  // namespace sluice::burst_buffer
