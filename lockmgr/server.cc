#include "lockmgr/server.h"

#include <algorithm>

#include "base/assert.h"

namespace sluice::lockmgr {

namespace {

tl::unexpected<Error> fenced(SessionId session) {
  return fail(ErrorCode::kFenced,
              "session " + std::to_string(session.value) +
                  " is not known to the lock server: it was closed, or evicted because it was "
                  "silent too long; open the file again");
}

size_t granted_among(const std::vector<ExtentAnswer>& answers) {
  return static_cast<size_t>(std::count_if(answers.begin(), answers.end(), [](const ExtentAnswer& a) {
    return a.answer == LockAnswer::kGranted;
  }));
}

}  // namespace

LockServer::LockServer(const Clock& clock, LockOutbox& outbox, Options options)
    : clock_(clock), outbox_(outbox), options_(options), first_generation_(options.first_generation) {
  SLUICE_ASSERT(options.first_generation != 0);
}

Result<> LockServer::open_session(SessionId session) {
  if (session.value == 0) return fail(ErrorCode::kInvalidArgument, "lock session: 0 is not a session's id");
  if (sessions_.contains(session)) {
    return fail(ErrorCode::kExists, "lock session " + std::to_string(session.value) + " is open already");
  }
  if (sessions_.size() >= kMaxSessions) {
    return fail(ErrorCode::kTooLarge, "lock server: " + std::to_string(sessions_.size()) +
                                          " sessions are open, which is the limit; close some first");
  }
  sessions_[session].expires_ms = clock_.now_ms() + options_.lease_ms;
  return {};
}

Result<LockServer::Session*> LockServer::heard_of(SessionId session) {
  const auto at = sessions_.find(session);
  if (at == sessions_.end()) return fenced(session);
  at->second.expires_ms = clock_.now_ms() + options_.lease_ms;
  return &at->second;
}

Result<> LockServer::renew(SessionId session) {
  if (auto known = heard_of(session); !known) return fail(known.error());
  return {};
}

void LockServer::close_session(SessionId session) {
  remove_session(session, false);
}

void LockServer::evict(SessionId session) {
  remove_session(session, true);
}

void LockServer::remove_session(SessionId id, bool evicted) {
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return;
  const Session session = std::move(at->second);
  // Fenced from here on; only then does anybody else get what it held.
  sessions_.erase(at);
  expected_.erase(id);
  std::erase_if(deferred_, [&](const Deferred& d) { return d.session == id; });
  if (evicted) outbox_.session_evicted(id);
  for (const auto& [request, pending] : session.waiting) {
    containers_.at(pending.container)->requests.erase(pending.ticket);
  }
  for (const ContainerId container_id : session.containers) {
    const auto found = containers_.find(container_id);
    if (found == containers_.end()) continue;
    LockEvents events;
    found->second->table.evict(owner_of(id), events);
    deliver(container_id, *found->second, events);
    drop_if_idle(container_id);
  }
}

void LockServer::expire() {
  const uint64_t now_ms = clock_.now_ms();
  if (options_.lease_ms != 0) {
    std::vector<SessionId> silent;
    for (const auto& [id, session] : sessions_) {
      if (session.expires_ms <= now_ms) silent.push_back(id);
    }
    for (const SessionId id : silent) evict(id);
  }
  if (recovering_ && recovery_is_over()) end_recovery();
  relieve();
}

size_t LockServer::used_bytes() const {
  size_t locks = 0;
  for (const auto& [id, container] : containers_)
    locks += container->table.granted_count() + container->table.waiting_count();
  return locks * kBytesPerLock;
}

// Those that hold the most give back first, what was asked ahead before the rest.
void LockServer::relieve() {
  short_of_memory_ = used_bytes() > options_.memory_limit_bytes;
  if (!short_of_memory_) return;
  std::vector<std::pair<size_t, ContainerId>> by_size;
  for (const auto& [id, container] : containers_) by_size.emplace_back(container->table.granted_count(), id);
  std::sort(by_size.rbegin(), by_size.rend());
  size_t left = kReclaimBatch;
  for (const auto& [locks, id] : by_size) {
    const size_t asked = reclaim(id, std::min(left, locks / 2 + 1));
    left -= asked;
    if (left == 0) return;
  }
}

LockServerCounts& LockServer::counts_of(ContainerId id) {
  if (counts_.size() >= kMaxCounted && !counts_.contains(id)) {
    // Those of a container that nobody uses go; the others are bounded by what is open.
    const auto unused = std::find_if(counts_.begin(), counts_.end(),
                                     [&](const auto& counted) { return !containers_.contains(counted.first); });
    if (unused != counts_.end()) counts_.erase(unused);
  }
  return counts_[id];
}

void LockServer::count_grants(ContainerId id, const std::vector<Extent>& asked,
                              const std::vector<ExtentAnswer>& answers) {
  LockServerCounts& counts = counts_of(id);
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].answer == LockAnswer::kDropped) ++counts.ahead_dropped;
    if (answers[i].answer != LockAnswer::kGranted) continue;
    ++counts.grants;
    counts.expansions += answers[i].extent != asked[i] ? 1 : 0;
  }
}

std::optional<uint64_t> LockServer::next_deadline_ms() const {
  std::optional<uint64_t> next;
  const auto consider = [&](uint64_t at_ms) { next = std::min(next.value_or(at_ms), at_ms); };
  if (recovering_) consider(recovery_deadline_ms_);
  if (options_.lease_ms != 0) {
    for (const auto& [id, session] : sessions_) consider(session.expires_ms);
  }
  return next;
}

LockServer::Container& LockServer::container_for(ContainerId id) {
  auto& container = containers_[id];
  if (!container) container = std::make_unique<Container>(first_generation_);
  return *container;
}

void LockServer::drop_if_idle(ContainerId id) {
  const auto at = containers_.find(id);
  if (at == containers_.end() || !at->second->table.idle()) return;
  SLUICE_ASSERT(at->second->requests.empty());
  // The container's next table must not give out handles that this one gave.
  first_generation_ = std::max(first_generation_, at->second->table.next_generation());
  containers_.erase(at);
}

Result<> LockServer::request(SessionId session, const LockAsk& ask) {
  const auto known = heard_of(session);
  if (!known) return fail(known.error());
  if ((*known)->waiting.contains(ask.id) || (*known)->deferred.contains(ask.id)) {
    outbox_.send_error(
        session, ask.id,
        Error(ErrorCode::kProtocol, "lock request: field 'id': a request with it is waiting already"));
    return {};
  }
  if (auto ok = validate({owner_of(session), ask.mode, ask.group, ask.flags, ask.extents}); !ok) {
    outbox_.send_error(session, ask.id, ok.error());
    return {};
  }
  if (!within_limits(session, **known, ask)) return {};
  if (!recovering_) {
    carry_out(session, **known, ask);
  } else if ((ask.flags & kSpeculative) != 0) {
    answer_dropped(session, ask, LockBlocker::kRecovery);
  } else {
    (*known)->deferred.insert(ask.id);
    deferred_.push_back({session, ask});
  }
  return {};
}

void LockServer::answer_dropped(SessionId id, const LockAsk& ask, LockBlocker blocker) {
  std::vector<ExtentAnswer> answers;
  for (const Extent& extent : ask.extents) {
    answers.push_back({LockAnswer::kDropped, blocker, kNoLock, extent, ask.mode});
  }
  outbox_.send_grant(id, ask.id, ask.container, answers);
}

// Answers the request itself when it is not.
bool LockServer::within_limits(SessionId id, Session& session, const LockAsk& ask) {
  const bool speculative = (ask.flags & kSpeculative) != 0;
  if (!speculative && session.waiting.size() + session.deferred.size() >= kMaxWaitingPerSession) {
    outbox_.send_error(
        id, ask.id,
        Error(ErrorCode::kBusy, "lock server: " + std::to_string(kMaxWaitingPerSession) +
                                    " requests of this session wait already, which is the limit; "
                                    "try again when some are answered")
            .mark_retryable());
    return false;
  }
  if (speculative && short_of_memory_) {
    answer_dropped(id, ask, LockBlocker::kLimit);
    return false;
  }
  if (session.locks + ask.extents.size() <= kMaxLocksPerSession) {
    session.reclaimed_at = 0;
    return true;
  }
  if (speculative) {
    answer_dropped(id, ask, LockBlocker::kLimit);
    return false;
  }
  // Not again before these had time to come back.
  if (session.reclaimed_at == 0 || session.locks > session.reclaimed_at + kReclaimBatch / 2)
    reclaim_of(id, session);
  if (session.locks + ask.extents.size() <= kMaxLocksPerSession + kLockHeadroom) return true;
  outbox_.send_error(
      id, ask.id,
      Error(ErrorCode::kBusy, "lock server: this session holds " + std::to_string(session.locks) +
                                  " locks, which is the limit; give some back and try again")
          .mark_retryable());
  return false;
}

void LockServer::carry_out(SessionId id, Session& session, const LockAsk& ask) {
  Container& container = container_for(ask.container);
  LockReply reply;
  LockEvents events;
  const auto done =
      container.table.request({owner_of(id), ask.mode, ask.group, ask.flags, ask.extents}, reply, events);
  if (!done) {
    outbox_.send_error(id, ask.id, done.error());
  } else {
    const size_t granted = granted_among(reply.extents);
    if (reply.waiting || granted > 0) session.containers.insert(ask.container);
    if (reply.waiting) {
      session.waiting[ask.id] = {ask.container, reply.ticket, clock_.now_ms(), ask.extents};
      container.requests[reply.ticket] = ask.id;
    } else {
      session.locks += granted;
      if ((ask.flags & kSpeculative) != 0) counts_of(ask.container).ahead_extents += ask.extents.size();
      count_grants(ask.container, ask.extents, reply.extents);
      outbox_.send_grant(id, ask.id, ask.container, reply.extents);
    }
    deliver(ask.container, container, events);
  }
  drop_if_idle(ask.container);
}

void LockServer::deliver(ContainerId id, Container& container, const LockEvents& events) {
  for (const LockGrant& grant : events.grants) {
    const auto at = container.requests.find(grant.ticket);
    SLUICE_ASSERT(at != container.requests.end());
    const RequestId request = at->second;
    container.requests.erase(at);
    Session& session = sessions_.at(session_of(grant.owner));
    const Pending waited = std::move(session.waiting.at(request));
    session.waiting.erase(request);
    LockServerCounts& counts = counts_of(id);
    ++counts.waits;
    counts.wait_ms += clock_.now_ms() - waited.since_ms;
    count_grants(id, waited.extents, grant.extents);
    session.locks += granted_among(grant.extents);
    outbox_.send_grant(session_of(grant.owner), request, id, grant.extents);
  }
  if (!events.revokes.empty()) counts_of(id).revokes += events.revokes.size();
  for (const LockRevoke& revoke : events.revokes) {
    outbox_.send_revoke(session_of(revoke.owner), id, revoke.handle, revoke.extent);
  }
}

Result<> LockServer::withdraw(SessionId session, RequestId request) {
  const auto known = heard_of(session);
  if (!known) return fail(known.error());
  if ((*known)->deferred.erase(request) != 0) {
    std::erase_if(deferred_, [&](const Deferred& d) { return d.session == session && d.ask.id == request; });
    return {};
  }
  const auto at = (*known)->waiting.find(request);
  if (at == (*known)->waiting.end()) return {};
  const Pending pending = at->second;
  (*known)->waiting.erase(at);
  Container& container = *containers_.at(pending.container);
  container.requests.erase(pending.ticket);
  LockEvents events;
  const auto withdrawn = container.table.withdraw(owner_of(session), pending.ticket, events);
  SLUICE_ASSERT(withdrawn.has_value());
  deliver(pending.container, container, events);
  forget_if_unused(session, **known, pending.container);
  drop_if_idle(pending.container);
  return {};
}

Result<> LockServer::release(SessionId session, ContainerId container, std::span<const LockHandle> handles) {
  const auto known = heard_of(session);
  if (!known) return fail(known.error());
  const auto found = containers_.find(container);
  if (found == containers_.end()) return {};
  LockEvents events;
  for (const LockHandle handle : handles) {
    if (found->second->table.cancel(owner_of(session), handle, events)) --(*known)->locks;
  }
  deliver(container, *found->second, events);
  forget_if_unused(session, **known, container);
  drop_if_idle(container);
  return {};
}

// A session's list of containers stays as short as what it has in them.
void LockServer::forget_if_unused(SessionId id, Session& session, ContainerId container) {
  if (containers_.at(container)->table.granted_count(owner_of(id)) > 0) return;
  for (const auto& [request, pending] : session.waiting) {
    if (pending.container == container) return;
  }
  session.containers.erase(container);
}

Result<> LockServer::check(SessionId session, ContainerId container, LockHandle handle, const Extent& extent,
                           LockMode access) const {
  if (!sessions_.contains(session)) return fenced(session);
  if (handle == kNoLock) return {};
  const LockTable* locks = table(container);
  const auto lock = locks != nullptr ? locks->find(handle) : std::nullopt;
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kConflict, "container " + std::to_string(container.value) + ", " +
                                          to_string(extent) + ": " + why + "; ask for a lock again");
  };
  if (!lock || lock->owner != owner_of(session))
    return refuse("the lock named is not held by this session any more");
  if (!lock->extent.contains(extent))
    return refuse("the lock named ends before: it is " + to_string(lock->extent));
  if (!mode_permits(lock->mode, access)) return refuse("the lock named is for reading only");
  return {};
}

Result<> LockServer::check_all(SessionId session, ContainerId container, std::span<const LockHandle> locks,
                               std::span<const Extent> extents, LockMode access) const {
  if (locks.size() == 1 && extents.size() == 1)
    return check(session, container, locks.front(), extents.front(), access);
  const LockTable* known = table(container);
  auto lock = locks.begin();
  for (const Extent& extent : extents) {
    for (Extent left = extent; !left.empty();) {
      const auto held = known != nullptr && lock != locks.end() ? known->find(*lock) : std::nullopt;
      const bool reaches = held && held->extent.contains(left.begin);
      if (!reaches && lock != locks.end() && lock + 1 != locks.end()) {
        ++lock;
        continue;
      }
      // The last one is asked for all that is left, so that what it lacks is told.
      const Extent part{left.begin, reaches ? std::min(left.end, held->extent.end) : left.end};
      if (auto ok = check(session, container, lock == locks.end() ? kNoLock : *lock, part, access); !ok)
        return ok;
      left.begin = part.end;
    }
  }
  return {};
}

void LockServer::begin_recovery(uint64_t deadline_ms, std::vector<SessionId> expected) {
  SLUICE_ASSERT(containers_.empty() && !recovering_);
  recovering_ = true;
  recovery_deadline_ms_ = deadline_ms;
  expected_ = {expected.begin(), expected.end()};
}

Result<std::vector<LockHandle>> LockServer::replay(SessionId session, ContainerId container,
                                                   std::span<const HeldLock> held) {
  const auto known = heard_of(session);
  if (!known) return fail(known.error());
  if (!recovering_ || (*known)->replayed) {
    return fail(ErrorCode::kConflict,
                "lock replay: the recovery window is over for this session; ask for locks anew");
  }
  if ((*known)->locks + held.size() > kMaxLocksPerSession + kLockHeadroom) {
    return fail(ErrorCode::kTooLarge, "lock replay: more locks than a session may hold (" +
                                          std::to_string(kMaxLocksPerSession + kLockHeadroom) + ")");
  }
  for (const HeldLock& lock : held) {
    const LockRequest request{owner_of(session), lock.mode, lock.group, kBlocking, {&lock.extent, 1}};
    if (auto ok = validate(request); !ok) return fail_with_context("lock replay", ok.error());
  }
  std::vector<LockHandle> handles;
  Container& locks = container_for(container);
  for (const HeldLock& lock : held) {
    const uint32_t flags = lock.ordinary ? kBlocking : kSpeculative;
    const auto adopted =
        locks.table.adopt({owner_of(session), lock.mode, lock.group, flags, {&lock.extent, 1}});
    handles.push_back(adopted.value_or(kNoLock));
    (*known)->locks += adopted ? 1 : 0;
  }
  if (locks.table.granted_count(owner_of(session)) > 0) (*known)->containers.insert(container);
  drop_if_idle(container);
  return handles;
}

Result<> LockServer::finish_replay(SessionId session) {
  const auto known = heard_of(session);
  if (!known) return fail(known.error());
  (*known)->replayed = true;
  if (expected_.erase(session) == 1 && expected_.empty() && recovering_) end_recovery();
  return {};
}

void LockServer::stop_recovery() {
  if (recovering_) end_recovery();
}

bool LockServer::recovery_is_over() const {
  return clock_.now_ms() >= recovery_deadline_ms_;
}

void LockServer::end_recovery() {
  recovering_ = false;
  // Locks of a session that did not finish may be incomplete; its next write would rest on one nobody knows.
  const std::set<SessionId> unfinished = std::move(expected_);
  expected_.clear();
  for (const SessionId id : unfinished) evict(id);
  const std::vector<Deferred> deferred = std::move(deferred_);
  deferred_.clear();
  for (const Deferred& d : deferred) {
    const auto at = sessions_.find(d.session);
    if (at == sessions_.end()) continue;
    at->second.deferred.erase(d.ask.id);
    carry_out(d.session, at->second, d.ask);
  }
}

void LockServer::reclaim_of(SessionId id, Session& session) {
  session.reclaimed_at = session.locks;
  size_t left = kReclaimBatch;
  for (const ContainerId container_id : session.containers) {
    const auto found = containers_.find(container_id);
    if (found == containers_.end()) continue;
    LockEvents events;
    for (const LockInfo& lock : found->second->table.locks_of(owner_of(id))) {
      if (left == 0) break;
      if (found->second->table.reclaim(lock.handle, events)) --left;
    }
    deliver(container_id, *found->second, events);
  }
}

size_t LockServer::reclaim(ContainerId container, size_t limit) {
  const auto found = containers_.find(container);
  if (found == containers_.end()) return 0;
  LockEvents events;
  const std::vector<LockInfo> held = found->second->table.locks();
  size_t asked = 0;
  for (const bool ordinary : {false, true}) {
    for (const LockInfo& lock : held) {
      if (asked == limit) break;
      if (lock.ordinary == ordinary && found->second->table.reclaim(lock.handle, events)) ++asked;
    }
  }
  counts_of(container).reclaimed += asked;
  deliver(container, *found->second, events);
  return asked;
}

void LockServer::remove_container(ContainerId id) {
  const auto at = containers_.find(id);
  if (at == containers_.end()) return;
  const std::unique_ptr<Container> gone = std::move(at->second);
  containers_.erase(at);
  counts_.erase(id);
  first_generation_ = std::max(first_generation_, gone->table.next_generation());
  for (const LockInfo& lock : gone->table.locks()) --sessions_.at(session_of(lock.owner)).locks;
  for (const LockWaiterInfo& waiter : gone->table.waiters()) {
    const RequestId request = gone->requests.at(waiter.ticket);
    sessions_.at(session_of(waiter.owner)).waiting.erase(request);
    outbox_.send_error(session_of(waiter.owner), request,
                       Error(ErrorCode::kNotFound, "lock request: the file was removed while it waited"));
  }
  for (auto& [session_id, session] : sessions_) session.containers.erase(id);
}

std::vector<ContainerId> LockServer::containers() const {
  std::vector<ContainerId> ids;
  for (const auto& [id, container] : containers_) ids.push_back(id);
  return ids;
}

const LockTable* LockServer::table(ContainerId container) const {
  const auto at = containers_.find(container);
  return at == containers_.end() ? nullptr : &at->second->table;
}

std::set<SessionId> LockServer::writers(ContainerId container, const Extent& extent,
                                        SessionId except) const {
  std::set<SessionId> sessions;
  const LockTable* known = table(container);
  if (known == nullptr) return sessions;
  for (const OwnerId owner : known->writers(extent, owner_of(except))) sessions.insert(session_of(owner));
  return sessions;
}

size_t LockServer::lock_count(SessionId session) const {
  const auto at = sessions_.find(session);
  return at == sessions_.end() ? 0 : at->second.locks;
}

}  // namespace sluice::lockmgr
