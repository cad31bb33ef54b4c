#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "storage/object_store.h"

namespace sluice::server {

// Looks after the redundancy of a pool while its service runs: calls ObjectStore::heal() again and again from
// a thread of its own. The store outlives it.
class Healer {
 public:
  // `period_ms` from the end of one look to the next; each `looks_to_compare` of them one compares all targets
  // with what they should hold.
  Healer(storage::ObjectStore& store, uint64_t period_ms, uint64_t looks_to_compare);
  ~Healer();  // ends after the shard in hand
  Healer(const Healer&) = delete;
  Healer& operator=(const Healer&) = delete;

 private:
  void run();

  storage::ObjectStore& store_;
  const uint64_t period_ms_;
  const uint64_t looks_to_compare_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace sluice::server
