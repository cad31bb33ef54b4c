#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "client/lock_mode.h"
#include "lockmgr/client.h"

// What one open file cost one process: what was planned, sent and waited for. Told when it is closed.
namespace sluice::client {

// A number that any thread adds to. Counting orders nothing.
class Counter {
 public:
  void add(uint64_t more = 1) { value_.fetch_add(more, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Requests that went one way, and their bytes. Only those that were done.
struct Tally {
  Counter requests, bytes;
  void add(uint64_t more) {
    requests.add();
    bytes.add(more);
  }
};

// Times that a caller did wait, and how long in all.
struct WaitTally {
  Counter count, us;
};

// Looks at the clock only where somebody waits.
class WaitTimer {
 public:
  explicit WaitTimer(WaitTally& tally) : tally_(tally) {}
  ~WaitTimer() {
    const auto waited = std::chrono::steady_clock::now() - began_;
    tally_.count.add();
    tally_.us.add(
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(waited).count()));
  }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  WaitTally& tally_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// Thread-safe. An access is one call; it takes one request for each 4 MiB or 1024 extents.
struct FileCounters {
  Counter writes, reads;    // accesses
  Tally written_slab;       // copied into the mapped hot tier
  Tally written_remote;     // fetched by the service (RMA)
  Tally written_inline;     // in the message
  Tally gathered;           // of the accesses: kept under locks, and sent with others
  Tally read_told;          // out of the mapped hot tier, from places known before: without a message
  Tally read_mapped;        // out of the mapped hot tier, from places that an answer named
  Tally read_remote;        // put into our memory by the service (RMA)
  Tally read_inline;        // in the answer
  Counter messages;         // to the service, but for those about locks
  WaitTally for_answers;    // of the service
  WaitTally for_room;       // in the hot tier
  Counter direct;           // collective accesses of which each rank did its own part
  Counter two_phase;        // those whose pieces the ranks exchanged first
  Counter exchanged_bytes;  // that this rank sent to others for that
};

struct LockStats {
  lockmgr::LockCounts counts;
  uint64_t waited = 0;  // accesses that had to wait for a lock
  uint64_t wait_us = 0;
};

struct FileStats {
  std::string path;
  LockSettings settings;
  const FileCounters& counters;
  // Locks are one process's: they are told when it closes the last of its handles of the file.
  std::optional<LockStats> locks;
};

// A line without its end for people, and the same as a JSON object. Pure.
std::string stats_line(const FileStats& stats);
std::string stats_json(const FileStats& stats, int pid);

// Where SLUICE_STATS (`destination`) says: "" nowhere, "1" a line on stderr, else a JSON line at the end of
// that file. One write each, so that processes do not mix their lines. kIo when the file cannot be written.
Result<> tell_stats(const std::string& destination, const FileStats& stats);
// As SLUICE_STATS says, when it is set. What goes wrong is logged.
void tell_stats_if_asked(const FileStats& stats);

}  // namespace sluice::client
