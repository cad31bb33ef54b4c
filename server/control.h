#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"

// The control plane: HTTP over a Unix socket that only the pool's owner and root may use.
//
//   GET  /status              the status as JSON
//   GET  /metrics             the same for Prometheus
//   POST /drain[?wait_ms=N]   starts draining; answers when nothing is left, when the drain is blocked, or
//   after N ms
//                             (at most kMaxDrainWaitMs): {"bytes_left": N, "state": "...", "blocked": CODE or
//                             null}, CODE as in base/error.h
//   POST /announce            looks now whether clients can find the service, as it does by itself once a
//   second:
//                             POOL/service.json is written again when it is not as it should be
//   POST /keep                a private service stays when the command that started it ends
//   POST /shutdown            an orderly stop; answered before it begins
//
// Thread rule: runs on a thread of its own, from create() to the destructor; ControlCalls are made on that
// thread. Whatever a client sends or does not send costs it its own connection only: requests are bounded in
// size and time, connections in number. A socket that was removed, or replaced by something else, is made
// anew within kControlWatchMs.
namespace sluice::server {

inline constexpr size_t kMaxControlConnections = 64;
inline constexpr size_t kMaxControlRequestBytes = 64 * 1024;
inline constexpr size_t kMaxControlHeaderBytes = 8 * 1024;
inline constexpr uint64_t kControlTimeoutMs = 5'000;
inline constexpr uint64_t kMaxDrainWaitMs = 60'000;
inline constexpr uint64_t kControlWatchMs = 1'000;

struct DrainState {
  uint64_t bytes_left = 0;  // that only the hot tier has, of committed data
  std::string state;        // as in burst_buffer::DrainStatus
  std::optional<ErrorCode> blocked;
};

struct ControlCalls {
  std::function<std::string()> status_json;
  std::function<std::string()> metrics;
  std::function<void()> kick_drain;
  std::function<DrainState()> drain_state;
  std::function<void()> keep;
  std::function<Result<>()> announce;  // also called every kControlWatchMs
  std::function<void()> shut_down;
};

class Control {
 public:
  // Listens at `socket`, replacing what is there; its path may be longer than a socket address holds. The
  // owner holds the pool's lock, so a socket found there is a dead server's.
  static Result<std::unique_ptr<Control>> create(const std::filesystem::path& socket, ControlCalls calls,
                                                 uint64_t timeout_ms = kControlTimeoutMs);
  // Removes the socket and closes the connections.
  virtual ~Control() = default;
};

}  // namespace sluice::server
