#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/clock.h"
#include "lockmgr/lock_messages.h"
#include "lockmgr/lock_table.h"

namespace sluice::lockmgr {

// How the server speaks to its clients. Calls arrive in the order in which each client must hear them.
// An implementation queues and returns; it does not call the server back.
class LockOutbox {
 public:
  virtual ~LockOutbox() = default;
  // Each request is answered once, by one of these two, unless its session ends before.
  virtual void send_grant(SessionId session, RequestId request, ContainerId container,
                          const std::vector<ExtentAnswer>& answers) = 0;
  virtual void send_error(SessionId session, RequestId request, const Error& error) = 0;
  // Give this lock back when no operation uses it any more.
  virtual void send_revoke(SessionId session, ContainerId container, LockHandle handle, Extent extent) = 0;
  // The lease ended. From here on check() refuses the session; nothing of it has been granted to others yet.
  virtual void session_evicted(SessionId session) = 0;
};

// What the locks of one container did. Kept while it has locks or waiting requests, and for a while after.
struct LockServerCounts {
  uint64_t grants = 0;
  uint64_t expansions = 0;  // of those, larger than asked for
  uint64_t revokes = 0;
  uint64_t reclaimed = 0;  // of those, with nobody waiting for the lock
  uint64_t ahead_extents = 0;
  uint64_t ahead_dropped = 0;
  uint64_t waits = 0;  // requests that had to wait and were granted
  uint64_t wait_ms = 0;
};

// The locks of many containers and the sessions that hold them.
//
// Thread rule: one thread. Nothing here blocks. Time is the Clock's, in milliseconds.
//
// Promised:
// - What LockTable promises, for each container.
// - A session that is not heard of for lease_ms is evicted by the next expire(): its locks are freed and its
//   waiting requests forgotten. It is fenced first: check() refuses it before anybody else is granted what it
//   held.
// - While recovering nothing new is granted: blocking requests are kept and carried out afterwards in the
//   order they came; speculative ones are dropped.
// - Errors change nothing. Whatever a client says is checked before it is used: bad requests are answered
// with
//   an error that names the field.
//
// Not promised: durability (clients replay), and that a client that renews its lease ever gives a lock back.
class LockServer {
 public:
  static constexpr size_t kMaxSessions = 131072;
  // Above this a session's speculative requests are dropped, and some of its locks are asked back.
  static constexpr size_t kMaxLocksPerSession = 65536;
  // Blocking requests may go beyond by this much, so that I/O goes on while locks come back.
  static constexpr size_t kLockHeadroom = 4096;
  static constexpr size_t kReclaimBatch = 1024;
  static constexpr size_t kMaxWaitingPerSession = 1024;

  struct Options {
    uint64_t lease_ms = 30'000;  // 0: leases are kept elsewhere, which calls evict()
    // A server that starts again starts elsewhere, so that no old handle names a new lock. Not 0.
    uint32_t first_generation = 1;
    // Above this the tables ask for locks back and drop what is asked ahead, until they are below again.
    size_t memory_limit_bytes = size_t{256} << 20;
  };
  static constexpr size_t kBytesPerLock = 128;
  static constexpr size_t kMaxCounted = 1024;  // containers whose counts are kept

  // `clock` and `outbox` must outlive the server.
  LockServer(const Clock& clock, LockOutbox& outbox, Options options);

  // kExists when it is open already, kTooLarge at kMaxSessions.
  Result<> open_session(SessionId session);
  // The client was heard of. Requests and releases renew by themselves. kFenced when there is no such
  // session.
  Result<> renew(SessionId session);
  // The client says goodbye: all it holds is freed. Unknown sessions are fine.
  void close_session(SessionId session);
  // The same, but the client did not agree: session_evicted() is told first.
  void evict(SessionId session);
  // Evicts whoever's lease ended, ends the recovery window when its time has come, and asks for locks back when
  // they take too much memory. Call it by a timer.
  void expire();
  // When expire() has something to do next, if ever.
  std::optional<uint64_t> next_deadline_ms() const;

  // Answered through the outbox, now or later. kFenced when there is no such session: tell the client to open
  // a new one.
  Result<> request(SessionId session, const LockAsk& ask);
  // The client no longer waits. When the grant is on its way already nothing happens: the client releases it.
  Result<> withdraw(SessionId session, RequestId request);
  // Handles that are not held by the session are ignored: it may have lost them without knowing yet.
  Result<> release(SessionId session, ContainerId container, std::span<const LockHandle> handles);

  // Whether an access to `extent` under that lock may go on: asked before a staged write is accepted.
  // `access` is kPr for reading, kPw for writing. With kNoLock (mode none: disjointness is the application's
  // word) only the session is checked. kFenced when the session was evicted, kConflict when the lock is not
  // the session's (any more) or does not reach that far.
  Result<> check(SessionId session, ContainerId container, LockHandle handle, const Extent& extent,
                 LockMode access) const;

  // The same for a write that was gathered under several locks: each byte of the extents lies in one of them,
  // and they are named in the order of the extents that need them; one may be named again.
  Result<> check_all(SessionId session, ContainerId container, std::span<const LockHandle> locks,
                     std::span<const Extent> extents, LockMode access) const;

  // Opens the recovery window of a server that starts again: until `deadline_ms` by the clock, or until all
  // of `expected` (the sessions known from before; empty: only the deadline counts) have finished. Called
  // before anything was granted.
  void begin_recovery(uint64_t deadline_ms, std::vector<SessionId> expected);
  // Puts a client's locks back, each exactly as it was. The new handles in the same order; kNoLock where
  // another session replayed a conflicting lock before. kConflict outside the window.
  Result<std::vector<LockHandle>> replay(SessionId session, ContainerId container,
                                         std::span<const HeldLock> held);
  // The session has replayed all it had.
  Result<> finish_replay(SessionId session);
  // Everybody who could replay has done so, as far as somebody else knows: the window ends before its time.
  void stop_recovery();
  bool recovering() const { return recovering_; }

  // Asks up to `limit` locks of a container back, those asked ahead before the others. Answers how many.
  size_t reclaim(ContainerId container, size_t limit);
  // The container is gone: its locks are freed, requests that wait for one fail with kNotFound.
  void remove_container(ContainerId container);

  std::vector<ContainerId> containers() const;          // those with locks or waiting requests
  const LockTable* table(ContainerId container) const;  // until the next call that changes anything
  // Whoever but `except` may have gathered writes in the extent that nobody else knows of.
  std::set<SessionId> writers(ContainerId container, const Extent& extent, SessionId except) const;
  size_t session_count() const { return sessions_.size(); }
  size_t lock_count(SessionId session) const;
  const std::map<ContainerId, LockServerCounts>& counts() const { return counts_; }
  // What locks and waiting requests take. The tables keep some of what they once took, for the next ones.
  size_t used_bytes() const;

 private:
  struct Pending {
    ContainerId container;
    Ticket ticket;
    uint64_t since_ms = 0;
    std::vector<Extent> extents;
  };
  struct Session {
    uint64_t expires_ms = 0;
    size_t locks = 0;
    size_t reclaimed_at = 0;  // how many locks it had when some were asked back; 0: not lately
    std::set<RequestId> deferred;
    bool replayed = false;
    std::set<ContainerId> containers;
    std::map<RequestId, Pending> waiting;
  };
  struct Container {
    explicit Container(uint32_t first_generation) : table(first_generation) {}
    LockTable table;
    std::map<Ticket, RequestId> requests;
  };
  struct Deferred {
    SessionId session;
    LockAsk ask;
  };

  static OwnerId owner_of(SessionId session) { return OwnerId(session.value); }
  static SessionId session_of(OwnerId owner) { return SessionId(owner.value); }

  Result<Session*> heard_of(SessionId session);
  Container& container_for(ContainerId id);
  void drop_if_idle(ContainerId id);
  LockServerCounts& counts_of(ContainerId id);
  void count_grants(ContainerId id, const std::vector<Extent>& asked,
                    const std::vector<ExtentAnswer>& answers);
  void relieve();
  void carry_out(SessionId id, Session& session, const LockAsk& ask);
  bool within_limits(SessionId id, Session& session, const LockAsk& ask);
  void answer_dropped(SessionId id, const LockAsk& ask, LockBlocker blocker);
  void deliver(ContainerId id, Container& container, const LockEvents& events);
  void remove_session(SessionId id, bool evicted);
  void reclaim_of(SessionId id, Session& session);
  void forget_if_unused(SessionId id, Session& session, ContainerId container);
  bool recovery_is_over() const;
  void end_recovery();

  const Clock& clock_;
  LockOutbox& outbox_;
  const Options options_;
  std::map<SessionId, Session> sessions_;
  std::map<ContainerId, std::unique_ptr<Container>> containers_;
  std::map<ContainerId, LockServerCounts> counts_;
  bool short_of_memory_ = false;
  uint32_t first_generation_;  // of the next new table
  bool recovering_ = false;
  uint64_t recovery_deadline_ms_ = 0;
  std::set<SessionId> expected_;
  std::vector<Deferred> deferred_;
};

}  // namespace sluice::lockmgr
