#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/client.h"
#include "lockmgr/strategy.h"

// Which lock mode a file is opened with, and why. Pure.
namespace sluice::client {

struct LockSettings {
  enum class Reason { kAsked, kReading, kAlone, kOthers };  // the last three: what "auto" went by

  lockmgr::LockPolicy policy = lockmgr::LockPolicy::kNone;
  uint32_t extents = lockmgr::LockaheadStrategy::kDefaultExtents;  // of a window of lockahead
  Reason reason = Reason::kAsked;
  uint32_t writers = 0;  // others that had the file open for writing

  bool operator==(const LockSettings&) const = default;

  bool takes_locks() const { return policy != lockmgr::LockPolicy::kNone; }
  std::string name() const { return std::string(lockmgr::to_string(policy)); }
  // One line for people: what is done and why.
  std::string explain() const;
  // One word without blanks, for those who attach; read() takes nothing else.
  std::string print() const;
  static Result<LockSettings> read(const std::string& word);
};

inline constexpr uint32_t kMaxLockaheadExtents = 4096;

// kInvalidArgument, naming SLUICE_LOCK_MODE and the modes there are.
Result<> check_lock_mode(const std::string& mode);

// What `mode` comes to. "auto": no locks for a file that is only read, or that nobody else has open for
// writing, because under commit visibility nobody sees a transaction before it is whole, and MPI leaves
// overlapping writes of one job to the job; where others write the file too, lockahead while the writes
// follow a pattern, standard otherwise. `extents` 0: the default.
Result<LockSettings> settle_lock_mode(const std::string& mode, uint32_t extents, AccessMode access,
                                      uint32_t writers);

}  // namespace sluice::client
