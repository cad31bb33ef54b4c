#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "burst_buffer/drain.h"

namespace sluice::engine {

// Tells a drain that fails for a moment from one that nobody should wait for. Pure; times in milliseconds of
// any one clock. Not thread-safe.
//
// A drain is given up on when it was seen blocked at every look for patience_ms and carried no byte
// meanwhile. What lies between two looks further apart than kMaxGapMs was not seen, and counts for nothing.
// The drain itself goes on trying.
class BlockedWatch {
 public:
  static constexpr uint64_t kPatienceMs = 10'000;
  static constexpr uint64_t kMaxGapMs = 1'000;

  explicit BlockedWatch(uint64_t patience_ms = kPatienceMs) : patience_ms_(patience_ms) {}

  bool given_up(uint64_t now_ms, const burst_buffer::DrainStatus& status);

 private:
  const uint64_t patience_ms_;
  std::optional<uint64_t> since_ms_;
  uint64_t looked_ms_ = 0;
  uint64_t bytes_drained_ = 0;
};

// What to tell somebody who waited for `what` to be drained: kNoSpace, kAccess or kCorrupt when that is the
// reason, kIo for all others.
Error blocked_error(const burst_buffer::DrainStatus& status, const std::string& what);

}  // namespace sluice::engine
