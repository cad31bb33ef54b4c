#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "client/core.h"
#include "client/file_stats.h"

namespace sluice::client {

// The requests of one read or write: several under way at once, one outcome. Batches are numbered from 0 in
// file order.
//
// Thread rule: start_next(), wait_all() and outcome() by the caller; finished() by the loop thread.
class Transfer {
 public:
  static constexpr size_t kWindow =
      4;  // requests under way; with batches of 4 MiB enough to keep either lane busy

  // `waits`: where the caller's waiting is counted.
  Transfer(Core& core, WaitTally& waits) : core_(core), waits_(waits) {}

  // Waits until another request may be under way. False when a batch failed: nothing more needs to be
  // started.
  bool start_next();
  void finished(size_t batch, Result<uint64_t> bytes);
  void wait_all();

  // After wait_all(): bytes of the batches up to the first that failed or was short, and what failed first.
  uint64_t bytes() const;
  std::optional<Error> error() const;
  void expect(size_t batch, uint64_t bytes);

 private:
  struct Part {
    uint64_t expected = 0;
    std::optional<Result<uint64_t>> outcome;
  };
  Core& core_;
  WaitTally& waits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t under_way_ = 0;
  bool failed_ = false;
  std::vector<Part> parts_;
};

}  // namespace sluice::client
