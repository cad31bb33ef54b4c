#include "engine/blocked_watch.h"

namespace sluice::engine {

bool BlockedWatch::given_up(uint64_t now_ms, const burst_buffer::DrainStatus& status) {
  const bool seen = since_ms_ && now_ms - looked_ms_ <= kMaxGapMs && status.bytes_drained == bytes_drained_;
  looked_ms_ = now_ms;
  bytes_drained_ = status.bytes_drained;
  if (!status.blocked)
    since_ms_.reset();
  else if (!seen)
    since_ms_ = now_ms;
  return since_ms_ && now_ms - *since_ms_ >= patience_ms_;
}

Error blocked_error(const burst_buffer::DrainStatus& status, const std::string& what) {
  const ErrorCode reason = status.blocked.value_or(ErrorCode::kIo);
  const bool told =
      reason == ErrorCode::kNoSpace || reason == ErrorCode::kAccess || reason == ErrorCode::kCorrupt;
  return {told ? reason : ErrorCode::kIo,
          what + " cannot be drained (" + status.state +
              "); what was synced stays in the hot tier and is tried again: put "
              "that right, see `sluice status`"};
}

}  // namespace sluice::engine
