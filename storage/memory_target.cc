#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "storage/object_class.h"
#include "storage/target.h"

namespace sluice::storage {
namespace {

class MemoryTarget final : public Target {
 public:
  MemoryTarget(TargetId id, uint64_t capacity_bytes, uint64_t pool_id)
      : id_(id),
        capacity_bytes_(capacity_bytes),
        pool_id_(pool_id),
        path_(fmt::format("memory:{}", id.value)) {}

  TargetId id() const override { return id_; }
  uint64_t pool_id() const override { return pool_id_; }
  const std::string& path() const override { return path_; }
  TargetState state() override { return TargetState::kUp; }

  Result<> put(ShardName name, std::span<const std::span<const std::byte>> pieces) override {
    std::vector<std::byte> shard;
    for (const auto piece : pieces) shard.insert(shard.end(), piece.begin(), piece.end());
    std::lock_guard lock(mutex_);
    const auto old = shards_.find(name);
    const uint64_t kept = used_bytes_ - (old == shards_.end() ? 0 : old->second.size());
    if (shard.size() > capacity_bytes_ - std::min(kept, capacity_bytes_)) {
      return fail(ErrorCode::kNoSpace, fmt::format("target {} ({}) is full: {} of {} bytes used", id_.value,
                                                   path_, used_bytes_, capacity_bytes_));
    }
    used_bytes_ = kept + shard.size();
    shards_[name] = std::move(shard);
    return {};
  }

  Result<> get(ShardName name, uint64_t offset, std::span<const std::span<std::byte>> pieces) override {
    std::lock_guard lock(mutex_);
    const auto found = shards_.find(name);
    if (found == shards_.end()) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("target {} ({}) has no {}", id_.value, path_, to_string(name)));
    }
    for (const auto piece : pieces) {
      if (piece.empty()) continue;
      if (offset > found->second.size() || piece.size() > found->second.size() - offset) {
        return fail(ErrorCode::kCorrupt, fmt::format("{} on target {} ({}) is shorter than it should be",
                                                     to_string(name), id_.value, path_));
      }
      std::memcpy(piece.data(), found->second.data() + offset, piece.size());
      offset += piece.size();
    }
    return {};
  }

  Result<> remove(ShardName name) override {
    std::lock_guard lock(mutex_);
    const auto found = shards_.find(name);
    if (found == shards_.end()) return {};
    used_bytes_ -= found->second.size();
    shards_.erase(found);
    return {};
  }

  Result<std::vector<ShardName>> list() override {
    std::lock_guard lock(mutex_);
    std::vector<ShardName> names;
    for (const auto& [name, bytes] : shards_) names.push_back(name);
    return names;
  }

  Result<std::vector<ShardIndex>> find(StripeId stripe) override {
    std::lock_guard lock(mutex_);
    std::vector<ShardIndex> found;
    for (auto at = shards_.lower_bound({stripe, ShardIndex(0)});
         at != shards_.end() && at->first.stripe == stripe; ++at) {
      found.push_back(at->first.shard);
    }
    return found;
  }

  Result<TargetUsage> usage() override {
    std::lock_guard lock(mutex_);
    return TargetUsage{used_bytes_, capacity_bytes_ - std::min(used_bytes_, capacity_bytes_), false};
  }

  Result<> sweep() override { return {}; }

 private:
  const TargetId id_;
  const uint64_t capacity_bytes_;
  const uint64_t pool_id_;
  const std::string path_;
  std::mutex mutex_;
  std::map<ShardName, std::vector<std::byte>> shards_;
  uint64_t used_bytes_ = 0;
};

}  // namespace

std::string to_string(const ShardName& name) {
  return fmt::format("shard {} of stripe {}", name.shard.value, name.stripe.value);
}

std::string_view to_string(TargetState state) {
  switch (state) {
    case TargetState::kUp:
      return "up";
    case TargetState::kMissing:
      return "missing";
    case TargetState::kFailing:
      return "failing";
  }
  return "unknown";
}

std::unique_ptr<Target> make_memory_target(TargetId id, uint64_t capacity_bytes, uint64_t pool_id) {
  return std::make_unique<MemoryTarget>(id, capacity_bytes, pool_id);
}

}  // namespace sluice::storage
