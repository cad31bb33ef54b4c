#include "lockmgr/lock_table.h"

#include <algorithm>

namespace sluice::lockmgr {

namespace {

constexpr size_t kPr = 0;
constexpr size_t kPw = 1;
constexpr size_t kGroup = 2;
// Below this many locks an owner's list is searched instead of a tree that holds other owners' locks too.
constexpr uint32_t kShortList = 16;

}  // namespace

LockTable::LockTable(uint32_t first_generation) : slab_(first_generation) {}

LockTable::Rivals LockTable::rivals_of(const Claim& claim) {
  Rivals r;
  const IntervalTree::Party own = claim.owner.value;
  switch (claim.mode) {
    case LockMode::kPr:
      r.conflicts = {false, true, true};
      r.except = {IntervalTree::kNobody, own, IntervalTree::kNobody};
      break;
    case LockMode::kPw:
      r.conflicts = {true, true, true};
      r.except = {own, own, IntervalTree::kNobody};
      break;
    case LockMode::kGroup:
      r.conflicts = {true, true, true};
      r.except = {IntervalTree::kNobody, IntervalTree::kNobody, claim.group.value};
      break;
  }
  return r;
}

IntervalTree::Party LockTable::party_of(const Claim& claim) {
  return claim.mode == LockMode::kGroup ? claim.group.value : claim.owner.value;
}

ExtentAnswer LockTable::answer_for(uint32_t index, LockAnswer answer) const {
  const LockSlot& slot = slab_[index];
  return {answer, LockBlocker::kNone, slab_.handle_of(index), slot.extent, slot.mode};
}

bool LockTable::answers_own(const LockSlot& slot, const Claim& claim, const Extent& extent) const {
  return slot.owner == claim.owner && slot.state == LockSlot::State::kGranted &&
         slot.extent.contains(extent) && mode_covers(slot.mode, slot.group, claim.mode, claim.group);
}

std::optional<ExtentAnswer> LockTable::find_own(const Claim& claim, const Extent& extent) const {
  const auto owner = owners_.find(claim.owner.value);
  if (owner == owners_.end()) return std::nullopt;
  uint32_t covering = LockSlab::kNone;
  uint32_t same = LockSlab::kNone;
  const auto look_at = [&](uint32_t index) {
    const LockSlot& slot = slab_[index];
    if (!answers_own(slot, claim, extent)) return true;
    covering = index;
    if (slot.extent == extent && slot.mode == claim.mode) same = index;
    return same == LockSlab::kNone;
  };
  if (owner->second.size() <= kShortList) {
    for (const uint32_t index : owner->second) {
      if (!look_at(index)) break;
    }
  } else {
    const auto search = [&](size_t tree) {
      granted_[tree].visit_containing(extent,
                                      [&](uint32_t index, IntervalTree::Party) { return look_at(index); });
    };
    search(tree_of(claim.mode));
    if (same == LockSlab::kNone && claim.mode == LockMode::kPr) search(kPw);
  }
  if (same != LockSlab::kNone) return answer_for(same, LockAnswer::kSame);
  if (covering != LockSlab::kNone) return answer_for(covering, LockAnswer::kCovered);
  return std::nullopt;
}

// Nobody at all holds or waits for a part of it: the usual case of a writer, and cheaper to find out than who
// is in the way. Readers overlap; whether they do is not worth asking.
bool LockTable::untouched(LockMode mode, const Extent& extent) const {
  if (mode == LockMode::kPr) return false;
  for (const Trees* trees : {&granted_, &waiting_}) {
    for (const IntervalTree& tree : *trees) {
      if (!tree.empty() && tree.overlaps(extent, IntervalTree::kNobody)) return false;
    }
  }
  return true;
}

LockBlocker LockTable::first_blocker(const Rivals& rivals, const Extent& extent) const {
  const auto met = [&](const Trees& trees, size_t t) {
    return rivals.conflicts[t] && !trees[t].empty() && trees[t].overlaps(extent, rivals.except[t]);
  };
  if (met(granted_, kGroup)) return LockBlocker::kGroupLock;
  if (met(granted_, kPw) || met(granted_, kPr)) return LockBlocker::kGrantedLock;
  if (met(waiting_, kPr) || met(waiting_, kPw) || met(waiting_, kGroup)) return LockBlocker::kWaitingRequest;
  return LockBlocker::kNone;
}

Extent LockTable::grow(const Rivals& rivals, const Extent& asked) const {
  for (size_t t = 0; t < waiting_.size(); ++t) {
    if (rivals.conflicts[t] && waiting_[t].overlaps(asked, rivals.except[t])) return asked;
  }
  Extent room{Offset(0), Offset(kMaxFileBytes)};
  for (const Trees* trees : {&granted_, &waiting_}) {
    for (size_t t = 0; t < trees->size(); ++t) {
      if (!rivals.conflicts[t] || (*trees)[t].empty()) continue;
      // Nobody in conflict overlaps `asked`, so those that begin below it also end there.
      room.begin = std::max(room.begin, (*trees)[t].end_below(asked.begin, rivals.except[t]));
      room.end = std::min(room.end, (*trees)[t].begin_from(asked.end, rivals.except[t]));
    }
  }
  const Extent grown = grown_extent(asked, room, contention_.score());
  SLUICE_ASSERT(first_blocker(rivals, grown) == LockBlocker::kNone);
  return grown;
}

bool LockTable::may_grow(const Claim& claim, uint32_t flags, size_t extents) const {
  return extents == 1 && (flags & kNoExpand) == 0 && (flags & kBlocking) != 0 &&
         claim.mode != LockMode::kGroup;
}

uint32_t LockTable::add_slot(const Claim& claim, const Extent& extent, LockSlot::State state, bool ordinary) {
  const uint32_t index = slab_.allocate();
  LockSlot& slot = slab_[index];
  slot.extent = extent;
  slot.owner = claim.owner;
  slot.group = claim.group;
  slot.mode = claim.mode;
  slot.state = state;
  slot.ordinary = ordinary;
  Trees& trees = state == LockSlot::State::kWaiting ? waiting_ : granted_;
  trees[tree_of(claim.mode)].insert(extent, party_of(claim), index);
  return index;
}

uint32_t LockTable::add_granted(const Claim& claim, const Extent& extent, bool ordinary) {
  const uint32_t index = add_slot(claim, extent, LockSlot::State::kGranted, ordinary);
  std::vector<uint32_t>& list = owners_[claim.owner.value];
  slab_[index].link = list.size();
  list.push_back(index);
  return index;
}

void LockTable::revoke(uint32_t index, LockEvents& events) {
  LockSlot& slot = slab_[index];
  if (slot.state == LockSlot::State::kRevoked) return;
  SLUICE_ASSERT(slot.state == LockSlot::State::kGranted);
  slot.state = LockSlot::State::kRevoked;
  events.revokes.push_back({slot.owner, slab_.handle_of(index), slot.extent});
}

ExtentAnswer LockTable::speculate(const Claim& claim, const Rivals& rivals, const Extent& extent) {
  if (untouched(claim.mode, extent))
    return answer_for(add_granted(claim, extent, false), LockAnswer::kGranted);
  if (const auto own = find_own(claim, extent)) return *own;
  const LockBlocker blocker = first_blocker(rivals, extent);
  if (blocker != LockBlocker::kNone) return {LockAnswer::kDropped, blocker, kNoLock, extent, claim.mode};
  return answer_for(add_granted(claim, extent, false), LockAnswer::kGranted);
}

Result<> LockTable::request(const LockRequest& request, LockReply& reply, LockEvents& events) {
  if (auto ok = validate(request); !ok) return ok;
  if (slab_.used() + request.extents.size() > LockSlab::kMaxSlots) {
    return fail(ErrorCode::kTooLarge, "lock table: the object has " + std::to_string(slab_.used()) +
                                          " locks, which is the limit; release some first");
  }
  reply.waiting = false;
  reply.ticket = Ticket(0);
  reply.extents.clear();
  const Claim claim{request.owner, request.mode, request.group};
  const Rivals rivals = rivals_of(claim);
  if ((request.flags & kSpeculative) != 0) {
    for (const Extent& extent : request.extents) reply.extents.push_back(speculate(claim, rivals, extent));
    return {};
  }
  bool free = true;
  for (const Extent& extent : request.extents) {
    if (untouched(claim.mode, extent)) continue;
    free = false;
    if (first_blocker(rivals, extent) == LockBlocker::kNone) continue;
    // What the owner holds unrevoked is in nobody's way, so a blocked extent is not covered.
    enqueue(request, rivals, reply, events);
    return {};
  }
  for (const Extent& extent : request.extents) {
    // The extents of one request may cover each other.
    const auto own = free && request.extents.size() == 1 ? std::nullopt : find_own(claim, extent);
    if (own) {
      reply.extents.push_back(*own);
      continue;
    }
    const bool grows = may_grow(claim, request.flags, request.extents.size());
    const uint32_t index = add_granted(claim, grows ? grow(rivals, extent) : extent, true);
    contention_.granted_without_waiting();
    reply.extents.push_back(answer_for(index, LockAnswer::kGranted));
  }
  return {};
}

void LockTable::enqueue(const LockRequest& request, const Rivals& rivals, LockReply& reply,
                        LockEvents& events) {
  const uint64_t ticket = next_ticket_++;
  Waiter waiter{{request.owner, request.mode, request.group}, request.flags, 0, {}};
  bool takes_ordinary = false;
  for (const Extent& extent : request.extents) {
    visit_rivals(granted_, rivals, extent, [&](uint32_t index, IntervalTree::Party) {
      ++waiter.blockers;
      const LockSlot& slot = slab_[index];
      takes_ordinary = takes_ordinary || (slot.ordinary && slot.state == LockSlot::State::kGranted);
      revoke(index, events);
      return true;
    });
    visit_rivals(waiting_, rivals, extent, [&](uint32_t, IntervalTree::Party) {
      ++waiter.blockers;
      return true;
    });
  }
  SLUICE_ASSERT(waiter.blockers > 0);
  // Only now: a request does not wait for itself.
  for (const Extent& extent : request.extents) {
    const uint32_t index = add_slot(waiter.claim, extent, LockSlot::State::kWaiting, true);
    slab_[index].link = ticket;
    waiter.slots.push_back(index);
  }
  waiters_.emplace(ticket, std::move(waiter));
  if (takes_ordinary) contention_.ordinary_lock_taken_away();
  reply.waiting = true;
  reply.ticket = Ticket(ticket);
}

void LockTable::remove_granted(uint32_t index) {
  const LockSlot slot = slab_[index];
  granted_[tree_of(slot.mode)].erase(slot.extent, index);
  const auto owner = owners_.find(slot.owner.value);
  std::vector<uint32_t>& list = owner->second;
  list[slot.link] = list.back();
  slab_[list[slot.link]].link = slot.link;
  list.pop_back();
  if (list.empty()) owners_.erase(owner);
  slab_.release(index);

  if (waiters_.empty()) return;
  visit_rivals(waiting_, rivals_of(claim_of(slot)), slot.extent, [&](uint32_t waiting, IntervalTree::Party) {
    Waiter& waiter = waiters_.at(slab_[waiting].link);
    SLUICE_ASSERT(waiter.blockers > 0);
    if (--waiter.blockers == 0) ready_.insert(slab_[waiting].link);
    return true;
  });
}

// Takes one extent out of the queue; those that came later no longer wait for it.
void LockTable::remove_waiting(uint32_t index) {
  const LockSlot slot = slab_[index];
  waiting_[tree_of(slot.mode)].erase(slot.extent, index);
  visit_rivals(waiting_, rivals_of(claim_of(slot)), slot.extent, [&](uint32_t later, IntervalTree::Party) {
    const uint64_t ticket = slab_[later].link;
    if (ticket <= slot.link) return true;
    Waiter& waiter = waiters_.at(ticket);
    SLUICE_ASSERT(waiter.blockers > 0);
    if (--waiter.blockers == 0) ready_.insert(ticket);
    return true;
  });
  slab_.release(index);
}

void LockTable::remove_waiter(uint64_t ticket) {
  const auto at = waiters_.find(ticket);
  const std::vector<uint32_t> slots = std::move(at->second.slots);
  for (const uint32_t index : slots) remove_waiting(index);
  waiters_.erase(at);
  ready_.erase(ticket);
}

void LockTable::grant_waiter(uint64_t ticket, LockEvents& events) {
  const Waiter waiter = waiters_.at(ticket);
  const Rivals rivals = rivals_of(waiter.claim);
  LockGrant grant{waiter.claim.owner, Ticket(ticket), {}};
  std::vector<uint32_t> wanted;
  for (const uint32_t waiting : waiter.slots) {
    const Extent asked = slab_[waiting].extent;
    if (const auto own = find_own(waiter.claim, asked)) {
      grant.extents.push_back(*own);
      continue;
    }
    const bool grows = may_grow(waiter.claim, waiter.flags, waiter.slots.size());
    const uint32_t index = add_granted(waiter.claim, grows ? grow(rivals, asked) : asked, true);
    grant.extents.push_back(answer_for(index, LockAnswer::kGranted));
    // Those behind in the queue now wait for the lock as well, and its holder must know.
    const size_t before = wanted.size();
    visit_rivals(waiting_, rivals, slab_[index].extent, [&](uint32_t later, IntervalTree::Party) {
      ++waiters_.at(slab_[later].link).blockers;
      if (wanted.size() == before) wanted.push_back(index);
      return true;
    });
  }
  // After all extents are answered: a revoked lock would not cover the next one.
  for (const uint32_t index : wanted) revoke(index, events);
  events.grants.push_back(std::move(grant));
  remove_waiter(ticket);
}

void LockTable::grant_ready(LockEvents& events) {
  while (!ready_.empty()) {
    const uint64_t ticket = *ready_.begin();
    ready_.erase(ready_.begin());
    grant_waiter(ticket, events);
  }
}

Result<LockHandle> LockTable::adopt(const LockRequest& request) {
  if (auto ok = validate(request); !ok) return fail(ok.error());
  if (request.extents.size() != 1) {
    return fail(ErrorCode::kInvalidArgument, "lock replay: field 'extents': one extent for each lock");
  }
  if (slab_.used() >= LockSlab::kMaxSlots) {
    return fail(ErrorCode::kTooLarge, "lock replay: the object has as many locks as the table can hold");
  }
  const Claim claim{request.owner, request.mode, request.group};
  const Extent& extent = request.extents.front();
  if (first_blocker(rivals_of(claim), extent) != LockBlocker::kNone) {
    return fail(ErrorCode::kConflict, "lock replay: " + to_string(request.mode, request.group) + " " +
                                          to_string(extent) +
                                          " is held by another session; ask for it again");
  }
  return slab_.handle_of(add_granted(claim, extent, (request.flags & kBlocking) != 0));
}

Result<> LockTable::cancel(OwnerId owner, LockHandle handle, LockEvents& events) {
  const uint32_t index = slab_.granted_index(handle);
  if (index == LockSlab::kNone || slab_[index].owner != owner) {
    return fail(ErrorCode::kNotFound, "lock cancel: no such lock is held by this session");
  }
  remove_granted(index);
  grant_ready(events);
  return {};
}

Result<> LockTable::withdraw(OwnerId owner, Ticket ticket, LockEvents& events) {
  const auto at = waiters_.find(ticket.value);
  if (at == waiters_.end() || at->second.claim.owner != owner) {
    return fail(ErrorCode::kNotFound, "lock withdraw: this session has no such waiting request");
  }
  remove_waiter(ticket.value);
  grant_ready(events);
  return {};
}

size_t LockTable::evict(OwnerId owner, LockEvents& events) {
  std::vector<uint64_t> tickets;
  for (const auto& [ticket, waiter] : waiters_) {
    if (waiter.claim.owner == owner) tickets.push_back(ticket);
  }
  // Waiting requests first, so that freeing the locks does not grant them.
  for (const uint64_t ticket : tickets) remove_waiter(ticket);
  size_t freed = 0;
  for (auto at = owners_.find(owner.value); at != owners_.end(); at = owners_.find(owner.value)) {
    remove_granted(at->second.back());
    ++freed;
  }
  grant_ready(events);
  return freed;
}

bool LockTable::reclaim(LockHandle handle, LockEvents& events) {
  const uint32_t index = slab_.granted_index(handle);
  if (index == LockSlab::kNone || slab_[index].state == LockSlot::State::kRevoked) return false;
  revoke(index, events);
  return true;
}

LockInfo LockTable::info_of(uint32_t index) const {
  const LockSlot& slot = slab_[index];
  return {slab_.handle_of(index),
          slot.owner,
          slot.mode,
          slot.group,
          slot.extent,
          slot.state == LockSlot::State::kRevoked,
          slot.ordinary};
}

std::optional<LockInfo> LockTable::find(LockHandle handle) const {
  const uint32_t index = slab_.granted_index(handle);
  if (index == LockSlab::kNone) return std::nullopt;
  return info_of(index);
}

std::vector<LockInfo> LockTable::locks() const {
  std::vector<LockInfo> all;
  for (const IntervalTree& tree : granted_) {
    tree.visit_overlapping({Offset(0), Offset(kMaxFileBytes)}, IntervalTree::kNobody,
                           [&](uint32_t index, IntervalTree::Party) {
                             all.push_back(info_of(index));
                             return true;
                           });
  }
  std::sort(all.begin(), all.end(), [](const LockInfo& a, const LockInfo& b) {
    return std::pair(a.extent.begin, a.handle) < std::pair(b.extent.begin, b.handle);
  });
  return all;
}

std::vector<LockInfo> LockTable::locks_of(OwnerId owner) const {
  std::vector<LockInfo> own;
  const auto at = owners_.find(owner.value);
  if (at == owners_.end()) return own;
  for (const uint32_t index : at->second) own.push_back(info_of(index));
  return own;
}

std::set<OwnerId> LockTable::writers(const Extent& extent, OwnerId except) const {
  std::set<OwnerId> found;
  granted_[tree_of(LockMode::kPw)].visit_overlapping(extent, except.value,
                                                     [&](uint32_t, IntervalTree::Party owner) {
                                                       found.insert(OwnerId(owner));
                                                       return true;
                                                     });
  return found;
}

std::vector<LockWaiterInfo> LockTable::waiters() const {
  std::vector<LockWaiterInfo> all;
  for (const auto& [ticket, waiter] : waiters_) {
    LockWaiterInfo info{Ticket(ticket), waiter.claim.owner, waiter.claim.mode, waiter.claim.group, {}};
    for (const uint32_t index : waiter.slots) info.extents.push_back(slab_[index].extent);
    all.push_back(std::move(info));
  }
  return all;
}

size_t LockTable::granted_count() const {
  return granted_[kPr].size() + granted_[kPw].size() + granted_[kGroup].size();
}

size_t LockTable::granted_count(OwnerId owner) const {
  const auto at = owners_.find(owner.value);
  return at == owners_.end() ? 0 : at->second.size();
}

size_t LockTable::memory_bytes() const {
  // What the standard containers allocate beside their elements: a node's links, colour and hash.
  constexpr size_t kNodeBytes = 4 * sizeof(void*);
  size_t bytes = sizeof(*this) + slab_.memory_bytes();
  for (const Trees* trees : {&granted_, &waiting_}) {
    for (const IntervalTree& tree : *trees) bytes += tree.memory_bytes();
  }
  bytes += owners_.bucket_count() * sizeof(void*);
  for (const auto& [owner, list] : owners_) {
    bytes += sizeof(owner) + sizeof(list) + kNodeBytes + list.capacity() * sizeof(uint32_t);
  }
  for (const auto& [ticket, waiter] : waiters_) {
    bytes += sizeof(ticket) + sizeof(Waiter) + kNodeBytes + waiter.slots.capacity() * sizeof(uint32_t);
  }
  return bytes;
}

void LockTable::check() const {
  for (const Trees* trees : {&granted_, &waiting_}) {
    for (const IntervalTree& tree : *trees) tree.check();
  }
  SLUICE_ASSERT(ready_.empty());
  const std::vector<LockInfo> held = locks();
  const auto conflict = [](const auto& a, const Extent& at, const LockInfo& b) {
    return at.overlaps(b.extent) && modes_conflict(a.owner, a.mode, a.group, b.owner, b.mode, b.group);
  };
  size_t listed = 0;
  for (const auto& [owner, list] : owners_) {
    SLUICE_ASSERT(!list.empty());
    for (size_t i = 0; i < list.size(); ++i) {
      SLUICE_ASSERT(slab_[list[i]].link == i && slab_[list[i]].owner.value == owner);
    }
    listed += list.size();
  }
  SLUICE_ASSERT(listed == held.size());
  for (size_t i = 0; i < held.size(); ++i) {
    for (size_t j = i + 1; j < held.size(); ++j) SLUICE_ASSERT(!conflict(held[i], held[i].extent, held[j]));
  }
  size_t waiting_slots = 0;
  for (const LockWaiterInfo& waiter : waiters()) {
    uint64_t blockers = 0;
    waiting_slots += waiter.extents.size();
    for (const Extent& extent : waiter.extents) {
      for (const LockInfo& lock : held) {
        if (!conflict(waiter, extent, lock)) continue;
        SLUICE_ASSERT(lock.revoked);
        ++blockers;
      }
      for (const LockWaiterInfo& other : waiters()) {
        if (other.ticket >= waiter.ticket) break;
        const bool clash =
            modes_conflict(waiter.owner, waiter.mode, waiter.group, other.owner, other.mode, other.group);
        for (const Extent& theirs : other.extents) blockers += clash && extent.overlaps(theirs) ? 1 : 0;
      }
    }
    SLUICE_ASSERT(blockers > 0 && blockers == waiters_.at(waiter.ticket.value).blockers);
  }
  SLUICE_ASSERT(held.size() + waiting_slots == slab_.used());
}

}  // namespace sluice::lockmgr
