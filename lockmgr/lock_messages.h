#pragma once

#include <vector>

#include "lockmgr/lock_types.h"

// What clients and the lock server say to each other, as plain data; how it travels is somebody else's
// business. Between one client and the server messages keep their order, in both directions.
namespace sluice::lockmgr {

struct LockAsk {
  RequestId id;
  ContainerId container;
  LockMode mode = LockMode::kPw;
  GroupId group;
  uint32_t flags = kBlocking;
  std::vector<Extent> extents;
};

// A lock that a client held before the server restarted.
struct HeldLock {
  LockHandle handle;  // the old one
  LockMode mode = LockMode::kPw;
  GroupId group;
  Extent extent;
  bool ordinary = true;
};

}  // namespace sluice::lockmgr
