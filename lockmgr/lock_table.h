#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "lockmgr/growth.h"
#include "lockmgr/interval_tree.h"
#include "lockmgr/lock_slab.h"
#include "lockmgr/lock_types.h"

namespace sluice::lockmgr {

struct LockReply {
  bool waiting = false;  // then `extents` is empty, and a LockGrant with `ticket` follows from a later call
  Ticket ticket;
  std::vector<ExtentAnswer> extents;  // one for each extent asked, in the order asked
};

// A request that waited is granted.
struct LockGrant {
  OwnerId owner;
  Ticket ticket;
  std::vector<ExtentAnswer> extents;
};

// `owner` is asked to give the lock back: another request waits for it, or it was reclaimed. Said once for
// each lock.
struct LockRevoke {
  OwnerId owner;
  LockHandle handle;
  Extent extent;
};

// What a call brought about for others. To be told in this order: all grants, then all revokes, since a
// revoke may name a lock that a grant of the same call gave out. Calls append and never clear.
struct LockEvents {
  std::vector<LockGrant> grants;
  std::vector<LockRevoke> revokes;
};

struct LockInfo {
  LockHandle handle;
  OwnerId owner;
  LockMode mode = LockMode::kPw;
  GroupId group;
  Extent extent;
  bool revoked = false;
  bool ordinary = false;  // taken by a blocking request, not asked ahead
};

struct LockWaiterInfo {
  Ticket ticket;
  OwnerId owner;
  LockMode mode = LockMode::kPw;
  GroupId group;
  std::vector<Extent> extents;
};

// The range locks of one object.
//
// Pure: no network, disk, clock or threads; not thread-safe. The same calls give the same answers.
//
// Promised:
// - Two granted locks never conflict (lock_types.h says what conflicts). Overlapping locks of one owner
//   are kept apart: nothing is merged or shrunk.
// - A request is answered for each extent: same or covered when the owner holds it already and has not
//   been asked to give it back; else granted when nothing conflicts; else a speculative extent is dropped
//   and a blocking request waits.
// - A blocking request waits for conflicting granted locks and for conflicting requests that came
//   earlier, for nothing else. So no conflicting request overtakes it, and it is granted once those
//   before it are gone.
// - A blocking request of several extents is granted as a whole, and holds nothing while it waits. So
//   requests cannot wait for each other in a circle, as long as no owner makes one wait while it keeps
//   using what it holds.
// - While a request waits, every granted lock in its way has been revoked once, also one that was granted
//   before it from the queue.
// - A lock that was revoked no longer answers "covered", so an owner cannot live on it while others wait.
// - Locks of blocking requests grow by the rules in growth.h.
//
// Not promised: that an owner gives anything back (evict() is the answer), and any order among requests
// that do not conflict.
//
// Cost, with n locks and k of them in conflict: request O(log n + k), cancel O(log n + waiting requests in
// conflict). Whether an owner of many locks holds a PR lock around an extent costs O(m) more when m PR
// locks of others are around it.
class LockTable {
 public:
  // Handles of a table that continues another's life do not repeat when it starts from that one's
  // next_generation().
  explicit LockTable(uint32_t first_generation = 1);
  LockTable(const LockTable&) = delete;
  LockTable& operator=(const LockTable&) = delete;

  // `reply` is overwritten. On error nothing changed; kInvalidArgument names the field, kTooLarge the limit.
  Result<> request(const LockRequest& request, LockReply& reply, LockEvents& events);

  // Puts back a lock that an owner held before a restart: exactly this extent, never grown, waiting or
  // covered. kConflict when someone else's lock or request is in the way. `extents` of the request is one
  // extent.
  Result<LockHandle> adopt(const LockRequest& request);

  // The owner gives a lock back. kNotFound when it is not a lock of this owner (any more).
  Result<> cancel(OwnerId owner, LockHandle handle, LockEvents& events);

  // The owner gives up waiting. kNotFound when the request does not wait (any more): its grant may be on the
  // way.
  Result<> withdraw(OwnerId owner, Ticket ticket, LockEvents& events);

  // Frees all that the owner holds and waits for. Answers how many locks those were.
  size_t evict(OwnerId owner, LockEvents& events);

  // Asks for a lock back without anybody waiting for it. False when it is not held or was asked for already.
  bool reclaim(LockHandle handle, LockEvents& events);

  std::optional<LockInfo> find(LockHandle handle) const;
  std::vector<LockInfo> locks() const;                  // by begin, then handle
  std::vector<LockInfo> locks_of(OwnerId owner) const;  // in no order
  std::vector<LockWaiterInfo> waiters() const;          // by ticket

  // Whoever but `except` holds PW locks that reach into the extent. O(log n + those locks).
  std::set<OwnerId> writers(const Extent& extent, OwnerId except) const;

  size_t granted_count() const;
  size_t granted_count(OwnerId owner) const;
  size_t waiting_count() const { return waiters_.size(); }
  bool idle() const { return slab_.used() == 0; }
  uint32_t contention() const { return contention_.score(); }
  uint32_t next_generation() const { return slab_.next_generation(); }
  // All that the table allocated, in bytes.
  size_t memory_bytes() const;
  // For tests: aborts when two granted locks conflict, or trees, lists and counts disagree. O(n^2).
  void check() const;

 private:
  using Trees = std::array<IntervalTree, kLockModes>;

  // Whom a request is in conflict with, mode by mode: everyone there but one party, or no one.
  struct Rivals {
    std::array<bool, kLockModes> conflicts{};
    std::array<IntervalTree::Party, kLockModes> except{};
  };
  struct Claim {
    OwnerId owner;
    LockMode mode;
    GroupId group;
  };
  struct Waiter {
    Claim claim;
    uint32_t flags = 0;
    // Pairs of (an extent of this request, what it waits for). The request is granted when none is left.
    uint64_t blockers = 0;
    std::vector<uint32_t> slots;
  };

  static Rivals rivals_of(const Claim& claim);
  static IntervalTree::Party party_of(const Claim& claim);
  static size_t tree_of(LockMode mode) { return static_cast<size_t>(mode) - 1; }
  static Claim claim_of(const LockSlot& slot) { return {slot.owner, slot.mode, slot.group}; }

  std::optional<ExtentAnswer> find_own(const Claim& claim, const Extent& extent) const;
  bool answers_own(const LockSlot& slot, const Claim& claim, const Extent& extent) const;
  bool untouched(LockMode mode, const Extent& extent) const;
  LockBlocker first_blocker(const Rivals& rivals, const Extent& extent) const;
  ExtentAnswer speculate(const Claim& claim, const Rivals& rivals, const Extent& extent);
  Extent grow(const Rivals& rivals, const Extent& asked) const;
  bool may_grow(const Claim& claim, uint32_t flags, size_t extents) const;
  void enqueue(const LockRequest& request, const Rivals& rivals, LockReply& reply, LockEvents& events);

  uint32_t add_slot(const Claim& claim, const Extent& extent, LockSlot::State state, bool ordinary);
  uint32_t add_granted(const Claim& claim, const Extent& extent, bool ordinary);
  void remove_granted(uint32_t index);
  void remove_waiting(uint32_t index);
  void remove_waiter(uint64_t ticket);
  void revoke(uint32_t index, LockEvents& events);
  ExtentAnswer answer_for(uint32_t index, LockAnswer answer) const;
  LockInfo info_of(uint32_t index) const;
  void grant_ready(LockEvents& events);
  void grant_waiter(uint64_t ticket, LockEvents& events);

  template <class Visit>
  static void visit_rivals(const Trees& trees, const Rivals& rivals, const Extent& extent, Visit&& visit) {
    for (size_t t = 0; t < trees.size(); ++t) {
      if (!rivals.conflicts[t] || trees[t].empty()) continue;
      trees[t].visit_overlapping(extent, rivals.except[t], visit);
    }
  }

  LockSlab slab_;
  Trees granted_;
  Trees waiting_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> owners_;  // the slots of those with granted locks
  std::map<uint64_t, Waiter> waiters_;                          // by ticket
  std::set<uint64_t> ready_;  // tickets of waiters with no blockers; empty between calls
  uint64_t next_ticket_ = 1;
  Contention contention_;
};

}  // namespace sluice::lockmgr
