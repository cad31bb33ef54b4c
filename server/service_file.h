#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

// POOL/service.json, by which clients find the service:
//   {"version": "0.1.0", "pid": 123, "boot": "0123456789abcdef", "addresses": ["tcp://127.0.0.1:40001"],
//    "control": "control.sock"}
// `boot` differs after each start. `control` is relative to the pool. The file is replaced whole when the
// service is ready, again when somebody damaged it, and removed when the service stops in order; after a
// crash it stays and its addresses do not answer.
namespace sluice::server {

struct ServiceFile {
  std::string version;
  int pid = 0;
  uint64_t boot = 0;
  std::vector<std::string> addresses;
  std::string control;
};

std::string print_service_file(const ServiceFile& service);
// Whether the file holds exactly that.
bool service_file_is(const std::filesystem::path& path, const ServiceFile& service);
Result<> write_service_file(const std::filesystem::path& path, const ServiceFile& service);

}  // namespace sluice::server
