#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "storage/shard_format.h"
#include "storage/target.h"

namespace sluice::storage {

// The most recently used shard headers. A shard never changes under its name but to be repaired, which gives
// it the same header again; so what is here is never stale, at worst the header of a shard that is gone.
// Thread-safe.
class HeaderCache {
 public:
  using HeaderPtr = std::shared_ptr<const ShardHeader>;
  static constexpr size_t kMaxHeaders = 8192;

  HeaderPtr find(ShardName name) {
    std::lock_guard lock(mutex_);
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    used_.splice(used_.begin(), used_, found->second);
    return found->second->second;
  }

  void put(ShardName name, HeaderPtr header) {
    std::lock_guard lock(mutex_);
    if (by_name_.contains(name)) return;
    used_.emplace_front(name, std::move(header));
    by_name_[name] = used_.begin();
    if (used_.size() <= kMaxHeaders) return;
    by_name_.erase(used_.back().first);
    used_.pop_back();
  }

  void forget(ShardName name) {
    std::lock_guard lock(mutex_);
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return;
    used_.erase(found->second);
    by_name_.erase(found);
  }

 private:
  using Used = std::list<std::pair<ShardName, HeaderPtr>>;
  std::mutex mutex_;
  Used used_;  // the latest first
  std::map<ShardName, Used::iterator> by_name_;
};

}  // namespace sluice::storage
