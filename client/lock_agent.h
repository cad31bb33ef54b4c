#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/extent.h"
#include "base/result.h"
#include "base/types.h"
#include "client/session.h"
#include "lockmgr/client.h"

// Locks of this process, asked for over the session and kept by lockmgr's client side. Loop thread.
namespace sluice::client {

// An open file's name in lock requests.
struct LockTarget {
  ContainerId container;
  uint64_t handle = 0;
  uint64_t secret = 0;
};

// While `hold` lives the lock is in use and not given back. `id` goes into the request; 0 without locks.
struct LockUse {
  uint64_t id = 0;
  std::shared_ptr<void> hold;
};

class LockAgent {
 public:
  explicit LockAgent(Session& session);
  ~LockAgent();

  // A lock that covers `extent`, from the cache or from the service.
  void acquire(const LockTarget& target, Extent extent, bool write,
               std::function<void(Result<LockUse>)> done);
  void revoke(uint64_t container, uint64_t lock);
  // The service does not know any lock of ours any more.
  void forget_all();
  // Gives back what is cached for a file that is being closed.
  void drop(ContainerId container);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::client
