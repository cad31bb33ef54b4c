#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "transport/transport.h"

// Finding the service of a pool, and starting one.
namespace sluice::client {

struct ServiceRecord {
  transport::Address address;
  uint32_t pid = 0;
};

// The pid of the process that holds POOL/lock, 0 when it is not known; nothing when nobody holds it. The
// kernel is asked, so neither a pid that was used again nor a file that was left behind deceives it.
Result<std::optional<int>> pool_holder(const std::filesystem::path& pool);

// The service that runs on the pool: by POOL/service.json when that is the holder's, else by asking at
// POOL/control.sock, for at most kAskServiceMs. kUnavailable, with what to do, when none runs, or when the
// one that holds the pool is not ready.
inline constexpr uint64_t kAskServiceMs = 500;
Result<ServiceRecord> find_service(const std::string& pool);

// Runs `sluice up --pool POOL` (the command beside this library, or the one on PATH) and waits for it.
// Race-free: of several at once, all find the one service. A directory that is not there becomes a new pool,
// of which the one caller that made it says a line (log::warn); one whose parent is not there is more likely
// a slip, and kNotFound.
Result<> start_service(const std::string& pool);

}  // namespace sluice::client
