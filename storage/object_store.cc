#include "storage/object_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/assert.h"
#include "base/log.h"
#include "base/rng.h"
#include "storage/container.h"
#include "storage/placement.h"
#include "storage/shard_format.h"
#include "storage/stripe.h"
#include "storage/stripe_table.h"

namespace sluice::storage {
namespace {

constexpr char kPoolIdFact[] = "storage.pool_id";
constexpr char kTargetsFact[] = "storage.targets";
constexpr char kStripeNumbers[] = "stripe";
// Stripe numbers taken from the metastore at once; what is left of them at the end is never used.
constexpr uint64_t kStripeBatch = 256;
// Looks of heal() that fail to rebuild a shard before it is taken for lost: reading the others may fail in
// passing.
constexpr unsigned kTriesToRebuild = 3;

uint64_t system_seconds() {
  using namespace std::chrono;
  return static_cast<uint64_t>(duration_cast<seconds>(system_clock::now().time_since_epoch()).count());
}

Result<> check_path(const std::string& path) {
  const auto refused = [&](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("the path \"{}\" {}", path.substr(0, 256), why));
  };
  if (path.size() > kMaxPathBytes) return refused(fmt::format("is longer than {} bytes", kMaxPathBytes));
  if (path.size() < 2 || path.front() != '/' || path.back() == '/')
    return refused("is not that of a file: /name or /a/name");
  if (path.find('\0') != std::string::npos) return refused("contains a zero byte");
  for (size_t begin = 1; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return refused("contains an empty part, . or ..");
    begin = end + 1;
  }
  return {};
}

class Store final : public ObjectStore {
 public:
  Store(Options options, std::vector<std::unique_ptr<Target>> targets, std::unique_ptr<MetaStore> metastore)
      : options_(std::move(options)),
        targets_(std::move(targets)),
        metastore_(std::move(metastore)),
        io_(targets_, options_.io_threads),
        stripes_([this](const StripeRecord& stripe) { return remove_shards(stripe); }),
        rng_(options_.seed) {
    if (!options_.now_s) options_.now_s = system_seconds;
  }

  Result<ContainerInfo> create(const ContainerAttributes& attributes) override;
  Result<ContainerInfo> find(const std::string& path) override { return metastore_->find(path); }
  Result<ContainerInfo> find(ContainerId id) override { return metastore_->find(id); }
  Result<std::vector<ContainerInfo>> list(const std::string& path) override { return metastore_->list(path); }
  Result<> remove(ContainerId id) override;
  Result<> shape(ContainerId id, Length chunk_size, const std::string& reason) override;

  Result<Length> stripe_bytes(ContainerId id) override;
  Result<StripeId> place(ContainerId id, std::span<const std::span<const std::byte>> pieces) override;
  Result<> publish(ContainerId id, const Publication& step) override;
  void discard(StripeId stripe) override;
  Result<uint64_t> collect_orphans(const std::set<StripeId>& keep) override;

  Result<ReadReport> read(ContainerId id, Extent extent, std::span<std::byte> out) override;
  Result<ReadReport> read_stripe(StripeId stripe, uint64_t offset, std::span<std::byte> out) override;
  Result<std::vector<PlacedExtent>> layout(ContainerId id) override;
  Result<ScrubReport> scrub() override;
  Result<uint64_t> heal(const std::function<bool()>& stopping) override;
  void compare_all_again() override;
  uint64_t missing_shards() override { return io_.lacking_count(); }
  uint64_t lost_shards() override { return lost_count_; }

  std::vector<TargetStatus> target_status() override;
  uint64_t degraded_blocks() const override { return io_.degraded_blocks(); }

 private:
  using ContainerPtr = std::shared_ptr<Container>;

  // In memory or from the metastore; its manifest may not be loaded.
  Result<ContainerPtr> container(ContainerId id);
  void forget(ContainerId id);
  Result<StripeId> next_stripe();
  Placement choose(const StripeShape& shape);
  // The stripe, pinned; looked for on the targets when no manifest in memory and no place() of this run knows
  // it.
  Result<StripeTable::Pin> pin_stripe(StripeId id);
  // Has every manifest in memory: from then on the table knows every published stripe. Answers the containers
  // whose manifest is damaged.
  Result<std::set<ContainerId>> load_all();
  struct Collection {
    const std::set<StripeId>& keep;
    std::set<ContainerId> unreadable;
    std::set<StripeId> removed;
  };
  Result<> collect_from(Target& target, Collection& collection);
  bool may_be_of(Target& target, ShardName name, const std::set<ContainerId>& containers);
  bool remove_shards(const StripeRecord& stripe);
  // A target that came up: orphans go, and what it should hold and does not is noted as lacking.
  Result<> compare(Target& target);
  Result<> restore(ShardName name);
  std::set<TargetId> compare_returned(const std::function<bool()>& stopping, Result<>& first);
  bool has_room(TargetId on, Length shard);
  std::vector<ContainerPtr> loaded_containers();

  Options options_;
  const std::vector<std::unique_ptr<Target>> targets_;
  const std::unique_ptr<MetaStore> metastore_;
  StripeIo io_;
  StripeTable stripes_;
  std::set<StripeId> unfound_;  // of those that collect_orphans() keeps: all of it was on missing targets
  // heal()'s: targets compared since they came up, and those that were said not to take their shards.
  std::set<TargetId> compared_;
  std::set<TargetId> unhealed_;
  std::map<ShardName, unsigned> unrebuilt_;  // how often in vain since all were compared
  std::atomic<uint64_t> lost_count_ = 0;

  std::mutex containers_mutex_;
  std::map<ContainerId, ContainerPtr> containers_;
  std::mutex numbers_mutex_;
  uint64_t next_stripe_ = 0;
  uint64_t stripes_end_ = 0;
  std::mutex rng_mutex_;
  SeededRng rng_;
};

// --- containers ---

static Result<> check_chunk(Length chunk_size, const std::string& path) {
  const uint64_t chunk = chunk_size.value;
  if (std::has_single_bit(chunk) && chunk >= kMinChunkSize.value && chunk <= kMaxChunkSize.value) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("chunk size {} of {} is not a power of two from {} to {}", chunk, path,
                          kMinChunkSize.value, kMaxChunkSize.value));
}

Result<ContainerInfo> Store::create(const ContainerAttributes& attributes) {
  if (auto ok = check_path(attributes.path); !ok) return fail(ok.error());
  if (auto ok = check_chunk(attributes.chunk_size, attributes.path); !ok) return fail(ok.error());
  ContainerAttributes resolved = attributes;
  if (!resolved.object_class.specified()) resolved.object_class = options_.default_class;
  const auto object_class = resolved.object_class.resolve(targets_.size());
  if (!object_class) return fail_with_context(attributes.path, object_class.error());
  resolved.object_class = *object_class;
  return metastore_->create(resolved, options_.now_s());
}

Result<Store::ContainerPtr> Store::container(ContainerId id) {
  {
    std::lock_guard lock(containers_mutex_);
    const auto found = containers_.find(id);
    if (found != containers_.end()) return found->second;
  }
  auto info = metastore_->find(id);
  if (!info) return fail(info.error());
  std::lock_guard lock(containers_mutex_);
  auto& slot = containers_[id];
  if (slot == nullptr) slot = std::make_shared<Container>(*metastore_, stripes_, *std::move(info));
  return slot;
}

void Store::forget(ContainerId id) {
  std::lock_guard lock(containers_mutex_);
  containers_.erase(id);
}

Result<> Store::remove(ContainerId id) {
  auto found = container(id);
  if (!found) return fail(found.error());
  auto removed = (*found)->remove();
  if (removed) forget(id);
  return removed;
}

Result<> Store::shape(ContainerId id, Length chunk_size, const std::string& reason) {
  auto found = metastore_->find(id);
  if (!found) return fail(found.error());
  if (auto ok = check_chunk(chunk_size, found->attributes.path); !ok) return ok;
  if (auto ok = metastore_->shape(id, chunk_size, reason); !ok) return ok;
  // Whoever asks next gets it with its new size. One that is loaded in this very moment keeps the old one
  // until the next start, which is as good: each stripe's record has its own.
  forget(id);
  return {};
}

// --- the drain's half ---

Result<Length> Store::stripe_bytes(ContainerId id) {
  auto found = container(id);
  if (!found) return fail(found.error());
  const ContainerAttributes& attributes = (*found)->attributes();
  return Length(attributes.object_class.k() * attributes.chunk_size.value);
}

Result<StripeId> Store::next_stripe() {
  std::lock_guard lock(numbers_mutex_);
  if (next_stripe_ == stripes_end_) {
    const auto first = metastore_->allot(kStripeNumbers, kStripeBatch);
    if (!first) return fail(first.error());
    next_stripe_ = *first;
    stripes_end_ = *first + kStripeBatch;
  }
  return StripeId(next_stripe_++);
}

Placement Store::choose(const StripeShape& shape) {
  const auto loads = io_.loads();
  std::lock_guard lock(rng_mutex_);
  return choose_targets(shape, loads, shape.shard.value, rng_);
}

Result<StripeId> Store::place(ContainerId id, std::span<const std::span<const std::byte>> pieces) {
  auto found = container(id);
  if (!found) return fail(found.error());
  const ContainerAttributes& attributes = (*found)->attributes();
  const ObjectClass object_class = attributes.object_class;
  uint64_t total = 0;
  for (const auto piece : pieces) total += piece.size();
  const uint64_t most = object_class.k() * attributes.chunk_size.value;
  if (total == 0 || total > most) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a stripe of {} takes 1 to {} bytes, not {}", attributes.path, most, total));
  }
  const auto stripe = next_stripe();
  if (!stripe) return fail(stripe.error());
  const StripeShape shape = shape_of(object_class.k(), object_class.m(), Length(total));
  stripes_.writing(*stripe);
  auto record = io_.write(*stripe, id, shape, pieces, choose(shape));
  if (!record) {
    stripes_.abandoned(*stripe);
    return fail_with_context(fmt::format("{}, class {}", attributes.path, object_class.name()),
                             record.error());
  }
  stripes_.written(std::make_shared<const StripeRecord>(*std::move(record)));
  return *stripe;
}

Result<> Store::publish(ContainerId id, const Publication& step) {
  auto found = container(id);
  if (!found) return fail(found.error());
  if (step.from >= step.to) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: a step leads from version {} to a later one, not to {}",
                            (*found)->attributes().path, step.from.value, step.to.value));
  }
  std::set<StripeId> named;
  for (const PlacedExtent& placed : step.extents) named.insert(placed.place.stripe);
  std::vector<StripeTable::Pin> pins;
  for (const StripeId stripe : named) {
    auto pin = pin_stripe(stripe);
    if (!pin) {
      // Of a step that was published already, stripes may be gone again.
      const auto info = metastore_->find(id);
      if (info && info->published == step.to) return {};
      return fail_with_context((*found)->attributes().path, pin.error());
    }
    if (pin->record().container != id) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("stripe {} is not one of {}", stripe.value, (*found)->attributes().path));
    }
    pins.push_back(*std::move(pin));
  }
  auto published = (*found)->publish(step, pins, options_.now_s());
  if (!published && published.error().code == ErrorCode::kNotFound && !metastore_->find(id)) forget(id);
  return published;
}

void Store::discard(StripeId stripe) {
  if (stripes_.discard(stripe)) return;
  // Of an earlier run: its container's manifest has a say.
  if (auto pin = pin_stripe(stripe); !pin) return;
  stripes_.discard(stripe);
}

Result<StripeTable::Pin> Store::pin_stripe(StripeId id) {
  const auto gone = [&] { return fail(ErrorCode::kNotFound, fmt::format("stripe {} is gone", id.value)); };
  auto known = stripes_.pin(id);
  if (known.presence == StripeTable::Presence::kPinned) return std::move(known.pin);
  if (known.presence == StripeTable::Presence::kGone) return gone();
  auto record = io_.locate(id);
  if (!record) return fail(record.error());
  // Loaded, its manifest puts it into the table if it refers to it.
  if (auto owner = container(record->container)) {
    if (auto ok = (*owner)->load(); !ok) return fail(ok.error());
  }
  known = stripes_.pin(id);
  if (known.presence == StripeTable::Presence::kPinned) return std::move(known.pin);
  if (known.presence == StripeTable::Presence::kGone) return gone();
  // Freed between the two looks, or really nobody's but the placer's.
  record = io_.locate(id);
  if (!record) return fail(record.error());
  stripes_.found(std::make_shared<const StripeRecord>(*std::move(record)));
  known = stripes_.pin(id);
  if (known.presence == StripeTable::Presence::kPinned) return std::move(known.pin);
  return gone();
}

Result<std::set<ContainerId>> Store::load_all() {
  const auto infos = metastore_->list("/");
  if (!infos) return fail(infos.error());
  std::set<ContainerId> unreadable;
  for (const ContainerInfo& info : *infos) {
    auto found = container(info.id);
    if (!found && found.error().code == ErrorCode::kNotFound) continue;  // removed meanwhile
    if (!found) return fail(found.error());
    const auto loaded = (*found)->load();
    if (loaded || loaded.error().code == ErrorCode::kNotFound) continue;
    const ErrorCode code = loaded.error().code;
    if (code != ErrorCode::kCorrupt && code != ErrorCode::kUnsupported) return fail(loaded.error());
    log::error("{}", loaded.error().message);
    unreadable.insert(info.id);
  }
  return unreadable;
}

bool Store::may_be_of(Target& target, ShardName name, const std::set<ContainerId>& containers) {
  if (containers.empty()) return false;
  std::array<std::byte, kShardHeaderBytes> bytes{};
  const std::span<std::byte> whole(bytes);
  if (!target.get(name, 0, std::span(&whole, 1))) return true;
  const auto header = decode_shard_header(bytes);
  return !header || containers.contains(header->container);
}

Result<> Store::collect_from(Target& target, Collection& collection) {
  const auto names = target.list();
  if (!names) return fail(names.error());
  for (const ShardName& name : *names) {
    if (stripes_.known(name.stripe)) {
      // A shard that was put here and then, after a failure, elsewhere.
      const auto record = stripes_.record(name.stripe);
      if (record == nullptr || name.shard.value >= record->targets.size()) continue;
      const TargetId place = record->targets[name.shard.value];
      if (place == kNoTarget || place == target.id()) continue;
    } else {
      if (collection.keep.contains(name.stripe) || may_be_of(target, name, collection.unreadable)) continue;
      collection.removed.insert(name.stripe);
    }
    if (auto ok = target.remove(name); !ok) return ok;
  }
  return target.sweep();
}

Result<uint64_t> Store::collect_orphans(const std::set<StripeId>& keep) {
  auto unreadable = load_all();
  if (!unreadable) return fail_with_context("no orphans are collected", unreadable.error());
  for (const StripeId stripe : keep) {
    if (auto pin = pin_stripe(stripe); !pin) {
      log::warn("a staged stripe cannot be found: {}", pin.error().message);
      unfound_.insert(stripe);
    }
    stripes_.hold(stripe);
  }
  stripes_.remove_doomed();
  Collection collection{unfound_, *std::move(unreadable), {}};
  for (const auto& target : targets_) {
    auto collected = collect_from(*target, collection);
    if (collected) continue;
    if (collected.error().code != ErrorCode::kUnavailable) return fail(collected.error());
    log::warn("orphans are not looked for on a target: {}", collected.error().message);
  }
  return collection.removed.size();
}

bool Store::remove_shards(const StripeRecord& stripe) {
  const auto removed = io_.remove(stripe);
  if (!removed)
    log::warn("stripe {} is not fully removed, tried again later: {}", stripe.id.value,
              removed.error().message);
  return removed.has_value();
}

// --- reads ---

Result<ReadReport> Store::read(ContainerId id, Extent extent, std::span<std::byte> out) {
  if (!extent.valid() || extent.length().value != out.size()) {
    return fail(ErrorCode::kInvalidArgument, "a read's extent and its buffer differ in length");
  }
  auto found = container(id);
  if (!found) return fail(found.error());
  const auto pieces = (*found)->lookup(extent);
  if (!pieces) return fail(pieces.error());
  ReadReport report;
  Offset at = extent.begin;
  const auto zero_until = [&](Offset end) {
    if (at < end) std::memset(out.data() + (at - extent.begin).value, 0, (end - at).value);
  };
  for (const auto& [placed, pin] : *pieces) {
    zero_until(placed.extent.begin);
    at = placed.extent.end;
    const auto piece = out.subspan((placed.extent.begin - extent.begin).value, placed.extent.length().value);
    const auto read = io_.read(pin.record(), placed.place.offset, piece);
    if (!read) return fail_with_context((*found)->attributes().path, read.error());
    report += *read;
  }
  zero_until(extent.end);
  return report;
}

Result<ReadReport> Store::read_stripe(StripeId stripe, uint64_t offset, std::span<std::byte> out) {
  const auto pin = pin_stripe(stripe);
  if (!pin) return fail(pin.error());
  const uint64_t data = pin->record().shape.data.value;
  if (offset > data || out.size() > data - offset) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stripe {} has {} bytes; a read of {} at {} goes beyond", stripe.value, data,
                            out.size(), offset));
  }
  return io_.read(pin->record(), offset, out);
}

Result<std::vector<PlacedExtent>> Store::layout(ContainerId id) {
  auto found = container(id);
  if (!found) return fail(found.error());
  return (*found)->layout();
}

std::vector<Store::ContainerPtr> Store::loaded_containers() {
  std::vector<ContainerPtr> containers;
  std::lock_guard lock(containers_mutex_);
  for (const auto& [id, container] : containers_) containers.push_back(container);
  return containers;
}

Result<ScrubReport> Store::scrub() {
  if (auto ok = load_all(); !ok) return fail_with_context("scrub", ok.error());
  ScrubReport report;
  for (const ContainerPtr& container : loaded_containers()) {
    for (const auto& record : container->stripes()) {
      const auto held = stripes_.pin(record->id);
      if (held.presence != StripeTable::Presence::kPinned) continue;  // freed meanwhile
      const StripeScrub found = io_.scrub(held.pin.record());
      ++report.stripes;
      report.bad_blocks += found.bad_blocks;
      report.repaired_blocks += found.repaired_blocks;
      report.lost_blocks += found.lost_blocks;
      if (found.lost_blocks == 0) continue;
      log::error("{}: {} blocks of stripe {} are lost", container->attributes().path, found.lost_blocks,
                 record->id.value);
    }
  }
  return report;
}

// --- healing ---

Result<> Store::compare(Target& target) {
  auto unreadable = load_all();
  if (!unreadable) return fail(unreadable.error());
  Collection collection{unfound_, *std::move(unreadable), {}};
  if (auto ok = collect_from(target, collection); !ok) return ok;
  const auto names = target.list();
  if (!names) return fail(names.error());
  const std::set<ShardName> there(names->begin(), names->end());
  for (const ContainerPtr& container : loaded_containers()) {
    for (const auto& record : container->stripes()) {
      for (uint32_t shard = 0; shard < record->targets.size(); ++shard) {
        const ShardName name{record->id, ShardIndex(shard)};
        if (record->targets[shard] == target.id() && !there.contains(name)) io_.note_lacking(name);
      }
    }
  }
  return {};
}

Result<> Store::restore(ShardName name) {
  const auto held = stripes_.pin(name.stripe);
  if (held.presence != StripeTable::Presence::kPinned) {
    io_.forget_lacking(name);
    return {};
  }
  return io_.restore(held.pin.record(), name.shard);
}

bool Store::has_room(TargetId on, Length shard) {
  Target* const target = io_.target(on);
  if (target == nullptr) return false;
  const auto usage = target->usage();
  return usage && usage->bytes_free >= shard.value + kShardHeaderBytes;
}

void Store::compare_all_again() {
  compared_.clear();
  unrebuilt_.clear();
}

// Answers the targets that cannot take shards now.
std::set<TargetId> Store::compare_returned(const std::function<bool()>& stopping, Result<>& first) {
  std::set<TargetId> unusable;
  for (const auto& target : targets_) {
    if (target->state() == TargetState::kMissing) {
      compared_.erase(target->id());
      unusable.insert(target->id());
    } else if (!compared_.contains(target->id()) && !stopping()) {
      const auto compared = compare(*target);
      if (compared) compared_.insert(target->id());
      if (!compared && first) first = fail_with_context("heal " + target->path(), compared.error());
    }
  }
  return unusable;
}

Result<uint64_t> Store::heal(const std::function<bool()>& stopping) {
  Result<> first;
  std::set<TargetId> unusable = compare_returned(stopping, first);
  uint64_t restored = 0;
  for (const ShardName& name : io_.lacking()) {
    if (stopping()) break;
    const auto record = stripes_.record(name.stripe);
    const TargetId on = record == nullptr ? kNoTarget : record->targets[name.shard.value];
    const auto tried = unrebuilt_.find(name);
    const bool lost = tried != unrebuilt_.end() && tried->second >= kTriesToRebuild;
    if (lost || unusable.contains(on)) continue;
    if (record != nullptr && !has_room(on, record->shape.shard)) {
      unusable.insert(on);
      continue;
    }
    const auto outcome = restore(name);
    if (outcome) {
      ++restored;
      unhealed_.erase(on);
      unrebuilt_.erase(name);
      continue;
    }
    // Lost shards are this stripe's trouble, everything else the target's.
    if (outcome.error().data_loss) {
      if (++unrebuilt_[name] == kTriesToRebuild)
        log::error("{} cannot be rebuilt: {}", to_string(name), outcome.error().message);
    } else {
      unusable.insert(on);
      if (unhealed_.insert(on).second)
        log::warn("{} cannot be put back on target {}: {}", to_string(name), on.value,
                  outcome.error().message);
    }
  }
  lost_count_ = static_cast<uint64_t>(
      std::ranges::count_if(unrebuilt_, [](const auto& tried) { return tried.second >= kTriesToRebuild; }));
  if (restored > 0) log::info("{} shards were put back where they belong", restored);
  if (!first) return fail(first.error());
  return restored;
}

std::vector<TargetStatus> Store::target_status() {
  std::vector<TargetStatus> statuses;
  for (const TargetLoad& load : io_.loads()) {
    const std::string& path = io_.target(load.id)->path();
    std::error_code ec;
    const bool wrong = load.state == TargetState::kMissing && std::filesystem::exists(path, ec);
    statuses.push_back({load.id, path, wrong ? "wrong" : std::string(to_string(load.state)),
                        load.usage.bytes_used, load.usage.bytes_free, load.why});
  }
  return statuses;
}

Result<> check_targets(const std::vector<std::unique_ptr<Target>>& targets) {
  if (targets.empty()) return fail(ErrorCode::kInvalidArgument, "a pool needs at least one target");
  std::set<TargetId> ids;
  for (const auto& target : targets) {
    if (target->id() == kNoTarget || !ids.insert(target->id()).second) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("target id {} ({}) is used twice", target->id().value, target->path()));
    }
    if (target->pool_id() != targets.front()->pool_id()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{} and {} belong to different pools",
                                                           target->path(), targets.front()->path()));
    }
  }
  return {};
}

// The metastore and the targets must be of one pool: the stripe numbers of another would be taken for
// orphans.
Result<> check_pool(MetaStore& metastore, uint64_t pool_id) {
  const std::string own = fmt::format("{:016x}", pool_id);
  const auto recorded = metastore.get(kPoolIdFact);
  if (!recorded) return fail(recorded.error());
  if (!*recorded) return metastore.put(kPoolIdFact, own);
  if (**recorded == own) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("the metadata is of pool {} and the targets are of pool {}; bring the right ones together",
                  **recorded, own));
}

// A pool keeps the targets that it was made with: one that nobody names any more is no lost one, but its
// shards would never be looked for.
Result<> check_number(MetaStore& metastore, size_t targets) {
  const auto recorded = metastore.get(kTargetsFact);
  if (!recorded) return fail(recorded.error());
  if (!*recorded) return metastore.put(kTargetsFact, std::to_string(targets));
  if (**recorded == std::to_string(targets)) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("the pool was made with {} targets, and {} are named in pool.toml; name all of them, "
                  "in the order of their numbers, also one whose directory is lost",
                  **recorded, targets));
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> ObjectStore::open(Options options,
                                                       std::vector<std::unique_ptr<Target>> targets,
                                                       std::unique_ptr<MetaStore> metastore) {
  SLUICE_ASSERT(metastore != nullptr);
  if (auto ok = check_targets(targets); !ok) return fail(ok.error());
  if (auto ok = options.default_class.resolve(targets.size()); !ok)
    return fail_with_context("default class", ok.error());
  if (auto ok = check_pool(*metastore, targets.front()->pool_id()); !ok) return fail(ok.error());
  if (auto ok = check_number(*metastore, targets.size()); !ok) return fail(ok.error());
  return std::unique_ptr<ObjectStore>(
      std::make_unique<Store>(std::move(options), std::move(targets), std::move(metastore)));
}

}  // namespace sluice::storage
