#include "burst_buffer/hot_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"

namespace sluice::burst_buffer {
namespace {

Result<> impossible(const LogRecord& record, const char* why) {
  return fail(ErrorCode::kCorrupt, fmt::format("the staging log says \"{}\", but {}", describe(record), why));
}

}  // namespace

HotState::HotState(uint64_t data_bytes, std::shared_ptr<SlabPool> pool)
    : data_bytes_(data_bytes), pool_(std::move(pool)) {}

Result<> HotState::apply(const LogRecord& record) {
  return std::visit([this](const auto& r) { return on(r); }, record);
}

const HotState::Txn* HotState::txn(TxnId id) const {
  const auto found = txns_.find(id);
  return found == txns_.end() ? nullptr : &found->second;
}

HotState::Txn* HotState::txn(TxnId id) {
  const auto found = txns_.find(id);
  return found == txns_.end() ? nullptr : &found->second;
}

const HotState::Container* HotState::container(ContainerId id) const {
  const auto found = containers_.find(id);
  return found == containers_.end() ? nullptr : &found->second;
}

std::optional<CommitInfo> HotState::remembered(TxnId id) const {
  const auto found = remembered_.find(id);
  return found == remembered_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<CommitInfo> HotState::published(ContainerId id) const {
  if (const Container* c = container(id)) return c->published;
  const auto found = resting_.find(id);
  return found == resting_.end() ? std::nullopt : std::optional(found->second);
}

CommitInfo HotState::next_commit(TxnId id) const {
  const Txn* t = txn(id);
  SLUICE_ASSERT(t != nullptr);
  const Container& c = containers_.at(t->container);
  const bool empty = c.index.layer(id).untouched();
  return {empty ? c.committed : Epoch(c.committed.value + 1), c.index.size(id, c.published.size)};
}

std::optional<Length> HotState::size_at(const Container& c, Epoch epoch) const {
  if (epoch == c.published.epoch) return c.published.size;
  for (const CommitRecord& commit : c.commits) {
    if (commit.epoch == epoch) return commit.size;
  }
  return std::nullopt;
}

bool HotState::is_cut_off(TxnId txn, uint64_t record) const {
  const auto found = cut_off_.find(txn);
  return found != cut_off_.end() && record >= found->second;
}

bool HotState::next_number(uint64_t record) {
  if (record <= highest_record_) return false;
  highest_record_ = record;
  return true;
}

Result<std::shared_ptr<Keeper>> HotState::keep_slab(const WriteRecord& r) {
  const bool inside = r.slab.offset % kGranuleBytes == 0 && r.slab.offset < data_bytes_ &&
                      r.slab.length.value <= data_bytes_ - r.slab.offset;
  if (!inside) return fail(impossible(r, "there is no such slab").error());
  auto hold = std::make_shared<SlabHold>(r.slab, r.checksums, r.record, r.txn);
  if (pool_ && loading_ && !pool_->adopt_found(hold)) {
    return fail(impossible(r, "another record has that slab").error());
  }
  if (pool_ && !loading_) pool_->adopt(hold);
  return std::make_shared<Keeper>(std::move(hold), retired_);
}

std::shared_ptr<Keeper> HotState::keep_stripe(ContainerId container, StripeId stripe, bool in_table) {
  auto hold = pool_ ? pool_->stripe(container, stripe) : std::make_shared<StripeHold>(container, stripe);
  return std::make_shared<Keeper>(std::move(hold), retired_, in_table);
}

Result<> HotState::keep_table(const TableRecord& r) {
  const bool inside = r.slab.offset % kGranuleBytes == 0 && r.slab.offset < data_bytes_ &&
                      r.slab.length.value <= data_bytes_ - r.slab.offset;
  if (!inside) return impossible(r, "there is no such slab");
  auto hold = std::make_shared<SlabHold>(r.slab, std::vector<uint32_t>{}, 0, TxnId(0));
  if (pool_ && loading_ && !pool_->adopt_found(hold)) return impossible(r, "another record has that slab");
  if (pool_ && !loading_) pool_->adopt(hold);
  table_slabs_.push_back(std::move(hold));
  return {};
}

void HotState::rest_if_idle(ContainerId id) {
  const Container& c = containers_.at(id);
  if (!c.index.idle() || c.committed != c.published.epoch) return;
  for (const CommitRecord& commit : c.commits) remembered_.erase(commit.txn);
  resting_[id] = c.published;
  containers_.erase(id);
}

Result<> HotState::on(const BeginRecord& r) {
  const auto found = containers_.find(r.container);
  if (found == containers_.end()) return impossible(r, "that container was never introduced");
  if (txns_.contains(r.txn) || remembered_.contains(r.txn))
    return impossible(r, "that transaction exists already");
  txns_.emplace(r.txn, Txn{r.container, r.session, r.last_record, {}, {}});
  found->second.index.open(r.txn);
  found->second.index.restore_layer(r.txn, r.cut, r.floor);
  return {};
}

Result<> HotState::on(const WriteRecord& r) {
  if (!next_number(r.record)) return impossible(r, "a later record came before it");
  if (r.epoch != Epoch(0)) {
    const auto found = containers_.find(r.container);
    if (found == containers_.end()) return impossible(r, "that container was never introduced");
    if (r.epoch <= found->second.published.epoch || found->second.committed < r.epoch) {
      return impossible(r, "that epoch is not waiting to be published");
    }
  } else {
    const Txn* t = txn(r.txn);
    if (t == nullptr || t->container != r.container) return impossible(r, "that transaction is not open");
    if (is_cut_off(r.txn, r.record)) return {};
  }
  auto keeper = keep_slab(r);
  if (!keeper) return fail(keeper.error());

  const StagedPiece whole{{StagedPlace::Tier::kHot, r.slab.offset, 0, r.record}, r.epoch, *keeper};
  StageIndex& index = containers_.at(r.container).index;
  for (const SlabPart& part : r.parts) {
    const StagedPiece piece = whole.advanced(Length(part.offset));
    if (r.epoch == Epoch(0)) {
      index.write(r.txn, part.extent, piece);
    } else {
      index.restore_piece(std::nullopt, part.extent, piece);
    }
  }
  if (r.epoch != Epoch(0)) return {};
  Txn& t = *txn(r.txn);
  t.last_record = std::max(t.last_record, r.record);
  if (!loading_) t.dirty.push_back({r.record, r.slab});
  return {};
}

Result<> HotState::on(const TruncateRecord& r) {
  if (!next_number(r.record)) return impossible(r, "a later record came before it");
  Txn* t = txn(r.txn);
  if (t == nullptr) return impossible(r, "that transaction is not open");
  if (is_cut_off(r.txn, r.record)) return {};
  Container& c = containers_.at(t->container);
  c.index.truncate(r.txn, r.size);
  for (Table& table : c.tables) {
    if (table.record.txn == r.txn) table.cut(r.size);
  }
  t->last_record = std::max(t->last_record, r.record);
  return {};
}

Result<> HotState::on(const CommitRecord& r) {
  const auto found = containers_.find(r.container);
  if (found == containers_.end()) return impossible(r, "that container was never introduced");
  Container& c = found->second;
  if (r.remembered) {
    const bool in_order = c.commits.empty() || c.commits.back().epoch <= r.epoch;
    if (!in_order || r.epoch <= c.published.epoch || c.committed < r.epoch || remembered_.contains(r.txn) ||
        txns_.contains(r.txn)) {
      return impossible(r, "it cannot have been committed so");
    }
  } else {
    const Txn* t = txn(r.txn);
    if (t == nullptr || t->container != r.container) return impossible(r, "that transaction is not open");
    const CommitInfo expected = next_commit(r.txn);
    if (expected.epoch != r.epoch || expected.size != r.size)
      return impossible(r, "it was not the next epoch, or of another size");
    commit_tables(c, r);
    c.index.commit(r.txn, r.epoch);
    c.committed = r.epoch;
    txns_.erase(r.txn);
  }
  if (c.published.epoch < r.epoch) {
    c.commits.push_back({r.txn, r.container, r.epoch, r.size, true});
    remembered_[r.txn] = {r.epoch, r.size};
  }
  if (!r.remembered) rest_if_idle(r.container);
  return {};
}

void HotState::commit_tables(Container& c, const CommitRecord& r) {
  const std::optional<Length> cut = c.index.layer(r.txn).cut;
  for (Table& table : c.tables) {
    if (!table.record.txn && cut) table.cut(*cut);
    if (table.record.txn != r.txn) continue;
    table.record.txn.reset();
    table.record.epoch = r.epoch;
  }
}

Result<> HotState::on(const AbortRecord& r) {
  const Txn* t = txn(r.txn);
  if (t == nullptr) return impossible(r, "that transaction is not open");
  const ContainerId container = t->container;
  containers_.at(container).index.abort(r.txn);
  txns_.erase(r.txn);
  rest_if_idle(container);
  return {};
}

Result<> HotState::on(const PlacedRecord& r) {
  const auto found = containers_.find(r.container);
  if (found == containers_.end()) return impossible(r, "that container was never introduced");
  if (r.txn && !found->second.index.is_open(*r.txn)) return impossible(r, "that transaction is not open");
  move_parts(found->second, r.txn, r.parts,
             [&](StripeId stripe) { return keep_stripe(r.container, stripe); });
  return {};
}

template <class Keep>
void HotState::move_parts(Container& c, std::optional<TxnId> txn, const std::vector<StripePart>& parts,
                          Keep&& keep) {
  std::shared_ptr<Keeper> keeper;
  for (size_t i = 0; i < parts.size(); ++i) {
    const StripePart& p = parts[i];
    if (i == 0 || p.stripe != parts[i - 1].stripe) keeper = keep(p.stripe);
    const StagedPlace place{StagedPlace::Tier::kStripe, p.stripe.value, p.stripe_offset, p.record};
    c.index.move(txn, p.extent, p.record, place, keeper);
  }
}

Result<> HotState::on(const TableRecord& r) {
  const auto found = containers_.find(r.container);
  if (found == containers_.end()) return impossible(r, "that container was never introduced");
  Container& c = found->second;
  const bool waiting = c.published.epoch < r.epoch && r.epoch <= c.committed;
  if (r.txn ? !c.index.is_open(*r.txn) || r.epoch != Epoch(0) : !waiting || !r.in_checkpoint)
    return impossible(r, "it has no such owner");
  if (auto ok = keep_table(r); !ok) return ok;
  // A part whose write was cut off is none: then the table says too much, and the log names the others.
  const bool says_all = r.in_checkpoint || std::ranges::none_of(r.parts, [&](const StripePart& p) {
                          return is_cut_off(*r.txn, p.record);
                        });
  const auto keeper = keep_stripe(r.container, r.stripe, says_all);
  if (!r.in_checkpoint) move_parts(c, r.txn, r.parts, [&](StripeId) { return keeper; });
  if (r.in_checkpoint) {
    for (const StripePart& p : r.parts) {
      const Offset end = r.cut ? std::min(p.extent.end, Offset(r.cut->value)) : p.extent.end;
      if (end <= p.extent.begin) continue;
      const StagedPlace place{StagedPlace::Tier::kStripe, r.stripe.value, p.stripe_offset, p.record};
      c.index.restore_piece(r.txn, {p.extent.begin, end}, {place, r.epoch, keeper});
    }
  }
  std::erase_if(c.tables, [](const Table& table) { return table.parts.expired(); });
  if (!says_all) return {};
  TableRecord record = r;
  record.parts.clear();
  record.in_checkpoint = true;
  c.tables.push_back({std::move(record), keeper});
  return {};
}

Result<> HotState::on(const DrainedRecord& r) {
  const auto found = containers_.find(r.container);
  if (found == containers_.end()) return impossible(r, "that container was never introduced");
  Container& c = found->second;
  if (r.published.epoch < c.published.epoch) return impossible(r, "a higher epoch was published before");
  c.index.drained(r.published.epoch);
  c.published = r.published;
  c.committed = std::max(c.committed, r.published.epoch);
  std::erase_if(c.commits, [&](const CommitRecord& commit) {
    if (r.published.epoch < commit.epoch) return false;
    remembered_.erase(commit.txn);
    return true;
  });
  rest_if_idle(r.container);
  return {};
}

Result<> HotState::on(const ForgetRecord& r) {
  const auto found = containers_.find(r.container);
  resting_.erase(r.container);
  if (found == containers_.end()) return {};
  for (const CommitRecord& commit : found->second.commits) remembered_.erase(commit.txn);
  std::erase_if(txns_, [&](const auto& entry) { return entry.second.container == r.container; });
  containers_.erase(found);
  return {};
}

Result<> HotState::on(const ContainerRecord& r) {
  if (containers_.contains(r.container)) return impossible(r, "that container is there already");
  std::map<Epoch, Length> cuts;
  for (const auto& [epoch, cut] : r.cuts) {
    if (epoch <= r.published.epoch || r.committed < epoch)
      return impossible(r, "that epoch is not waiting to be published");
    cuts.emplace(epoch, cut);
  }
  Container& c = containers_[r.container];
  c.published = r.published;
  c.committed = r.committed;
  c.index.restore_committed(std::move(cuts), r.floor);
  resting_.erase(r.container);
  return {};
}

Result<> HotState::on(const StripeRecord& r) {
  const auto found = containers_.find(r.container);
  if (found == containers_.end()) return impossible(r, "that container was never introduced");
  const Container& c = found->second;
  const bool waiting = c.published.epoch < r.epoch && r.epoch <= c.committed;
  if (r.txn ? !c.index.is_open(*r.txn) || r.epoch != Epoch(0) : !waiting)
    return impossible(r, "it has no such owner");
  std::shared_ptr<Keeper> keeper;
  for (size_t i = 0; i < r.parts.size(); ++i) {
    const StripePart& p = r.parts[i];
    if (i == 0 || p.stripe != r.parts[i - 1].stripe) keeper = keep_stripe(r.container, p.stripe);
    const StagedPlace place{StagedPlace::Tier::kStripe, p.stripe.value, p.stripe_offset, p.record};
    found->second.index.restore_piece(r.txn, p.extent, {place, r.epoch, keeper});
  }
  return {};
}

Result<> HotState::on(const LostRecord& r) {
  if (!lost_.empty() && r.first < lost_.back().end) return impossible(r, "a later range came before it");
  if (lost_.size() == kMaxLostRanges) lost_.erase(lost_.begin());
  lost_.push_back(r);
  return {};
}

bool HotState::vouched(uint64_t record) const {
  return std::none_of(lost_.begin(), lost_.end(),
                      [&](const LostRecord& range) { return range.first <= record && record < range.end; });
}

namespace {

// Gathers the pieces of one container into records, writes by their number.
class Gatherer {
 public:
  Gatherer(ContainerId container, std::map<uint64_t, WriteRecord>& writes, std::vector<LogRecord>& records)
      : container_(container), writes_(writes), records_(records) {}

  void layer(std::optional<TxnId> txn, const ExtentMap<StagedPiece>& pieces) {
    std::map<Epoch, StripeRecord> stripes;
    pieces.for_each([&](Extent extent, const StagedPiece& piece) {
      if (piece.place.tier == StagedPlace::Tier::kHot) return hot(extent, piece);
      if (static_cast<const Keeper*>(piece.keep.get())->in_table()) return;
      auto& record =
          stripes.try_emplace(piece.epoch, StripeRecord{container_, txn, piece.epoch, {}}).first->second;
      record.parts.push_back({extent, piece.place.record, StripeId(piece.place.where), piece.place.offset});
    });
    for (auto& [epoch, record] : stripes) records_.push_back(std::move(record));
  }

 private:
  void hot(Extent extent, const StagedPiece& piece) {
    const auto& keeper = *static_cast<const Keeper*>(piece.keep.get());
    const auto& hold = static_cast<const SlabHold&>(*keeper.hold());
    auto [at, fresh] = writes_.try_emplace(hold.record);
    if (fresh) {
      at->second = {hold.txn, container_, piece.epoch, hold.record, hold.slab, hold.checksums, {}};
    }
    at->second.parts.push_back({extent, piece.place.offset});
  }

  ContainerId container_;
  std::map<uint64_t, WriteRecord>& writes_;
  std::vector<LogRecord>& records_;
};

}  // namespace

// Those of later epochs lie over those of earlier ones; within one they came in their order.
void HotState::append_tables(const Container& c, std::vector<LogRecord>& records) {
  std::vector<const TableRecord*> tables;
  for (const Table& table : c.tables) {
    if (!table.parts.expired()) tables.push_back(&table.record);
  }
  std::ranges::stable_sort(tables, {}, &TableRecord::epoch);
  for (const TableRecord* table : tables) records.push_back(*table);
}

std::set<uint64_t> HotState::live_tables() const {
  std::set<uint64_t> live;
  for (const auto& [id, c] : containers_) {
    for (const Table& table : c.tables) {
      if (!table.parts.expired()) live.insert(table.record.slab.offset);
    }
  }
  return live;
}

void HotState::log_rewritten() {
  if (table_slabs_.empty()) return;
  std::erase_if(table_slabs_,
                [live = live_tables()](const auto& hold) { return !live.contains(hold->slab.offset); });
}

uint64_t HotState::spare_table_bytes() const {
  if (table_slabs_.empty()) return 0;
  const std::set<uint64_t> live = live_tables();
  uint64_t bytes = 0;
  for (const auto& hold : table_slabs_) {
    if (!live.contains(hold->slab.offset)) bytes += SlabAllocator::footprint(hold->slab.length);
  }
  return bytes;
}

std::vector<LogRecord> HotState::live_records() const {
  std::vector<LogRecord> records(lost_.begin(), lost_.end());
  for (const auto& [id, c] : containers_) {
    if (c.index.idle() && c.committed == c.published.epoch) continue;
    records.push_back(ContainerRecord{
        id, c.published, c.committed, c.index.floor(), {c.index.cuts().begin(), c.index.cuts().end()}});
    for (const CommitRecord& commit : c.commits) records.push_back(commit);
  }
  for (const auto& [id, t] : txns_) {
    const StageLayer& layer = containers_.at(t.container).index.layer(id);
    records.push_back(BeginRecord{id, t.container, t.session, t.last_record, layer.cut, layer.floor});
  }
  for (const auto& [id, c] : containers_) append_tables(c, records);
  std::map<uint64_t, WriteRecord> writes;
  for (const auto& [id, c] : containers_) {
    Gatherer gather(id, writes, records);
    gather.layer(std::nullopt, c.index.committed());
    for (const auto& [txn, layer] : c.index.open_layers()) gather.layer(txn, layer.pieces);
  }
  for (auto& [number, write] : writes) records.push_back(std::move(write));
  return records;
}

}  // namespace sluice::burst_buffer
