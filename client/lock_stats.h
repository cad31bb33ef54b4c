#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/lock_mode.h"
#include "lockmgr/client.h"

// What the locks of one file cost one process, told when it closes the file.
namespace sluice::client {

struct LockStats {
  std::string path;
  LockSettings settings;
  lockmgr::LockCounts counts;
  uint64_t waited = 0;  // accesses that had to wait for a lock
  uint64_t wait_us = 0;
};

// A line without its end for people, and the same as a JSON object. Pure.
std::string stats_line(const LockStats& stats);
std::string stats_json(const LockStats& stats, int pid);

// Where SLUICE_STATS (`destination`) says: "" nowhere, "1" a line on stderr, else a JSON line at the end of
// that file. One write each, so that processes do not mix their lines. kIo when the file cannot be written.
Result<> tell_stats(const std::string& destination, const LockStats& stats);

}  // namespace sluice::client
