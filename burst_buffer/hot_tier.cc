#include "burst_buffer/hot_tier.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/log.h"
#include "burst_buffer/staged_hot_tier.h"

// Writing and reading.
namespace sluice::burst_buffer {

using Room = StagingLog::Room;

namespace {

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 10 * 1024 * 1024) return fmt::format("{} MiB", bytes / (1024 * 1024));
  if (bytes >= 10 * 1024) return fmt::format("{} KiB", bytes / 1024);
  return fmt::format("{} bytes", bytes);
}

}  // namespace

Result<> StagedHotTier::not_found(TxnId txn) const {
  return fail(ErrorCode::kNotFound,
              fmt::format("transaction {} is not open in the hot tier {}", txn.value, options_.path));
}

Result<> StagedHotTier::admit() {
  const std::lock_guard lock(state_mutex_);
  if (broken_) return fail(*broken_);
  return {};
}

Error StagedHotTier::broken(Error error) {
  const std::lock_guard lock(state_mutex_);
  if (!broken_) {
    error.code = ErrorCode::kIo;
    error.retryable = false;
    error.message = fmt::format(
        "the hot tier {} takes no changes since a flush failed ({}); check the medium and restart the server",
        options_.path, error.message);
    log::error("{}", error.message);
    broken_ = error;
  }
  return *broken_;
}

Result<> StagedHotTier::persist_slabs(std::optional<TxnId> only) {
  std::vector<std::pair<TxnId, uint64_t>> up_to;
  std::vector<std::span<const std::byte>> ranges;
  {
    const std::lock_guard lock(state_mutex_);
    for (const auto& [id, txn] : state_->txns()) {
      if ((only && id != *only) || txn.dirty.empty()) continue;
      up_to.emplace_back(id, txn.dirty.back().record);
      // What later records of the transaction cover is needed no more when they are durable.
      for (const HotState::Dirty& dirty : txn.dirty) {
        if (state_->is_live(dirty.record)) ranges.push_back(pool_->bytes(dirty.slab));
      }
    }
  }
  if (up_to.empty()) return {};
  if (auto ok = domain_->persist_all(std::move(ranges)); !ok) return fail(broken(ok.error()));
  const std::lock_guard lock(state_mutex_);
  for (const auto& [id, record] : up_to) {
    if (HotState::Txn* txn = state_->txn(id)) {
      std::erase_if(txn->dirty,
                    [last = record](const HotState::Dirty& dirty) { return dirty.record <= last; });
    }
  }
  return {};
}

Result<> StagedHotTier::persist_log() {
  if (auto ok = log_.persist(); !ok) return fail(broken(ok.error()));
  return {};
}

Result<> StagedHotTier::checkpoint() {
  const std::vector<LogRecord> live = state_->live_records();
  if (!log_.fits(live)) return {};
  if (auto ok = persist_slabs(std::nullopt); !ok) return ok;
  if (auto ok = log_.checkpoint(live); !ok) return fail(broken(ok.error()));
  may_have_shrunk_ = false;
  std::vector<std::shared_ptr<Hold>> free_now;
  const std::lock_guard lock(state_mutex_);
  for (const auto& [id, txn] : state_->txns()) std::exchange(state_->txn(id)->retired, {}).swap(free_now);
  state_->log_rewritten();
  return {};
}

Result<> StagedHotTier::make_room(size_t bytes, Room room) {
  if (room == Room::kGrowing) log_full_ = false;
  if (log_.admits(bytes, room)) return {};
  if (!log_.ever_admits(bytes, room)) {
    return fail(
        ErrorCode::kTooLarge,
        fmt::format("a record of {} bytes does not fit in the staging log of the hot tier {}; write fewer "
                    "pieces at a time, or make a pool with a larger --hot-size",
                    bytes, options_.path));
  }
  // A checkpoint costs as much as the log holds: only when something went away, or enough came to pay for it.
  if (may_have_shrunk_ || log_.appended_bytes() > log_.capacity_bytes() / 16) {
    if (auto ok = checkpoint(); !ok) return ok;
  }
  if (log_.admits(bytes, room)) return {};
  log_full_ = log_full_ || room == Room::kGrowing;
  Error error(
      ErrorCode::kNoSpace,
      fmt::format(
          "the staging log of the hot tier {} is full ({} of {} bytes name live writes); wait for the drain, "
          "or make a pool with a larger --hot-size",
          options_.path, log_.used_bytes(), log_.capacity_bytes()));
  return fail(error.mark_retryable());
}

void StagedHotTier::apply_open(const LogRecord& record, TxnId txn) {
  const std::lock_guard lock(state_mutex_);
  const auto applied = state_->apply(record);
  SLUICE_ASSERT(applied);
  if (options_.on_change) options_.on_change(state_->txn(txn)->container);
  auto& retired = state_->retired().holds;
  auto& kept = state_->txn(txn)->retired;
  kept.insert(kept.end(), std::make_move_iterator(retired.begin()), std::make_move_iterator(retired.end()));
  retired.clear();
}

void StagedHotTier::apply_durable(const LogRecord& record) {
  const std::lock_guard lock(state_mutex_);
  std::optional<ContainerId> changed;
  if (const auto* commit = std::get_if<CommitRecord>(&record)) changed = commit->container;
  if (const auto* abort = std::get_if<AbortRecord>(&record)) changed = state_->txn(abort->txn)->container;
  keep_clean(record);
  const auto applied = state_->apply(record);
  SLUICE_ASSERT(applied);
  if (changed && options_.on_change) options_.on_change(*changed);
  let_go(std::exchange(state_->retired().holds, {}));
  may_have_shrunk_ = true;
}

void StagedHotTier::keep_clean(const LogRecord& record) {
  if (const auto* commit = std::get_if<CommitRecord>(&record)) {
    const HotState::Container& c = *state_->container(commit->container);
    const StageLayer& layer = c.index.layer(commit->txn);
    if (layer.cut) clean_.cut(commit->container, *layer.cut);
    layer.pieces.for_each(
        [&](Extent extent, const StagedPiece&) { clean_.changed(commit->container, extent); });
  } else if (const auto* placed = std::get_if<PlacedRecord>(&record); placed != nullptr && !placed->txn) {
    const HotState::Container& c = *state_->container(placed->container);
    for (const StripePart& part : placed->parts) {
      for (const auto& [extent, piece] : c.index.committed().lookup(part.extent)) {
        if (piece.place.record == part.record) keep_clean(placed->container, extent, piece);
      }
    }
  } else if (const auto* drained = std::get_if<DrainedRecord>(&record)) {
    const HotState::Container& c = *state_->container(drained->container);
    c.index.committed().for_each([&](Extent extent, const StagedPiece& piece) {
      if (piece.epoch <= drained->published.epoch) keep_clean(drained->container, extent, piece);
    });
  } else if (const auto* forget = std::get_if<ForgetRecord>(&record)) {
    forget_clean(forget->container);
  }
}

void StagedHotTier::forget_clean(ContainerId container) {
  clean_.forget(container);
  ++removals_;
}

void StagedHotTier::keep_clean(ContainerId container, Extent extent, const StagedPiece& piece) {
  if (piece.place.tier != StagedPlace::Tier::kHot || extent.length().value < options_.least_clean_bytes)
    return;
  const auto& hold = static_cast<const Keeper*>(piece.keep.get())->hold();
  clean_.keep(container, extent, std::static_pointer_cast<SlabHold>(hold), piece.place.offset);
}

void StagedHotTier::let_go(std::vector<std::shared_ptr<Hold>> holds) {
  for (const auto& hold : holds) {
    if (const auto* slab = dynamic_cast<const SlabHold*>(hold.get())) clean_.spare(*slab);
  }
}

Result<> StagedHotTier::append_durable(const LogRecord& record, Room room) {
  if (auto ok = make_room(encoded_bytes(record), room); !ok) return ok;
  log_.append(record);
  if (auto ok = persist_log(); !ok) return ok;
  apply_durable(record);
  return {};
}

// --- writing ---

std::optional<Slab> StagedHotTier::allocate(Length length) {
  if (auto slab = pool_->allocate(length)) return slab;
  const std::lock_guard lock(state_mutex_);
  while (clean_.give_up_one()) {
    if (auto slab = pool_->allocate(length)) return slab;
  }
  return std::nullopt;
}

Result<Slab> StagedHotTier::reserve(Length length) {
  if (length.value == 0) return fail(ErrorCode::kInvalidArgument, "a slab of no bytes cannot be reserved");
  if (length.value > pool_->capacity_bytes()) {
    return fail(
        ErrorCode::kTooLarge,
        fmt::format(
            "{} at once do not fit in the hot tier {} of {}; write less at a time, or make a pool with a "
            "larger --hot-size",
            bytes_text(length.value), options_.path, bytes_text(pool_->capacity_bytes())));
  }
  if (auto ok = admit(); !ok) return fail(ok.error());
  if (auto slab = allocate(length)) return *slab;
  // Bytes that open transactions overwrote are only free when what overwrote them is durable.
  bool reclaimable = false;
  bool spare_tables = false;
  {
    const std::lock_guard lock(state_mutex_);
    for (const auto& [id, txn] : state_->txns()) reclaimable = reclaimable || !txn.retired.empty();
    spare_tables = state_->spare_table_bytes() > 0;
  }
  if (spare_tables) {
    const std::lock_guard log_lock(log_mutex_);
    if (auto ok = checkpoint(); !ok) return fail(ok.error());
    if (auto slab = allocate(length)) return *slab;
  }
  if (reclaimable) {
    if (auto ok = persist(); !ok) return fail(ok.error());
    if (auto slab = allocate(length)) return *slab;
  }
  const Usage now = usage();
  Error error(ErrorCode::kNoSpace, fmt::format("the hot tier has no room for {}, and {} wait for the drain",
                                               bytes_text(length.value), bytes_text(now.bytes_undrained)));
  return fail(error.mark_retryable());
}

Result<> StagedHotTier::begin(TxnId txn, ContainerId container, SessionId session) {
  if (txn.value == UINT64_MAX) return fail(ErrorCode::kInvalidArgument, "that number is no transaction's");
  std::optional<CommitInfo> published = CommitInfo{};
  if (options_.published) {
    bool known = false;
    {
      const std::lock_guard lock(state_mutex_);
      known = state_->published(container).has_value();
    }
    if (!known) {
      auto told = options_.published(container);
      if (!told) return fail(told.error());
      published = *told;
    }
  }
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return ok;
  if (state_->txn(txn) != nullptr || state_->remembered(txn)) {
    return fail(ErrorCode::kExists, fmt::format("transaction {} was begun already", txn.value));
  }
  const BeginRecord record{txn, container, session, 0, {}, Length(0)};
  std::optional<ContainerRecord> introduction;
  if (state_->container(container) == nullptr) {
    if (const auto known = state_->published(container)) published = known;
    if (!published) {
      return fail(ErrorCode::kNotFound, fmt::format("container {} does not exist", container.value));
    }
    introduction = ContainerRecord{container, *published, published->epoch, Length(0), {}};
  }
  // Room for both at once: a checkpoint between them would leave out a container that holds nothing.
  const size_t bytes = encoded_bytes(record) + (introduction ? encoded_bytes(*introduction) : 0);
  if (auto ok = make_room(bytes, Room::kGrowing); !ok) return ok;
  if (introduction) {
    log_.append(*introduction);
    const std::lock_guard lock(state_mutex_);
    const auto applied = state_->apply(*introduction);
    SLUICE_ASSERT(applied);
  }
  log_.append(record);
  apply_open(record, txn);
  return {};
}

Result<uint64_t> StagedHotTier::write(TxnId txn, std::span<const Extent> extents, const Slab& slab,
                                      std::span<const uint32_t> checksums) {
  const std::lock_guard log_lock(log_mutex_);
  auto written = write_locked(txn, extents, slab, checksums);
  if (!written) pool_->free(slab);
  return written;
}

Result<uint64_t> StagedHotTier::record(TxnId txn, std::span<const Extent> extents, const Slab& slab,
                                       std::span<const uint32_t> checksums) {
  const std::lock_guard log_lock(log_mutex_);
  return write_locked(txn, extents, slab, checksums);
}

std::optional<HotTier::SharedArea> StagedHotTier::shared_area() {
  const auto backing = domain_->backing();
  if (!backing) return std::nullopt;
  return SharedArea{backing->path, backing->offset + pool_->data_offset(), pool_->capacity_bytes(),
                    backing->in_memory};
}

namespace {

// The parts of a write record, or what is wrong with the request.
Result<std::vector<SlabPart>> parts_of(std::span<const Extent> extents, const Slab& slab,
                                       std::span<const uint32_t> checksums) {
  if (extents.size() > kMaxRecordExtents) {
    return fail(ErrorCode::kTooLarge,
                fmt::format("a write of {} extents: one record holds {}", extents.size(), kMaxRecordExtents));
  }
  std::vector<SlabPart> parts;
  parts.reserve(extents.size());
  uint64_t offset = 0;
  for (const Extent& extent : extents) {
    if (!extent.valid() || extent.empty() || extent.length().value > slab.length.value - offset) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "extent [{}, {}) of a write is empty, beyond the largest file, or has no bytes in its slab",
              extent.begin.value, extent.end.value));
    }
    parts.push_back({extent, offset});
    offset += extent.length().value;
  }
  if (offset != slab.length.value) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a write has {} bytes for extents of {}", slab.length.value, offset));
  }
  if (checksums.size() != (slab.length.value + kChecksumBlockBytes - 1) / kChecksumBlockBytes) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("a write of {} bytes came with {} block checksums",
                                                         slab.length.value, checksums.size()));
  }
  return parts;
}

}  // namespace

Result<uint64_t> StagedHotTier::write_locked(TxnId txn, std::span<const Extent> extents, const Slab& slab,
                                             std::span<const uint32_t> checksums) {
  if (auto ok = admit(); !ok) return fail(ok.error());
  const HotState::Txn* open = std::as_const(*state_).txn(txn);
  if (open == nullptr) return fail(not_found(txn).error());
  auto parts = parts_of(extents, slab, checksums);
  if (!parts) return fail(parts.error());
  // One LogRecord all the way: converting it at each call would copy its lists.
  LogRecord record(WriteRecord{
      txn, open->container, Epoch(0), 0, slab, {checksums.begin(), checksums.end()}, std::move(*parts)});
  if (auto ok = make_room(encoded_bytes(record), Room::kGrowing); !ok) return fail(ok.error());
  const uint64_t number = log_.next_sequence();
  std::get<WriteRecord>(record).record = number;
  log_.append(record);
  apply_open(record, txn);
  last_record_.store(number, std::memory_order_release);
  return number;
}

Result<uint64_t> StagedHotTier::truncate(TxnId txn, Length size) {
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return fail(ok.error());
  if (state_->txn(txn) == nullptr) return fail(not_found(txn).error());
  if (size.value > kMaxFileBytes) {
    return fail(ErrorCode::kTooLarge,
                fmt::format("a size of {} bytes is beyond the largest file", size.value));
  }
  TruncateRecord record{txn, 0, size};
  if (auto ok = make_room(encoded_bytes(record), Room::kGrowing); !ok) return fail(ok.error());
  record.record = log_.next_sequence();
  log_.append(record);
  apply_open(record, txn);
  last_record_.store(record.record, std::memory_order_release);
  return record.record;
}

Result<> StagedHotTier::abort(TxnId txn) {
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return ok;
  if (state_->txn(txn) == nullptr) return not_found(txn);
  return append_durable(AbortRecord{txn}, Room::kEnding);
}

Result<> StagedHotTier::persist() {
  // The bulk without the log, so that other writers go on; then what came meanwhile.
  if (auto ok = persist_slabs(std::nullopt); !ok) return ok;
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return ok;
  if (auto ok = persist_slabs(std::nullopt); !ok) return ok;
  if (auto ok = persist_log(); !ok) return ok;
  const std::lock_guard lock(state_mutex_);
  for (const auto& [id, txn] : state_->txns()) state_->txn(id)->retired.clear();
  return {};
}

// Write ordering: the transaction's slabs are durable before its commit record is stored. The record itself
// needs no flush of its own: it counts only when every record before it is whole, so one flush of the log's
// tail decides. A crash before that leaves the transaction open, up to its last surviving record; after it,
// committed whole.
Result<CommitInfo> StagedHotTier::commit(TxnId txn) {
  if (auto ok = persist_slabs(txn); !ok) return fail(ok.error());
  const std::lock_guard log_lock(log_mutex_);
  if (auto ok = admit(); !ok) return fail(ok.error());
  if (const auto answered = state_->remembered(txn)) return *answered;
  if (state_->txn(txn) == nullptr) return fail(not_found(txn).error());
  return commit_locked(txn);
}

Result<CommitInfo> StagedHotTier::commit_locked(TxnId txn) {
  if (auto ok = persist_slabs(txn); !ok) return fail(ok.error());
  const CommitInfo info = state_->next_commit(txn);
  const ContainerId container = state_->txn(txn)->container;
  const CommitRecord record{txn, container, info.epoch, info.size, false};
  if (auto ok = make_room(encoded_bytes(record), Room::kEnding); !ok) return fail(ok.error());
  const bool empty = info.epoch == state_->container(container)->committed;
  if (empty) {
    // Nothing becomes visible, so nothing has to be durable: lost in a crash, it is an empty open transaction
    // again.
    log_.append(record);
    apply_durable(record);
    return info;
  }
  log_.append(record);
  if (auto ok = persist_log(); !ok) {
    Error error = ok.error();
    return fail(error.mark_outcome_unknown());
  }
  apply_durable(record);
  return info;
}

// --- reading ---

Result<View> StagedHotTier::view(ContainerId container, std::optional<TxnId> txn, Extent extent) {
  if (!extent.valid())
    return fail(ErrorCode::kInvalidArgument, "the extent to read is backwards or beyond the largest file");
  View view;
  auto pin = std::make_unique<HoldsPin>();
  const std::lock_guard lock(state_mutex_);
  if (txn) {
    const HotState::Txn* open = std::as_const(*state_).txn(*txn);
    if (open == nullptr || open->container != container) return fail(not_found(*txn).error());
  }
  for (const StagedSegment& found : look_up(container, txn, extent))
    view.segments.push_back(hold_staged(found, *pin));
  view.pin = std::move(pin);
  return view;
}

std::vector<StagedSegment> StagedHotTier::look_up(ContainerId container, std::optional<TxnId> txn,
                                                  Extent extent) const {
  std::vector<StagedSegment> found;
  if (const HotState::Container* c = state_->container(container)) {
    found = c->index.lookup(txn, extent);
  } else if (!extent.empty()) {
    found.push_back({extent, Segment::Kind::kBelow, {}, {}});
  }
  return clean_.fill_in(container, std::move(found));
}

Segment StagedHotTier::hold_staged(const StagedSegment& found, HoldsPin& pin) const {
  const StagedPlace& place = found.piece.place;
  Segment segment{found.extent, found.kind, {}, {}, 0};
  if (found.kind == Segment::Kind::kStripe) {
    segment.stripe = StripeId(place.where);
    segment.stripe_offset = place.offset;
  }
  auto hold = found.clean;
  if (found.piece.keep) hold = static_cast<const Keeper*>(found.piece.keep.get())->hold();
  if (found.kind == Segment::Kind::kBytes) {
    const auto& slab = static_cast<const SlabHold&>(*hold);
    segment.area_offset = place.where + place.offset;
    segment.bytes = pool_->bytes({segment.area_offset, found.extent.length()});
    segment.in_slab = place.offset;
    segment.slab_length = slab.slab.length.value;
    segment.checksums = slab.checksums;
    segment.clean = found.clean != nullptr;
  }
  if (hold) pin.holds.push_back(std::move(hold));
  return segment;
}

Result<std::optional<View>> StagedHotTier::staged(ContainerId container, std::optional<TxnId> txn,
                                                  std::span<const Extent> extents, Extent ahead,
                                                  size_t most_segments) {
  const auto in_hot_tier = [](const StagedSegment& found) { return found.kind == Segment::Kind::kBytes; };
  auto pin = std::make_unique<HoldsPin>();
  View view;
  const std::lock_guard lock(state_mutex_);
  if (txn) {
    const HotState::Txn* open = std::as_const(*state_).txn(*txn);
    if (open == nullptr) txn.reset();
    if (open != nullptr && open->container != container) return fail(not_found(*txn).error());
  }
  for (const Extent& extent : extents) {
    for (const StagedSegment& found : look_up(container, txn, extent)) {
      if (!in_hot_tier(found)) return std::optional<View>();
      view.segments.push_back(hold_staged(found, *pin));
    }
  }
  if (!ahead.empty()) {
    for (const StagedSegment& found : look_up(container, txn, ahead)) {
      if (!in_hot_tier(found) || view.segments.size() >= most_segments) break;
      view.segments.push_back(hold_staged(found, *pin));
    }
  }
  view.pin = std::move(pin);
  view.committed = committed_locked(container, Epoch(0));
  return std::optional<View>(std::move(view));
}

HotTier::Standing StagedHotTier::standing(ContainerId container) {
  const std::lock_guard lock(state_mutex_);
  return standing_locked(container);
}

void StagedHotTier::keep(ContainerId container, const Standing& then, std::span<const Extent> extents,
                         const Slab& slab, std::vector<uint32_t> checksums) {
  // No record names it, and its transaction is nobody's.
  auto hold = std::make_shared<SlabHold>(slab, std::move(checksums), 0, TxnId(0));
  pool_->adopt(hold);
  const std::lock_guard lock(state_mutex_);
  if (standing_locked(container) != then) return;
  uint64_t offset = 0;
  for (const Extent& extent : extents) {
    clean_.keep(container, extent, hold, offset);
    offset += extent.length().value;
  }
  clean_.spare(*hold);
}

void StagedHotTier::damaged(ContainerId container, const Segment& segment) {
  const std::lock_guard lock(state_mutex_);
  if (!clean_.give_up(segment.area_offset - segment.in_slab)) return;
  log::warn(
      "bytes [{}, {}) of container {} in the hot tier {} do not match their checksums; the storage tier has "
      "them too and is read instead",
      segment.extent.begin.value, segment.extent.end.value, container.value, options_.path);
}

Length StagedHotTier::published_size(ContainerId container, Length told) const {
  const auto known = state_->published(container);
  // Without anybody to ask, a container begins empty here whatever it is below.
  return known && (options_.published || known->epoch != Epoch(0)) ? known->size : told;
}

Length StagedHotTier::size(ContainerId container, std::optional<TxnId> txn, Length published) {
  const std::lock_guard lock(state_mutex_);
  const Length below = published_size(container, published);
  const HotState::Container* c = state_->container(container);
  if (c == nullptr) return below;
  if (txn && !c->index.is_open(*txn)) txn.reset();
  return c->index.size(txn, below);
}

Epoch StagedHotTier::committed(ContainerId container, Epoch published) {
  const std::lock_guard lock(state_mutex_);
  return committed_locked(container, published);
}

Epoch StagedHotTier::committed_locked(ContainerId container, Epoch published) const {
  if (const auto known = state_->published(container)) published = std::max(published, known->epoch);
  const HotState::Container* c = state_->container(container);
  return c == nullptr ? published : std::max(published, c->committed);
}

uint64_t StagedHotTier::undrained_bytes(ContainerId container) {
  const std::lock_guard lock(state_mutex_);
  const HotState::Container* c = state_->container(container);
  if (c == nullptr) return 0;
  uint64_t bytes = 0;
  const auto count = [&](Extent extent, const StagedPiece&) { bytes += extent.length().value; };
  c->index.committed().for_each(count);
  for (const auto& [id, layer] : c->index.open_layers()) layer.pieces.for_each(count);
  return bytes;
}

uint64_t StagedHotTier::unpublished_bytes() {
  const std::lock_guard lock(state_mutex_);
  uint64_t total = 0;
  for (const auto& [id, c] : state_->containers()) {
    if (c.committed <= c.published.epoch) continue;
    uint64_t bytes = 0;
    c.index.committed().for_each([&](Extent extent, const StagedPiece&) { bytes += extent.length().value; });
    total += std::max<uint64_t>(bytes, 1);
  }
  return total;
}

bool StagedHotTier::survived(uint64_t record) {
  const std::lock_guard lock(state_mutex_);
  return state_->vouched(record);
}

std::vector<TransactionInfo> StagedHotTier::open_transactions() {
  const std::lock_guard lock(state_mutex_);
  std::vector<TransactionInfo> open;
  for (const auto& [id, txn] : state_->txns())
    open.push_back({id, txn.container, txn.session, txn.last_record});
  return open;
}

Result<> StagedHotTier::verify(const DrainWork::Piece& piece) {
  if (piece.place.tier != StagedPlace::Tier::kHot) return {};
  const auto hold = pool_->hold_at(piece.place.where);
  if (!hold || hold->record != piece.place.record) {
    return fail(ErrorCode::kNotFound, "the piece to verify is no longer in the hot tier");
  }
  // Only the checksum blocks that the piece touches.
  const uint64_t first = piece.place.offset / kChecksumBlockBytes;
  const uint64_t last =
      (piece.place.offset + piece.extent.length().value + kChecksumBlockBytes - 1) / kChecksumBlockBytes;
  const uint64_t begin = first * kChecksumBlockBytes;
  const uint64_t end = std::min(last * kChecksumBlockBytes, hold->slab.length.value);
  const auto sums = std::span(hold->checksums).subspan(first, last - first);
  if (checksums_match(pool_->bytes(hold->slab).subspan(begin, end - begin), sums)) return {};
  Error error(
      ErrorCode::kCorrupt,
      fmt::format("bytes [{}, {}) in the hot tier {} do not match the checksums they were written with",
                  piece.extent.begin.value, piece.extent.end.value, options_.path));
  return fail(error.mark_data_loss());
}

Usage StagedHotTier::usage() {
  const std::lock_guard lock(state_mutex_);
  const uint64_t clean = clean_.spare_bytes();
  const uint64_t used = pool_->used_bytes() - clean - state_->spare_table_bytes();
  return {pool_->capacity_bytes(),  used, clean, state_->live_bytes(), log_full_ && !may_have_shrunk_,
          pool_->has_dead_stripes()};
}

}  // namespace sluice::burst_buffer
