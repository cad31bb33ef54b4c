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

// kNotFound when the pool's directory is not there, kUnavailable when no service answers at its socket,
// kTimedOut when it does not answer in time. Any HTTP status is a reply.
Result<ControlReply> control_request(const std::filesystem::path& pool, const std::string& method,
                                     const std::string& target, uint64_t timeout_ms);

}  // namespace sluice::client
