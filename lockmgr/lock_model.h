#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "lockmgr/lock_table.h"

// The lock table said again as plainly as possible: lists, and every rule looked up by scanning them all.
// Tests hold it against the real one. It shares the request's validation and nothing else.
namespace sluice::lockmgr {

class LockModel {
 public:
  struct Lock {
    uint64_t id;
    OwnerId owner;
    LockMode mode;
    GroupId group;
    Extent extent;
    bool revoked = false;
    bool ordinary = false;
  };
  struct Request {
    uint64_t ticket;
    OwnerId owner;
    LockMode mode;
    GroupId group;
    uint32_t flags;
    std::vector<Extent> extents;
  };
  struct Answer {
    LockAnswer answer = LockAnswer::kDropped;
    LockBlocker blocker = LockBlocker::kNone;
    std::vector<uint64_t> ids;  // the new lock, or all own locks that may be named as covering
    Extent extent;              // kGranted: of the new lock
  };
  struct Grant {
    uint64_t ticket;
    std::vector<Answer> answers;
  };
  struct Events {
    std::vector<Grant> grants;
    std::vector<uint64_t> revokes;
  };
  struct Reply {
    bool waiting = false;
    uint64_t ticket = 0;
    std::vector<Answer> answers;
  };

  Reply request(const LockRequest& r, Events& events) {
    Request request{0, r.owner, r.mode, r.group, r.flags, {r.extents.begin(), r.extents.end()}};
    Reply reply;
    if ((r.flags & kSpeculative) != 0) {
      for (const Extent& e : request.extents) reply.answers.push_back(speculate(request, e));
      return reply;
    }
    bool blocked = false;
    for (const Extent& e : request.extents) blocked = blocked || blocker_of(request, e) != LockBlocker::kNone;
    if (!blocked) {
      for (const Extent& e : request.extents) {
        reply.answers.push_back(take(request, e));
        if (reply.answers.back().answer == LockAnswer::kGranted && score > 0) --score;
      }
      return reply;
    }
    bool ordinary = false;
    for (const Extent& e : request.extents) {
      for (Lock& lock : locks) {
        if (!clash(request, e, lock, lock.extent)) continue;
        ordinary = ordinary || (lock.ordinary && !lock.revoked);
        if (!lock.revoked) events.revokes.push_back(lock.id);
        lock.revoked = true;
      }
    }
    if (ordinary) score = std::min(256u, score + 16);
    request.ticket = next_ticket++;
    queue.push_back(request);
    reply.waiting = true;
    reply.ticket = request.ticket;
    return reply;
  }

  void cancel(uint64_t id, Events& events) {
    std::erase_if(locks, [&](const Lock& l) { return l.id == id; });
    settle(events);
  }
  void withdraw(uint64_t ticket, Events& events) {
    std::erase_if(queue, [&](const Request& q) { return q.ticket == ticket; });
    settle(events);
  }
  void evict(OwnerId owner, Events& events) {
    std::erase_if(queue, [&](const Request& q) { return q.owner == owner; });
    std::erase_if(locks, [&](const Lock& l) { return l.owner == owner; });
    settle(events);
  }
  void reclaim(uint64_t id, Events& events) {
    for (Lock& lock : locks) {
      if (lock.id != id || lock.revoked) continue;
      lock.revoked = true;
      events.revokes.push_back(id);
    }
  }

  std::vector<Lock> locks;
  std::vector<Request> queue;  // in the order of arrival
  uint32_t score = 0;
  uint64_t next_id = 1;
  uint64_t next_ticket = 1;

 private:
  template <class A, class B>
  static bool clash(const A& a, const Extent& at, const B& b, const Extent& bt) {
    if (at.end <= bt.begin || bt.end <= at.begin) return false;
    const bool a_group = a.mode == LockMode::kGroup;
    const bool b_group = b.mode == LockMode::kGroup;
    if (a_group && b_group) return a.group != b.group;
    if (a_group || b_group) return true;
    if (a.mode == LockMode::kPr && b.mode == LockMode::kPr) return false;
    return a.owner != b.owner;
  }

  // Whom `r` meets at `e`: granted locks, then requests that wait and came before.
  LockBlocker blocker_of(const Request& r, const Extent& e) const {
    LockBlocker found = LockBlocker::kNone;
    for (const Lock& lock : locks) {
      if (!clash(r, e, lock, lock.extent)) continue;
      if (lock.mode == LockMode::kGroup) return LockBlocker::kGroupLock;
      found = LockBlocker::kGrantedLock;
    }
    if (found != LockBlocker::kNone) return found;
    for (const Request& q : queue) {
      if (r.ticket != 0 && q.ticket >= r.ticket) break;
      for (const Extent& qe : q.extents) {
        if (clash(r, e, q, qe)) return LockBlocker::kWaitingRequest;
      }
    }
    return LockBlocker::kNone;
  }

  std::optional<Answer> own(const Request& r, const Extent& e) const {
    Answer same{LockAnswer::kSame, LockBlocker::kNone, {}, e};
    Answer covered{LockAnswer::kCovered, LockBlocker::kNone, {}, e};
    for (const Lock& l : locks) {
      if (l.owner != r.owner || l.revoked || l.extent.begin > e.begin || l.extent.end < e.end) continue;
      const bool equal = l.mode == r.mode && l.group == r.group;
      if (!equal && !(l.mode == LockMode::kPw && r.mode == LockMode::kPr)) continue;
      (equal && l.extent == e ? same : covered).ids.push_back(l.id);
    }
    if (!same.ids.empty()) return same;
    if (!covered.ids.empty()) return covered;
    return std::nullopt;
  }

  Extent grown(const Request& r, const Extent& e) const {
    if ((r.flags & kNoExpand) != 0 || r.extents.size() != 1 || r.mode == LockMode::kGroup) return e;
    for (const Request& q : queue) {
      for (const Extent& qe : q.extents) {
        if (clash(r, e, q, qe)) return e;
      }
    }
    Extent room{Offset(0), Offset(kMaxFileBytes)};
    const auto limit = [&](const auto& other, const Extent& at) {
      const Extent everywhere{Offset(0), Offset(kMaxFileBytes)};
      if (!clash(r, everywhere, other, at)) return;
      if (at.end <= e.begin) room.begin = std::max(room.begin, at.end);
      if (at.begin >= e.end) room.end = std::min(room.end, at.begin);
    };
    for (const Lock& l : locks) limit(l, l.extent);
    for (const Request& q : queue) {
      for (const Extent& qe : q.extents) limit(q, qe);
    }
    if (score >= 128) return e;
    if (score < 32) return room;
    const uint64_t reach = std::min<uint64_t>(kMaxFileBytes, e.begin.value + (32 << 20));
    return {e.begin, std::min(room.end, std::max(e.end, Offset(reach)))};
  }

  Answer take(const Request& r, const Extent& e) {
    if (const auto held = own(r, e)) return *held;
    const bool blocking = (r.flags & kBlocking) != 0;
    const Extent extent = blocking ? grown(r, e) : e;
    locks.push_back({next_id, r.owner, r.mode, r.group, extent, false, blocking});
    return {LockAnswer::kGranted, LockBlocker::kNone, {next_id++}, extent};
  }

  Answer speculate(const Request& r, const Extent& e) {
    if (const auto held = own(r, e)) return *held;
    const LockBlocker blocker = blocker_of(r, e);
    if (blocker != LockBlocker::kNone) return {LockAnswer::kDropped, blocker, {}, e};
    return take(r, e);
  }

  // Grants, first come first, whoever has nobody before it any more.
  void settle(Events& events) {
    for (size_t i = 0; i < queue.size();) {
      const Request r = queue[i];
      bool blocked = false;
      for (const Extent& e : r.extents) blocked = blocked || blocker_of(r, e) != LockBlocker::kNone;
      if (blocked) {
        ++i;
        continue;
      }
      Grant grant{r.ticket, {}};
      for (const Extent& e : r.extents) grant.answers.push_back(take(r, e));
      events.grants.push_back(grant);
      queue.erase(queue.begin() + static_cast<ptrdiff_t>(i));
      revoke_wanted(events);
      i = 0;
    }
  }

  void revoke_wanted(Events& events) {
    for (Lock& lock : locks) {
      bool wanted = false;
      for (const Request& q : queue) {
        for (const Extent& qe : q.extents) wanted = wanted || clash(q, qe, lock, lock.extent);
      }
      if (!wanted || lock.revoked) continue;
      lock.revoked = true;
      events.revokes.push_back(lock.id);
    }
  }
};

}  // namespace sluice::lockmgr
