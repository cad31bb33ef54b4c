#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

// Asks the control plane of a pool's service (server/control.h). Blocking; thread-safe.
namespace sluice::client {

struct ControlReply {
  int status = 0;  // of HTTP
  std::string body;
  int server_pid = 0;  // as the kernel knows it
};

// What to do when nothing listens at the socket while a process holds the pool: it is starting or ending, or
// somebody removed its socket, which it makes anew.
enum class Unheard { kWaitForIt, kFail };

// kNotFound when the pool's directory is not there, kUnavailable when no service runs on it (nothing listens
// at its socket and nobody holds the pool; with kFail, nothing listens), kTimedOut when one does not answer
// in time. Any HTTP status is a reply.
Result<ControlReply> control_request(const std::filesystem::path& pool, const std::string& method,
                                     const std::string& target, uint64_t timeout_ms,
                                     Unheard unheard = Unheard::kWaitForIt);

}  // namespace sluice::client
