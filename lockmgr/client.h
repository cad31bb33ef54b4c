#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "lockmgr/interval_tree.h"
#include "lockmgr/lock_messages.h"
#include "lockmgr/strategy.h"

namespace sluice::lockmgr {

// How the client speaks to the lock server. Calls leave in the order made. An implementation queues and
// returns; answers come back through LockCache::on_*, never from within a call.
class LockRequester {
 public:
  virtual ~LockRequester() = default;
  virtual void send_request(const LockAsk& ask) = 0;
  virtual void send_release(ContainerId container, const std::vector<LockHandle>& handles) = 0;
};

// Writes back what was written under a lock, before the lock is given back.
class LockFlusher {
 public:
  virtual ~LockFlusher() = default;
  // Calls `done` once on the loop thread, at once or later, when nothing in `extent` is dirty any more, or
  // never will be clean: a failed flush is the flusher's to report, and the lock is given back all the same.
  virtual void flush(ContainerId container, Extent extent, std::function<void()> done) = 0;
};

// What goes with an I/O message, so that the server can check it. kNoLock: the client takes no locks.
struct LockToken {
  ContainerId container;
  LockHandle handle;
};

// What became of the locks of one file, since it was first used.
struct LockCounts {
  uint64_t acquires = 0;
  uint64_t from_cache = 0;  // acquires that were answered at once
  uint64_t asked = 0;       // blocking requests
  uint64_t grants = 0;      // locks granted, asked for or ahead
  uint64_t expansions = 0;  // of those, larger than asked for
  uint64_t revokes = 0;     // locks asked back
  uint64_t ahead_requests = 0;
  uint64_t ahead_extents = 0;  // asked for speculatively; each is granted, covered or dropped
  uint64_t ahead_covered = 0;
  uint64_t ahead_dropped = 0;
  uint64_t releases = 0;  // messages that gave locks back
  uint64_t messages() const { return asked + ahead_requests + releases; }
};

class LockCache;

// While it lives the lock is in use and is not given back. Move-only; loop thread; must not outlive the
// cache. An operation that needs several extents at once takes one lock around them: whoever waits for a lock
// while it keeps another in use can wait for somebody who waits for that one.
class LockUse {
 public:
  LockUse() = default;
  explicit LockUse(ContainerId container) : container_(container) {}  // without a lock
  ~LockUse() { end(); }
  LockUse(LockUse&& other) noexcept { *this = std::move(other); }
  LockUse& operator=(LockUse&& other) noexcept;
  LockUse(const LockUse&) = delete;
  LockUse& operator=(const LockUse&) = delete;

  LockToken token() const;
  void end();

 private:
  friend class LockCache;
  LockUse(LockCache* cache, ContainerId container, uint32_t entry, bool holds)
      : cache_(cache), container_(container), entry_(entry), holds_(holds) {}

  LockCache* cache_ = nullptr;
  ContainerId container_;
  uint32_t entry_ = 0;
  bool holds_ = false;
};

// The locks that a client holds.
//
// Thread rule: one thread, the transport's loop. Nothing blocks: an acquire that must ask the server ends by
// its callback, which runs from within on_answer(), on_error() or session_lost(), or at once from within
// acquire(). Callbacks may call the cache again.
//
// Promised:
// - A use is given only under a lock that the server granted and has not asked back, that contains the access
//   and permits its mode.
// - After a revoke no new use begins, but for accesses inside a lock that is in use by hold(). When the last
//   one has ended, what was written under the lock is flushed, then the lock is released. A lock that nothing
//   was written under is released at once.
// - Locks without users are kept for later accesses, up to max_idle_locks and max_idle_ms, least recently
//   used first out.
// - A lock that a newer, larger one makes useless is released without a flush: the larger one protects what
//   was written.
// - An extent asked for ahead that is dropped is not held; nothing else changes. An acquire that is inside an
//   extent asked for ahead waits for that answer, and asks itself when it was dropped.
//
// Not promised: that a use ends (that is the caller's), and fairness among acquires of this client.
class LockCache {
 public:
  struct Options {
    size_t max_idle_locks = 4096;
    uint64_t max_idle_ms = 60'000;
  };
  using Acquired = std::function<void(Result<LockUse>)>;
  using AskedAhead = std::function<void(const Result<std::vector<ExtentAnswer>>&)>;

  // All three must outlive the cache. At its end no use may be left.
  LockCache(const Clock& clock, LockRequester& requester, LockFlusher& flusher, Options options);
  ~LockCache();
  LockCache(const LockCache&) = delete;
  LockCache& operator=(const LockCache&) = delete;

  // How locks of this container are asked for from now on; mode standard when never called.
  void use_strategy(ContainerId container, std::unique_ptr<LockStrategy> strategy);

  // `access` is kPr for reading, kPw for writing. The extent must not be empty.
  void acquire(ContainerId container, Extent extent, LockMode access, Acquired done);
  // A lock that keeps other clients out while its use lives, whatever the strategy: under mode none and in a
  // group too. kPr keeps out who holds kPw. This client's own accesses inside it go on under it also when it
  // is asked back, so that they never wait for somebody who waits for it.
  void hold(ContainerId container, Extent extent, LockMode access, Acquired done);
  // Asks for exactly these extents without waiting for anybody. `done` may be empty. Extents that are held,
  // or asked for ahead and not yet answered, are not asked again, and are left out of what `done` hears.
  void ask_ahead(ContainerId container, LockMode mode, std::span<const Extent> extents, AskedAhead done);

  // The writes to come, for a strategy that locks ahead (LockStrategy::expect).
  void expect(ContainerId container, std::span<const Extent> writes);

  // What the server says. Requests and locks that are not known are answered by giving them back, or ignored.
  void on_answer(RequestId request, ContainerId container, const std::vector<ExtentAnswer>& answers);
  void on_error(RequestId request, const Error& error);
  void on_revoke(ContainerId container, std::span<const LockHandle> handles);
  void on_revoke(ContainerId container, LockHandle handle) { on_revoke(container, {&handle, 1}); }

  // The lock that this extent lies under now, also one that is asked back: what is written back goes with its
  // token. kNoLock when there is none.
  LockToken covering(ContainerId container, const Extent& extent, LockMode access) const;

  LockCounts counts(ContainerId container) const;
  const LockStrategy* strategy(ContainerId container) const;  // null when nothing was asked for yet

  // Gives back all locks of the container as their users end: the file is being closed.
  void drop(ContainerId container);
  // Gives back what has been idle too long. Call it by a timer.
  void tick();

  // The session is gone, and all its locks with it: acquires fail with kFenced, uses keep their stale token.
  // Said before uses of that session end: an end may flush or give back, and the next session has no such lock.
  void session_lost();
  // The connection broke, but the session may live on: requests are kept back until resend().
  void suspend() { suspended_ = true; }
  // After a restart of the server: what to replay, and what came of it, in the same order. kNoLock: lost.
  std::map<ContainerId, std::vector<HeldLock>> held() const;
  void replayed(ContainerId container, std::span<const HeldLock> held, std::span<const LockHandle> handles);
  // Sends what was kept back or never answered. After all is replayed.
  void resend();

  size_t lock_count() const { return by_handle_.size(); }
  size_t idle_count() const { return idle_.size(); }
  size_t pending_count() const { return pending_.size(); }

 private:
  friend class LockUse;
  static constexpr uint32_t kNoEntry = UINT32_MAX;

  struct Entry {
    ContainerId container;
    LockHandle handle;
    LockMode mode = LockMode::kPw;
    GroupId group;
    Extent extent;
    uint64_t serial = 0;  // tells this lock from the next one in its place
    uint64_t idle_since_ms = 0;
    uint32_t users = 0;
    uint32_t holds = 0;  // of the users: those by hold()
    bool live = false;   // false: a free place, or a lost lock that is still in use
    bool ordinary = true;
    bool used = false;     // since it was granted
    bool revoked = false;  // by the server: no new users but those inside a hold
    bool closing = false;  // by ourselves: a new user brings it back
    bool written = false;  // since the last flush began
    bool flushing = false;
    bool idle = false;  // is in idle_, at `place`
    std::list<uint32_t>::iterator place;
  };
  // What an acquire or a hold needs of a lock.
  struct Need {
    Extent extent;
    LockMode access;
    bool holds = false;
  };
  struct Waiter {
    Need need;
    // What to ask for when it is not held.
    LockMode mode;
    GroupId group;
    Extent wanted;
    bool expand;
    Acquired done;
  };
  struct Pending {
    LockAsk ask;
    std::vector<Waiter> waiters;
    AskedAhead asked_ahead;  // of a speculative one, whose extents are in File::asked from this id on
    uint32_t first_asked = 0;
  };
  struct File {
    std::unique_ptr<LockStrategy> strategy;
    IntervalTree held;   // ids are places in entries_
    IntervalTree asked;  // ahead, and not answered yet; parties are modes
    bool dropped = false;
    LockCounts counts;
  };

  File& file(ContainerId container);
  void forget_file_if_done(ContainerId container);
  uint32_t find_serving(const File& file, const Need& need) const;
  static bool serves(const Entry& entry, const Need& need);
  bool held_or_asked(const File& file, LockMode mode, GroupId group, const Extent& extent) const;
  Pending* find_asked(const File& file, const Extent& extent, LockMode access);
  void send(const LockAsk& ask);
  // A use, or a place among those who wait.
  void serve(ContainerId container, Waiter waiter);
  void ask(ContainerId container, Waiter waiter);
  void give_back_unused(ContainerId container, std::span<const Extent> extents);
  void send_ahead(ContainerId container, LockMode mode, GroupId group, std::span<const Extent> extents,
                  AskedAhead done);
  bool credible(const Pending& pending, ContainerId container,
                const std::vector<ExtentAnswer>& answers) const;
  void answer_waiters(Pending& pending, const ExtentAnswer& answer);
  void fail_pending(Pending& pending, const Error& error);
  void end_asked(const Pending& pending);

  uint32_t add_entry(const LockAsk& ask, const Extent& asked, const ExtentAnswer& answer);
  LockUse begin_use(uint32_t index, const Need& need);
  void end_use(uint32_t index, bool holds);
  void settle(uint32_t index);
  void start_flush(uint32_t index);
  void make_idle(uint32_t index);
  void end_idle(uint32_t index);
  void close(uint32_t index);
  void absorb(uint32_t index);
  // The lock is no longer ours; its place stays taken while it has users.
  void forget(uint32_t index);
  void release(ContainerId container, LockHandle handle);
  // What `work` releases goes in one message for each container.
  void release_together(const std::function<void()>& work);
  void send_release(ContainerId container, const std::vector<LockHandle>& handles);
  std::vector<uint32_t> entries_of(const File& file) const;

  const Clock& clock_;
  LockRequester& requester_;
  LockFlusher& flusher_;
  const Options options_;
  std::map<ContainerId, File> files_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_entries_;
  std::map<std::pair<ContainerId, LockHandle>, uint32_t> by_handle_;
  std::list<uint32_t> idle_;  // the longest idle first
  std::map<RequestId, Pending> pending_;
  std::map<ContainerId, std::vector<LockHandle>> to_release_;
  bool gathering_ = false;
  uint64_t next_request_ = 1;
  uint64_t next_serial_ = 1;
  uint32_t next_asked_ = 1;
  size_t uses_ = 0;
  bool suspended_ = false;
};

}  // namespace sluice::lockmgr
