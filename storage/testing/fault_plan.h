#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/error.h"

namespace sluice::storage {

// Counts operations over all the substitutes that share it, and makes one of them, or all from one on, fail.
class FaultPlan {
 public:
  enum class When {
    kBefore,
    kAfter
  };  // of the failing operation: not done, or done and yet reported as failed

  // The nth operation from now (1 is the next) fails with `code`.
  void fail_nth(uint64_t n, ErrorCode code, When when = When::kBefore) { arm(n, n, code, when); }
  // From the nth operation on nothing is done any more: the process is dead. With kAfter the nth itself still
  // happens.
  void crash_at_nth(uint64_t n, When when = When::kBefore) {
    arm(n, std::numeric_limits<uint64_t>::max(), ErrorCode::kIo, when);
  }
  void disarm() { first_ = 0; }
  bool fired() const { return fired_; }

  // One operation: its number, for after().
  uint64_t begin() { return ++count_; }
  std::optional<Error> before(uint64_t operation) {
    return operation > first_ || when_ == When::kBefore ? fault(operation) : std::nullopt;
  }
  std::optional<Error> after(uint64_t operation) {
    return operation == first_ && when_ == When::kAfter ? fault(operation) : std::nullopt;
  }

 private:
  void arm(uint64_t first, uint64_t last, ErrorCode code, When when) {
    count_ = 0;
    fired_ = false;
    last_ = last;
    code_ = code;
    when_ = when;
    first_ = first;
  }
  std::optional<Error> fault(uint64_t operation) {
    const uint64_t first = first_;
    if (first == 0 || operation < first || operation > last_) return std::nullopt;
    fired_ = true;
    Error error(code_, "injected fault");
    if (when_ == When::kAfter) error.mark_outcome_unknown();
    return error;
  }

  std::atomic<uint64_t> count_ = 0;
  std::atomic<uint64_t> first_ = 0;
  std::atomic<bool> fired_ = false;
  uint64_t last_ = 0;
  ErrorCode code_ = ErrorCode::kIo;
  When when_ = When::kBefore;
};

}  // namespace sluice::storage
