#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "storage/object_store.h"
#include "storage/testing/fault_metastore.h"
#include "storage/testing/fault_target.h"

// A pool in memory that can be opened again, with a fault plan over all its parts, for tests.
namespace sluice::storage {

using Bytes = std::vector<std::byte>;

// Bytes that tell their place, so that a wrong one is seen.
inline Bytes pattern(size_t size, uint64_t seed) {
  Bytes bytes(size);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = std::byte(static_cast<uint8_t>(state >> 32));
  }
  return bytes;
}

class StoreRig {
 public:
  explicit StoreRig(size_t target_count, uint64_t capacity_bytes = uint64_t{1} << 30, size_t io_threads = 0)
      : plan_(std::make_shared<FaultPlan>()), metastore_(make_memory_metastore()), io_threads_(io_threads) {
    for (uint32_t id = 0; id < target_count; ++id)
      media_.emplace_back(make_memory_target(TargetId(id), capacity_bytes));
  }

  // A new run over the same media; the old one ends first. An error when the fault plan says so.
  Result<> reopen() {
    store_.reset();
    targets_.clear();
    std::vector<std::unique_ptr<Target>> targets;
    for (const auto& medium : media_) {
      auto target = std::make_unique<FaultTarget>(medium, plan_);
      targets_.push_back(target.get());
      targets.push_back(std::move(target));
    }
    ObjectStore::Options options;
    options.io_threads = io_threads_;
    options.now_s = [] { return uint64_t{1'000'000}; };
    auto opened =
        ObjectStore::open(options, std::move(targets), std::make_unique<FaultMetaStore>(metastore_, plan_));
    if (!opened) return fail(opened.error());
    store_ = *std::move(opened);
    return {};
  }

  ObjectStore& store() { return *store_; }
  FaultPlan& plan() { return *plan_; }
  FaultTarget& target(size_t i) { return *targets_[i]; }
  Target& medium(size_t i) { return *media_[i]; }
  MetaStore& metastore() { return *metastore_; }
  size_t target_count() const { return media_.size(); }

  Result<ContainerInfo> create(const std::string& path, const std::string& class_name = "",
                               uint64_t chunk_bytes = 65536) {
    ContainerAttributes attributes;
    attributes.path = path;
    if (!class_name.empty()) attributes.object_class = ObjectClass::parse(class_name).value();
    attributes.chunk_size = Length(chunk_bytes);
    return store_->create(attributes);
  }
  Result<StripeId> place(ContainerId id, const Bytes& bytes) {
    const std::span<const std::byte> whole(bytes);
    return store_->place(id, std::span(&whole, 1));
  }
  Result<Bytes> read(ContainerId id, uint64_t begin, uint64_t end, ReadReport* report = nullptr) {
    Bytes bytes(end - begin, std::byte{0xee});
    auto got = store_->read(id, {Offset(begin), Offset(end)}, bytes);
    if (!got) return fail(got.error());
    if (report != nullptr) *report = *got;
    return bytes;
  }
  // One stripe of these bytes at `at`, published as the next version.
  Result<StripeId> write(ContainerId id, uint64_t at, const Bytes& bytes) {
    auto info = store_->find(id);
    if (!info) return fail(info.error());
    auto stripe = place(id, bytes);
    if (!stripe) return stripe;
    Publication step;
    step.from = info->published;
    step.to = Epoch(info->published.value + 1);
    step.size = Length(std::max(info->size.value, at + bytes.size()));
    step.extents.push_back({Extent::at(Offset(at), Length(bytes.size())), {*stripe, 0}});
    if (auto ok = store_->publish(id, step); !ok) return fail(ok.error());
    return stripe;
  }

  // Every shard that lies on a medium, by stripe.
  std::multiset<StripeId> shards() {
    std::multiset<StripeId> found;
    for (const auto& medium : media_) {
      const auto names = medium->list().value();
      for (const ShardName& name : names) found.insert(name.stripe);
    }
    return found;
  }
  std::set<StripeId> stripes() {
    const auto all = shards();
    return {all.begin(), all.end()};
  }
  // Where the shard lies.
  TargetId place_of(ShardName shard) {
    for (const auto& medium : media_) {
      const auto found = medium->find(shard.stripe).value();
      if (std::find(found.begin(), found.end(), shard.shard) != found.end()) return medium->id();
    }
    ADD_FAILURE() << to_string(shard) << " is nowhere";
    return TargetId(0);
  }

 private:
  std::shared_ptr<FaultPlan> plan_;
  std::vector<std::shared_ptr<Target>> media_;
  std::shared_ptr<MetaStore> metastore_;
  size_t io_threads_;
  std::vector<FaultTarget*> targets_;  // the store's
  std::unique_ptr<ObjectStore> store_;
};

}  // namespace sluice::storage
