#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/extent.h"
#include "base/result.h"
#include "base/types.h"
#include "client/file_stats.h"
#include "client/lock_mode.h"
#include "client/session.h"

// Locks of this process, asked for over the session and kept by lockmgr's client side. Loop thread.
namespace sluice::client {

// An open file's name in lock requests.
struct LockTarget {
  ContainerId container;
  uint64_t handle = 0;
  uint64_t secret = 0;
  std::string path;
  LockSettings settings;
  // Calls `done` when nothing that this file wrote under locks in the extent waits to be written back.
  std::function<void(const Extent&, std::function<void()> done)> flush;
};

// While `hold` lives the lock is in use and not given back. `id` goes into the request; 0 without locks.
struct LockUse {
  uint64_t id = 0;
  std::shared_ptr<void> hold;
};

LockReport to_lock_report(const wire::LocksShownT& shown);

class LockAgent {
 public:
  explicit LockAgent(Session& session);
  ~LockAgent();

  // Locks of a container are asked for in the name of one of its open files, and given back when the last is
  // closed. How they are asked for is for the first of those to say. The last close answers what they did.
  void opened(const LockTarget& target);
  std::optional<LockStats> closed(const LockTarget& target);

  // The writes to come, in order.
  void expect(ContainerId container, std::span<const Extent> writes);

  // A lock that covers `extent`, from the cache or from the service, for one transfer.
  void acquire(ContainerId container, Extent extent, bool write, std::function<void(Result<LockUse>)> done);

  // Calls `done`, at once or later, when no file of this process has anything there that waits to be written
  // back.
  void flush(ContainerId container, Extent extent, std::function<void()> done);

  // The lock that permits writing there, now; 0 when there is none.
  uint64_t covering(ContainerId container, const Extent& extent) const;

  // A lock until release(), against other processes and against other such locks of this one. First come,
  // first served within the process.
  void hold(ContainerId container, Extent extent, bool exclusive, std::function<void(Result<uint64_t>)> done);
  Result<> release(uint64_t held);

  // The service refused a write under this lock: it is not held any more.
  void refused(ContainerId container, uint64_t lock);

  // What the service says.
  void revoke(const wire::RevokeT& revoke);
  void glimpse(const wire::GlimpseT& glimpse);
  // Has the locks replayed with the recovery of the files. Those that another took meanwhile are lost.
  void service_restarted();
  void fenced();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::client
