#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

// Aggregators that write a file at the same time, in virtual time: the lock manager's real client and server
// code over the simulated transport. What is a model is the time that things take; simulation.cc says how.
namespace sluice::bench::lock_modes {

enum class Scheme { kStandard, kGroup, kLockahead, kAuto, kNone, kFilePerProcess };
inline constexpr Scheme kSchemes[] = {Scheme::kStandard, Scheme::kGroup, Scheme::kLockahead,
                                      Scheme::kAuto,     Scheme::kNone,  Scheme::kFilePerProcess};
std::string_view to_string(Scheme scheme);
Result<Scheme> parse_scheme(std::string_view name);

struct Model {
  double server_bytes_per_s = 20e9;           // what one server takes in, from all clients together
  double link_bytes_per_s = 12.5e9;           // what one aggregator sends
  double copy_bytes_per_s = 10e9;             // into an aggregator's write-back memory
  double message_us = 1.0;                    // of processor time, for each message at either end
  uint64_t dirty_bytes = uint64_t{32} << 20;  // an aggregator's bytes that are not acknowledged yet, at most
  bool write_through = false;  // a write ends when it is acknowledged, not when its lock is held
  bool independent = false;    // aggregators do not wait for each other between writes
  bool unforeseen = false;     // aggregators do not say what they will write
  uint64_t window_extents = 64;
};

struct Load {
  uint32_t aggregators = 8;
  uint32_t servers = 2;
  uint64_t transfer_bytes = 0;
  uint64_t writes = 0;    // of each aggregator
  uint64_t delay_us = 0;  // of a message, one way
};

struct Outcome {
  uint64_t bytes = 0;
  uint64_t writes = 0;
  double seconds = 0;
  uint64_t messages = 0;       // of all kinds, in both directions
  uint64_t lock_messages = 0;  // of those: requests, answers, revokes and releases
  uint64_t waits = 0;          // writes that had to wait for a lock
  double wait_us = 0;          // how long those waited, in all
  uint64_t revokes = 0;
  uint64_t dropped = 0;  // extents asked ahead that were dropped

  double bytes_per_s() const { return static_cast<double>(bytes) / seconds; }
  double messages_per_write() const { return static_cast<double>(messages) / static_cast<double>(writes); }
};

// Write i of aggregator a is the file's transfer i * aggregators + a, and transfer t belongs to server t
// modulo servers, in one file or, with file-per-process, in the aggregator's own. The same arguments give the
// same outcome.
Outcome simulate(const Model& model, const Load& load, Scheme scheme);

}  // namespace sluice::bench::lock_modes
