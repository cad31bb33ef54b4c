#include "client/transfer.h"

namespace sluice::client {

bool Transfer::start_next() {
  std::unique_lock lock(mutex_);
  if (under_way_ >= kWindow) {
    const WaitTimer timer(waits_);
    core_.wait(lock, changed_, [this] { return under_way_ < kWindow; });
  }
  if (failed_) return false;
  ++under_way_;
  return true;
}

void Transfer::expect(size_t batch, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (parts_.size() <= batch) parts_.resize(batch + 1);
  parts_[batch].expected = bytes;
}

void Transfer::finished(size_t batch, Result<uint64_t> bytes) {
  const std::lock_guard lock(mutex_);
  failed_ = failed_ || !bytes;
  parts_[batch].outcome.emplace(std::move(bytes));
  --under_way_;
  changed_.notify_all();
}

void Transfer::wait_all() {
  std::unique_lock lock(mutex_);
  if (under_way_ == 0) return;
  const WaitTimer timer(waits_);
  core_.wait(lock, changed_, [this] { return under_way_ == 0; });
}

uint64_t Transfer::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const Part& part : parts_) {
    if (!part.outcome || !*part.outcome) break;
    total += **part.outcome;
    if (**part.outcome < part.expected) break;
  }
  return total;
}

std::optional<Error> Transfer::error() const {
  const std::lock_guard lock(mutex_);
  for (const Part& part : parts_) {
    if (part.outcome && !*part.outcome) return part.outcome->error();
  }
  return std::nullopt;
}

}  // namespace sluice::client
