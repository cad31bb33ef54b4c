#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "transport/transport.h"

// Finding the service of a pool, and starting one.
namespace sluice::client {

struct ServiceRecord {
  transport::Address address;
  uint32_t pid = 0;
};

// What the service wrote into POOL/service.json when it was ready. kUnavailable, with what to do, when no
// service runs there (no file, or its process is gone).
Result<ServiceRecord> find_service(const std::string& pool);

// Runs `sluice up --pool POOL` (the command beside this library, or the one on PATH) and waits for it.
// Race-free: of several at once, all find the one service.
Result<> start_service(const std::string& pool);

}  // namespace sluice::client
