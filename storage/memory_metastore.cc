#include <fmt/format.h>

#include <limits>
#include <map>
#include <mutex>

#include "storage/metastore.h"

namespace sluice::storage {
namespace {

constexpr uint64_t kMaxNumber = std::numeric_limits<int64_t>::max();

class MemoryMetaStore final : public MetaStore {
 public:
  Result<ContainerInfo> create(const ContainerAttributes& attributes, uint64_t now_s) override {
    std::lock_guard lock(mutex_);
    if (by_path_.contains(attributes.path))
      return fail(ErrorCode::kExists, attributes.path + " exists already");
    Container container;
    container.info.id = ContainerId(next_container_++);
    container.info.attributes = attributes;
    container.info.created_s = container.info.modified_s = now_s;
    by_path_[attributes.path] = container.info.id;
    return containers_.emplace(container.info.id, container).first->second.info;
  }

  Result<ContainerInfo> find(const std::string& path) override {
    std::lock_guard lock(mutex_);
    const auto found = by_path_.find(path);
    if (found == by_path_.end()) return fail(ErrorCode::kNotFound, "there is no " + path);
    return containers_.at(found->second).info;
  }

  Result<ContainerInfo> find(ContainerId id) override {
    std::lock_guard lock(mutex_);
    const auto found = containers_.find(id);
    if (found == containers_.end()) return no_container(id);
    return found->second.info;
  }

  Result<std::vector<ContainerInfo>> list(const std::string& path) override {
    std::lock_guard lock(mutex_);
    const std::string below = path == "/" ? path : path + "/";
    std::vector<ContainerInfo> found;
    for (const auto& [name, id] : by_path_) {
      if (name == path || name.starts_with(below)) found.push_back(containers_.at(id).info);
    }
    return found;
  }

  Result<> remove(ContainerId id) override {
    std::lock_guard lock(mutex_);
    const auto found = containers_.find(id);
    if (found == containers_.end()) return no_container(id);
    by_path_.erase(found->second.info.attributes.path);
    containers_.erase(found);
    return {};
  }

  Result<> shape(ContainerId id, Length chunk_size, const std::string& reason) override {
    std::lock_guard lock(mutex_);
    const auto found = containers_.find(id);
    if (found == containers_.end()) return no_container(id);
    auto& info = found->second.info;
    if (info.published != Epoch(0))
      return fail(ErrorCode::kConflict, info.attributes.path + " has a published version already");
    info.attributes.chunk_size = chunk_size;
    info.attributes.chunk_reason = reason;
    return {};
  }

  Result<uint64_t> allot(const std::string& name, uint64_t count) override {
    std::lock_guard lock(mutex_);
    uint64_t& next = counters_.try_emplace(name, 1).first->second;
    if (count == 0) return fail(ErrorCode::kInvalidArgument, "no numbers were asked for");
    if (count > kMaxNumber - next) return fail(ErrorCode::kTooLarge, "no numbers are left for " + name);
    return std::exchange(next, next + count);
  }

  Result<> advance(ContainerId id, Epoch from, Epoch to, Length size, const std::string& delta,
                   uint64_t now_s) override {
    std::lock_guard lock(mutex_);
    if (from >= to) return fail(ErrorCode::kInvalidArgument, "a step must lead to a later epoch");
    const auto found = containers_.find(id);
    if (found == containers_.end()) return no_container(id);
    ContainerInfo& info = found->second.info;
    if (info.published != from) {
      return fail(ErrorCode::kConflict, fmt::format("the published version of {} is {}, not {}",
                                                    info.attributes.path, info.published.value, from.value));
    }
    found->second.steps[to] = delta;
    info.published = to;
    info.size = size;
    info.modified_s = now_s;
    return {};
  }

  Result<std::vector<std::string>> steps(ContainerId id) override {
    std::lock_guard lock(mutex_);
    const auto found = containers_.find(id);
    if (found == containers_.end()) return no_container(id);
    std::vector<std::string> steps;
    for (const auto& [to, delta] : found->second.steps) steps.push_back(delta);
    return steps;
  }

  Result<> aggregate(ContainerId id, Epoch to, const std::string& merged) override {
    std::lock_guard lock(mutex_);
    const auto found = containers_.find(id);
    if (found == containers_.end()) return no_container(id);
    auto& steps = found->second.steps;
    if (!steps.contains(to))
      return fail(ErrorCode::kConflict, fmt::format("no step leads to epoch {}", to.value));
    steps.erase(steps.begin(), steps.upper_bound(to));
    steps[to] = merged;
    return {};
  }

  Result<std::optional<std::string>> get(const std::string& key) override {
    std::lock_guard lock(mutex_);
    const auto found = facts_.find(key);
    if (found == facts_.end()) return std::optional<std::string>();
    return std::optional(found->second);
  }

  Result<> put(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    facts_[key] = value;
    return {};
  }

 private:
  struct Container {
    ContainerInfo info;
    std::map<Epoch, std::string> steps;  // by the epoch they lead to
  };

  static tl::unexpected<Error> no_container(ContainerId id) {
    return fail(ErrorCode::kNotFound, fmt::format("there is no container {}", id.value));
  }

  std::mutex mutex_;
  uint64_t next_container_ = 1;
  std::map<ContainerId, Container> containers_;
  std::map<std::string, ContainerId> by_path_;
  std::map<std::string, uint64_t> counters_;
  std::map<std::string, std::string> facts_;
};

}  // namespace

std::unique_ptr<MetaStore> make_memory_metastore() {
  return std::make_unique<MemoryMetaStore>();
}

}  // namespace sluice::storage
