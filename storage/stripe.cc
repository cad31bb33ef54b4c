#include "storage/stripe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/assert.h"
#include "base/log.h"
#include "storage/shard_format.h"
#include "storage/stripe_encoder.h"

namespace sluice::storage {
namespace {

// The bytes of one shard file: its header and its pieces.
struct ShardFile {
  std::array<std::byte, kShardHeaderBytes> header;
  std::vector<std::span<const std::byte>> pieces;
};

ShardFile shard_file(uint64_t pool_id, StripeId id, ContainerId container, const StripeShape& shape,
                     uint32_t index, const EncodedStripe& encoded) {
  ShardFile file{
      encode_shard_header({pool_id, container, id, ShardIndex(index), shape, encoded.block_crc[index]}), {}};
  file.pieces.reserve(encoded.shards[index].size() + 1);
  file.pieces.insert(file.pieces.end(), encoded.shards[index].begin(), encoded.shards[index].end());
  return file;
}

// The failures of the shards of one stripe, as one error.
Error too_many_failed(const StripeShape& shape, const std::map<ShardIndex, Error>& failures) {
  Error error(ErrorCode::kIo, "");
  std::string list;
  for (const auto& [shard, failure] : failures) {
    if (failure.code == ErrorCode::kNoSpace) error.code = ErrorCode::kNoSpace;
    if (failure.code == ErrorCode::kUnavailable && error.code == ErrorCode::kIo)
      error.code = ErrorCode::kUnavailable;
    list += fmt::format("{}shard {}: {}", list.empty() ? "" : "; ", shard.value, failure.message);
  }
  error.message = fmt::format("cannot write {}+{} shards, {} failed and {} may: {}", shape.k, shape.m,
                              failures.size(), shape.m, list);
  error.retryable = true;
  return error;
}

}  // namespace

StripeIo::StripeIo(std::span<const std::unique_ptr<Target>> targets, size_t threads) : workers_(threads) {
  for (const auto& target : targets) {
    SLUICE_ASSERT(targets_.empty() || target->pool_id() == pool_id_);
    pool_id_ = target->pool_id();
    const bool is_new = targets_.emplace(target->id(), target.get()).second;
    SLUICE_ASSERT(is_new);
  }
}

StripeIo::~StripeIo() = default;

Target* StripeIo::target(TargetId id) const {
  const auto found = targets_.find(id);
  return found == targets_.end() ? nullptr : found->second;
}

const Codec& StripeIo::codec(uint32_t k, uint32_t m) {
  std::lock_guard lock(mutex_);
  auto& codec = codecs_[{k, m}];
  if (codec == nullptr) codec = std::make_unique<Codec>(k, m);
  return *codec;
}

std::vector<TargetLoad> StripeIo::loads() {
  std::vector<TargetLoad> loads;
  for (const auto& [id, target] : targets_) {
    TargetLoad load{id, TargetState::kUp, {}};
    const auto usage = target->usage();
    if (usage) {
      load.usage = *usage;
      if (usage->failing) load.state = TargetState::kFailing;
    } else {
      load.state =
          usage.error().code == ErrorCode::kUnavailable ? TargetState::kMissing : TargetState::kFailing;
      load.why = usage.error().message;
    }
    loads.push_back(load);
  }
  return loads;
}

Result<StripeRecord> StripeIo::write(StripeId id, ContainerId container, const StripeShape& shape,
                                     std::span<const std::span<const std::byte>> pieces,
                                     Placement placement) {
  SLUICE_ASSERT(is_sound(shape) && placement.shards.size() == shape.width() &&
                placement.promised.size() == shape.width());
  StripeRecord record{id, container, shape, std::move(placement.shards)};
  std::map<ShardIndex, Error> failures;
  std::vector<ShardIndex> placed;
  for (uint32_t shard = 0; shard < shape.width(); ++shard) {
    if (record.targets[shard] != kNoTarget) {
      placed.push_back(ShardIndex(shard));
    } else {
      failures[ShardIndex(shard)] = Error(ErrorCode::kUnavailable, "no other target is up and has room");
      record.targets[shard] = placement.promised[shard];
    }
  }
  if (failures.size() > shape.m) return fail(too_many_failed(shape, failures));

  const EncodedStripe encoded = encode_stripe(codec(shape.k, shape.m), shape, pieces, buffers_);
  auto put = [&](ShardIndex shard, TargetId on) -> Result<> {
    ShardFile file = shard_file(pool_id_, id, container, shape, shard.value, encoded);
    file.pieces.insert(file.pieces.begin(), std::span<const std::byte>(file.header));
    return target(on)->put({id, shard}, file.pieces);
  };
  std::vector<Result<>> results(placed.size());
  workers_.run(placed.size(),
               [&](size_t i) { results[i] = put(placed[i], record.targets[placed[i].value]); });

  size_t next_spare = 0;
  for (size_t i = 0; i < placed.size(); ++i) {
    TargetId& on = record.targets[placed[i].value];
    const TargetId first_choice = on;
    const Result<> first_result = results[i];
    while (!results[i] && next_spare < placement.spares.size()) {
      // What the failed put may have left must not be found beside the one on the spare.
      const auto cleared = target(on)->remove({id, placed[i]});
      if (!cleared) log::debug("{}", cleared.error().message);
      on = placement.spares[next_spare++];
      results[i] = put(placed[i], on);
    }
    if (results[i]) continue;
    on = first_choice;  // where a read will look for it, and repair it
    failures[placed[i]] = first_result.error();
  }
  if (failures.size() > shape.m) {
    if (auto removed = remove(record); !removed) log::debug("{}", removed.error().message);
    return fail(too_many_failed(shape, failures));
  }
  for (const auto& [shard, failure] : failures) {
    const TargetId on = record.targets[shard.value];
    if (on != kNoTarget) note_lacking({id, shard});
    if (on != kNoTarget && !first_loss_of(on)) continue;
    log::warn("stripe {} of container {} is written without shard {} of {}+{}: {}", id.value, container.value,
              shard.value, shape.k, shape.m, failure.message);
  }
  return record;
}

Result<> StripeIo::remove(const StripeRecord& stripe) {
  Result<> outcome;
  for (uint32_t shard = 0; shard < stripe.targets.size(); ++shard) {
    Target* const on = target(stripe.targets[shard]);
    if (on == nullptr) continue;
    const ShardName name{stripe.id, ShardIndex(shard)};
    headers_.forget(name);
    auto removed = on->remove(name);
    if (!removed && removed.error().code != ErrorCode::kUnavailable) outcome = std::move(removed);
  }
  std::lock_guard lock(mutex_);
  for (uint32_t shard = 0; shard < stripe.targets.size(); ++shard) {
    repair_failed_.erase({stripe.id, ShardIndex(shard)});
    lacking_.erase({stripe.id, ShardIndex(shard)});
  }
  return outcome;
}

Result<StripeRecord> StripeIo::locate(StripeId id) {
  std::optional<StripeRecord> record;
  size_t unreachable = 0;
  for (const auto& [target_id, target] : targets_) {
    const auto found = target->find(id);
    if (!found) {
      ++unreachable;
      continue;
    }
    for (const ShardIndex shard : *found) {
      std::array<std::byte, kShardHeaderBytes> bytes{};
      const std::span<std::byte> whole(bytes);
      if (!target->get({id, shard}, 0, std::span(&whole, 1))) continue;
      const auto header = decode_shard_header(bytes);
      if (!header || header->pool_id != pool_id_ || header->stripe != id || header->shard != shard) continue;
      if (!record) {
        record = StripeRecord{id, header->container, header->shape, {}};
        record->targets.assign(header->shape.width(), kNoTarget);
      }
      if (header->container != record->container || header->shape != record->shape) continue;
      if (record->targets[shard.value] == kNoTarget) record->targets[shard.value] = target_id;
    }
  }
  if (record) return *std::move(record);
  return fail(ErrorCode::kNotFound,
              fmt::format("stripe {} is not on any target that can be reached ({} of {} cannot)", id.value,
                          unreachable, targets_.size()));
}

bool StripeIo::claim_repair(ShardName name, bool after_failure) {
  std::lock_guard lock(mutex_);
  if (repair_failed_.contains(name) && !after_failure) return false;
  return repairing_.insert(name).second;
}

void StripeIo::end_repair(ShardName name, bool succeeded) {
  std::lock_guard lock(mutex_);
  repairing_.erase(name);
  if (succeeded) {
    repair_failed_.erase(name);
    lacking_.erase(name);
  } else {
    repair_failed_.insert(name);
  }
}

std::vector<ShardName> StripeIo::lacking() {
  std::lock_guard lock(mutex_);
  return {lacking_.begin(), lacking_.end()};
}

size_t StripeIo::lacking_count() {
  std::lock_guard lock(mutex_);
  return lacking_.size();
}

void StripeIo::note_lacking(ShardName name) {
  std::lock_guard lock(mutex_);
  lacking_.insert(name);
}

void StripeIo::forget_lacking(ShardName name) {
  std::lock_guard lock(mutex_);
  lacking_.erase(name);
}

bool StripeIo::first_loss_of(TargetId id) {
  std::lock_guard lock(mutex_);
  return lost_targets_.insert(id).second;
}

void StripeIo::seen_well(TargetId id) {
  std::lock_guard lock(mutex_);
  lost_targets_.erase(id);
}

}  // namespace sluice::storage
