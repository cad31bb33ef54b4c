#include "engine/lock_desk.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "base/log.h"
#include "engine/lock_sessions.h"
#include "lockmgr/server.h"

namespace sluice::engine {
namespace {

using lockmgr::LockHandle;

class LoopClock final : public Clock {
 public:
  explicit LoopClock(transport::Transport& transport) : transport_(transport) {}
  uint64_t now_ms() const override { return transport_.now_ms(); }

 private:
  transport::Transport& transport_;
};

// What tells the locks of this run from those of others on the wire. Its lowest 32 bits, where a handle has
// an index, are larger than any index, so no handle becomes 0 by it.
uint64_t new_salt() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device() | 0x80000000u;
}

// How one session calls its locks. Those it brought over a restart have their names of before.
class LockNames {
 public:
  explicit LockNames(uint64_t salt) : salt_(salt) {}

  uint64_t to_wire(LockHandle handle) const {
    if (handle == lockmgr::kNoLock) return 0;
    const auto old = old_name_.find(handle);
    return old == old_name_.end() ? handle.value ^ salt_ : old->second;
  }
  LockHandle from_wire(ContainerId container, uint64_t name) const {
    if (name == 0) return lockmgr::kNoLock;
    const auto old = by_old_name_.find({container, name});
    return old == by_old_name_.end() ? LockHandle(name ^ salt_) : old->second;
  }
  void keep(ContainerId container, uint64_t name, LockHandle handle) {
    by_old_name_[{container, name}] = handle;
    old_name_[handle] = name;
  }
  bool keeps(ContainerId container, uint64_t name) const { return by_old_name_.contains({container, name}); }
  void forget(ContainerId container, uint64_t name) {
    const auto old = by_old_name_.find({container, name});
    if (old == by_old_name_.end()) return;
    old_name_.erase(old->second);
    by_old_name_.erase(old);
  }

 private:
  const uint64_t salt_;
  std::map<std::pair<ContainerId, uint64_t>, LockHandle> by_old_name_;
  std::map<LockHandle, uint64_t> old_name_;
};

}  // namespace

class LockDesk::Impl final : public lockmgr::LockOutbox {
 public:
  Impl(Context& context, OpenFiles& files)
      : context_(context),
        files_(files),
        clock_(context.parts.transport),
        written_(context),
        // Leases are the sessions': they end here by evict().
        server_(clock_, *this, {.lease_ms = 0, .first_generation = 1}),
        salt_(new_salt()) {
    if (!written_.before().empty()) server_.begin_recovery(clock_.now_ms() + context.options.recovery_ms, {});
  }

  void lock(const Request& request, const wire::LockT& ask) {
    if (!known_.contains(request.session)) return arrive(request, ask);
    auto file = files_.find(request, ask.handle, ask.secret);
    if (!file) return context_.refuse(request, file.error());
    lockmgr::LockAsk wanted;
    wanted.id = lockmgr::RequestId(request.id);
    wanted.container = (*file)->container;
    if (paths_.size() > lockmgr::LockServer::kMaxCounted)
      std::erase_if(paths_, [&](const auto& known) { return !server_.counts().contains(known.first); });
    paths_.try_emplace(wanted.container, (*file)->path);
    wanted.mode = static_cast<lockmgr::LockMode>(ask.mode);
    wanted.group = lockmgr::GroupId(ask.group);
    wanted.flags = ask.flags;
    wanted.extents = protocol::extents_of(ask.extents);
    if (auto asked = server_.request(request.session, wanted); !asked)
      context_.refuse(request, asked.error());
  }

  void unlock(const Request& request, const wire::UnlockT& ask) {
    const ContainerId container(ask.container);
    // A session that never asked for a lock has none to give back.
    const auto known = known_.find(request.session);
    if (known == known_.end()) return context_.answer(request, wire::DoneT{});
    std::vector<LockHandle> handles;
    for (const uint64_t lock : ask.locks) {
      handles.push_back(known->second.from_wire(container, lock));
      revoked_[request.session].erase({container, handles.back()});
      known->second.forget(container, lock);
    }
    (void)server_.release(request.session, container, handles);
    context_.answer(request, wire::DoneT{});
  }

  Result<> check(SessionId session, const OpenFile& file, const std::vector<uint64_t>& locks,
                 const std::vector<wire::Extent>& extents) {
    if (locks.empty()) return {};
    const auto known = known_.find(session);
    // After a restart the desk does not know a session whose locks were not replayed, and the client takes a
    // new lock as for any lost one.
    if (known == known_.end() && context_.sessions.find(session) != nullptr)
      return fail(ErrorCode::kConflict, "the lock named is not known to the service; ask for a lock again");
    std::vector<LockHandle> handles;
    handles.reserve(locks.size());
    for (const uint64_t lock : locks) {
      handles.push_back(known == known_.end() ? LockHandle(lock)
                                              : known->second.from_wire(file.container, lock));
    }
    return server_.check_all(session, file.container, handles, protocol::extents_of(extents),
                             lockmgr::LockMode::kPw);
  }

  void glimpse(const Request& request, ContainerId container, uint64_t beyond, std::function<void()> then) {
    Glimpse glimpse{container, beyond, {}, std::move(then)};
    if (beyond < kMaxFileBytes)
      glimpse.asked = server_.writers(container, {Offset(beyond), Offset(kMaxFileBytes)}, request.session);
    if (glimpse.asked.empty()) return glimpse.then();
    const uint64_t number = next_glimpse_++;
    const auto& asked = glimpses_.emplace(number, std::move(glimpse)).first->second.asked;
    for (const SessionId session : std::set(asked)) ask_glimpse(session, number);
  }

  void glimpsed(const Request& request, const wire::GlimpsedT& told) {
    context_.answer(request, wire::DoneT{});
    end_glimpse(request.session, told.number);
  }

  // --- after a restart ---
  void session_replaces(SessionId before, SessionId now) {
    if (server_.recovering() && written_.before().contains(before)) came_back_[now] = before;
  }

  void replay(SessionId session, ContainerId container, const wire::RecoverT& recover) {
    if (recover.locks.empty()) return;
    std::vector<lockmgr::HeldLock> held;
    for (const auto& lock : recover.locks) {
      // Told before, over a connection that was lost.
      if (known_.contains(session) && known_.at(session).keeps(container, lock.lock())) continue;
      held.push_back({LockHandle(lock.lock()),
                      static_cast<lockmgr::LockMode>(lock.mode()),
                      lockmgr::GroupId(lock.group()),
                      {Offset(lock.extent().begin()), Offset(lock.extent().end())},
                      lock.ordinary()});
    }
    Result<> welcome = know(session);
    auto handles = welcome ? server_.replay(session, container, held)
                           : Result<std::vector<LockHandle>>(fail(welcome.error()));
    if (!handles) log::info("session {}: locks not replayed: {}", session.value, handles.error().message);
    for (size_t i = 0; i < held.size(); ++i) {
      const LockHandle now = handles ? (*handles)[i] : lockmgr::kNoLock;
      if (now == lockmgr::kNoLock) {
        tell_later(session, container, held[i].handle.value, /*lost=*/true);
      } else {
        known_.at(session).keep(container, held[i].handle.value, now);
      }
    }
    // Until it is written down its name of before stands for it: the next start waits for that one.
    if (welcome && !written_.contains(session)) written_.add(session, [](Result<>) {});
  }

  void recovery_is_over_for(SessionId session) {
    const auto at = came_back_.find(session);
    if (at == came_back_.end()) return;
    const SessionId before = at->second;
    came_back_.erase(at);
    if (known_.contains(session)) (void)server_.finish_replay(session);
    written_.forget_before(before);
    if (written_.before().empty()) server_.stop_recovery();
  }

  void session_gone(SessionId session, bool evicted) {
    std::vector<uint64_t> awaited;
    for (const auto& [number, glimpse] : glimpses_) {
      if (glimpse.asked.contains(session)) awaited.push_back(number);
    }
    for (const uint64_t number : awaited) end_glimpse(session, number);
    revoked_.erase(session);
    came_back_.erase(session);
    arriving_.erase(session);
    written_.remove(session);
    // Its names are still needed while it is evicted: others are told of grants, it is told of nothing.
    if (known_.erase(session) == 0) return;
    if (evicted) return server_.evict(session);
    server_.close_session(session);
  }

  void session_back(SessionId session) {
    for (const auto& [number, glimpse] : glimpses_) {
      if (glimpse.asked.contains(session)) ask_glimpse(session, number);
    }
    const auto at = revoked_.find(session);
    if (at == revoked_.end()) return;
    for (const auto& [container, handle] : at->second)
      tell_later(session, container, known_.at(session).to_wire(handle), /*lost=*/false);
  }

  void container_removed(ContainerId container) { server_.remove_container(container); }

  void show(const Request& request, const wire::LocksT& ask) {
    const std::string path = protocol::normalise_path(ask.path).value();
    context_.off_loop(
        std::hash<std::string>{}(path), [this, path] { return context_.parts.store.find(path); },
        [this, request, path](Result<storage::ContainerInfo> found) {
          const Session* session = context_.sessions.find(request.session);
          if (session == nullptr) return;
          if (!found && found.error().code == ErrorCode::kNotFound)
            found = fail(ErrorCode::kNotFound,
                         path + " does not exist in the pool; `sluice ls /` shows what does");
          if (!found) return context_.refuse(request, found.error());
          if (auto ok = check_access(found->attributes, session->uid, session->gid, wire::Access::ReadOnly);
              !ok)
            return context_.refuse(request, ok.error());
          context_.answer_once(request, shown(found->id));
        });
  }

  std::vector<LockCounters> totals() const {
    const std::lock_guard lock(totals_mutex_);
    return totals_;
  }

  void tick() {
    count_up();
    const bool was_recovering = server_.recovering();
    server_.expire();
    if (!was_recovering || server_.recovering()) return;
    // Whoever did not come back in time is not waited for again.
    for (const SessionId session : std::set<SessionId>(written_.before())) written_.forget_before(session);
  }

  // --- LockOutbox ---
  void send_grant(SessionId session, lockmgr::RequestId request, ContainerId,
                  const std::vector<lockmgr::ExtentAnswer>& answers) override {
    const LockNames& names = known_.at(session);
    wire::GrantedT granted;
    for (const auto& answer : answers) {
      granted.answers.emplace_back(names.to_wire(answer.handle),
                                   wire::Extent(answer.extent.begin.value, answer.extent.end.value),
                                   static_cast<uint8_t>(answer.answer), static_cast<uint8_t>(answer.blocker),
                                   static_cast<uint8_t>(answer.mode));
    }
    context_.answer({session, request.value}, std::move(granted));
  }
  void send_error(SessionId session, lockmgr::RequestId request, const Error& error) override {
    context_.refuse({session, request.value}, error);
  }
  void send_revoke(SessionId session, ContainerId container, LockHandle handle, Extent) override {
    revoked_[session].insert({container, handle});
    tell_later(session, container, known_.at(session).to_wire(handle), /*lost=*/false);
  }
  void session_evicted(SessionId) override {}  // its requests are refused since its session is gone

 private:
  protocol::Body shown(ContainerId container) const {
    wire::LocksShownT all;
    if (const auto counts = server_.counts().find(container); counts != server_.counts().end()) {
      all.grants = counts->second.grants;
      all.expansions = counts->second.expansions;
      all.revokes = counts->second.revokes;
      all.reclaimed = counts->second.reclaimed;
      all.ahead_extents = counts->second.ahead_extents;
      all.ahead_dropped = counts->second.ahead_dropped;
      all.waits = counts->second.waits;
      all.wait_ms = counts->second.wait_ms;
    }
    if (const lockmgr::LockTable* table = server_.table(container)) {
      const auto held = table->locks();
      const auto waiting = table->waiters();
      all.held = held.size();
      all.waiting = waiting.size();
      // Those who wait are what one looks for: they get half of the places when there are too many.
      const size_t waiting_shown = std::min(waiting.size(), protocol::kMaxLocksShown / 2);
      for (const auto& lock : held) {
        all.revoked += lock.revoked ? 1 : 0;
        if (all.locks.size() + waiting_shown < protocol::kMaxLocksShown)
          all.locks.push_back(
              shown(lock.owner, lock.mode, lock.group, lock.extent, false, lock.revoked, !lock.ordinary));
      }
      for (size_t i = 0; i < waiting_shown; ++i) {
        all.locks.push_back(shown(waiting[i].owner, waiting[i].mode, waiting[i].group,
                                  waiting[i].extents.front(), true, false, false));
      }
    }
    protocol::Body body;
    body.Set(std::move(all));
    return body;
  }
  wire::LockShown shown(lockmgr::OwnerId owner, lockmgr::LockMode mode, lockmgr::GroupId group,
                        const Extent& extent, bool waiting, bool revoked, bool ahead) const {
    const Session* session = context_.sessions.find(SessionId(owner.value));
    return {wire::Extent(extent.begin.value, extent.end.value),
            owner.value,
            group.value,
            session == nullptr ? 0 : session->pid,
            static_cast<uint8_t>(mode),
            waiting,
            revoked,
            ahead};
  }

  void count_up() {
    std::vector<LockCounters> totals;
    for (const auto& [container, counts] : server_.counts()) {
      const auto path = paths_.find(container);
      if (path == paths_.end()) continue;
      const lockmgr::LockTable* table = server_.table(container);
      totals.push_back({path->second, table == nullptr ? 0 : table->granted_count(),
                        table == nullptr ? 0 : table->waiting_count(), counts.grants, counts.expansions,
                        counts.revokes, counts.ahead_dropped, counts.waits, counts.wait_ms});
    }
    std::sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    const std::lock_guard lock(totals_mutex_);
    totals_ = std::move(totals);
  }

  Result<> know(SessionId session) {
    if (known_.contains(session)) return {};
    if (auto opened = server_.open_session(session); !opened) return opened;
    known_.emplace(session, LockNames(salt_));
    return {};
  }

  // The first locks that a session asks for: it is written down, then they are asked for in order.
  void arrive(const Request& request, const wire::LockT& ask) {
    auto& asked = arriving_[request.session];
    asked.emplace_back(request, ask);
    if (asked.size() > 1) return;
    written_.add(request.session, [this, session = request.session](Result<> written) {
      const auto at = arriving_.find(session);
      if (at == arriving_.end()) return;  // gone meanwhile
      const auto waiting = std::move(at->second);
      arriving_.erase(at);
      if (written) written = know(session);
      for (const auto& [waited, lock_ask] : waiting) {
        if (!written) {
          context_.refuse(waited, written.error());
        } else {
          lock(waited, lock_ask);
        }
      }
    });
  }

  struct Revoked {
    SessionId session;
    ContainerId container;
    bool lost;
    auto operator<=>(const Revoked&) const = default;
  };
  // One request may ask for thousands of locks back; they go together. Whoever holds one learns of it no
  // sooner than of its grant, since those go at once.
  void tell_later(SessionId session, ContainerId container, uint64_t name, bool lost) {
    if (to_tell_.empty()) context_.parts.transport.post([this] { tell_all(); });
    to_tell_[{session, container, lost}].push_back(name);
  }
  void tell_all() {
    for (const auto& [revoked, names] : std::exchange(to_tell_, {})) {
      for (size_t from = 0; from < names.size(); from += protocol::kMaxUnlocks) {
        wire::RevokeT revoke;
        revoke.container = revoked.container.value;
        revoke.lock = names[from];
        revoke.lost = revoked.lost;
        const size_t to = std::min(names.size(), from + protocol::kMaxUnlocks);
        revoke.more.assign(names.begin() + static_cast<ptrdiff_t>(from) + 1,
                           names.begin() + static_cast<ptrdiff_t>(to));
        tell(revoked.session, std::move(revoke));
      }
    }
  }
  struct Glimpse {
    ContainerId container;
    uint64_t beyond = 0;
    std::set<SessionId> asked;  // and not heard of
    std::function<void()> then;
  };
  void ask_glimpse(SessionId session, uint64_t number) {
    const Glimpse& glimpse = glimpses_.at(number);
    wire::GlimpseT ask;
    ask.number = number;
    ask.container = glimpse.container.value;
    ask.beyond = glimpse.beyond;
    tell(session, std::move(ask));
  }
  void end_glimpse(SessionId session, uint64_t number) {
    const auto at = glimpses_.find(number);
    if (at == glimpses_.end() || at->second.asked.erase(session) == 0 || !at->second.asked.empty()) return;
    const auto then = std::move(at->second.then);
    glimpses_.erase(at);
    then();
  }

  template <class T>
  void tell(SessionId id, T said) {
    const Session* session = context_.sessions.find(id);
    if (session == nullptr || !session->peer) return;  // told when it comes back
    if (auto sent = context_.parts.transport.send(*session->peer, protocol::encode(0, std::move(said)));
        !sent) {
      // Cut off, it comes back and is told again.
      log::warn("session {}: not told of others' wishes for its locks: {}", id.value, sent.error().message);
      const auto peer = *session->peer;
      context_.sessions.peer_lost(peer);
      context_.parts.transport.disconnect(peer, sent.error());
    }
  }

  Context& context_;
  OpenFiles& files_;
  LoopClock clock_;
  LockSessions written_;
  lockmgr::LockServer server_;
  const uint64_t salt_;
  std::map<ContainerId, std::string> paths_;  // of those that had locks
  mutable std::mutex totals_mutex_;
  std::vector<LockCounters> totals_;
  std::map<SessionId, LockNames> known_;  // to the lock server
  std::map<SessionId, std::vector<std::pair<Request, wire::LockT>>> arriving_;
  std::map<Revoked, std::vector<uint64_t>> to_tell_;
  std::map<uint64_t, Glimpse> glimpses_;
  uint64_t next_glimpse_ = 1;
  std::map<SessionId, SessionId> came_back_;  // now, and as it was called before the restart
  std::map<SessionId, std::set<std::pair<ContainerId, LockHandle>>> revoked_;  // and not given back yet
};

LockDesk::LockDesk(Context& context, OpenFiles& files) : impl_(std::make_unique<Impl>(context, files)) {}
LockDesk::~LockDesk() = default;
void LockDesk::lock(const Request& request, const wire::LockT& lock) {
  impl_->lock(request, lock);
}
void LockDesk::unlock(const Request& request, const wire::UnlockT& unlock) {
  impl_->unlock(request, unlock);
}
Result<> LockDesk::check(SessionId session, const OpenFile& file, const std::vector<uint64_t>& locks,
                         const std::vector<wire::Extent>& extents) {
  return impl_->check(session, file, locks, extents);
}
void LockDesk::glimpse(const Request& request, ContainerId container, uint64_t beyond,
                       std::function<void()> then) {
  impl_->glimpse(request, container, beyond, std::move(then));
}
void LockDesk::glimpsed(const Request& request, const wire::GlimpsedT& told) {
  impl_->glimpsed(request, told);
}
void LockDesk::session_replaces(SessionId before, SessionId now) {
  impl_->session_replaces(before, now);
}
void LockDesk::replay(SessionId session, ContainerId container, const wire::RecoverT& recover) {
  impl_->replay(session, container, recover);
}
void LockDesk::recovery_is_over_for(SessionId session) {
  impl_->recovery_is_over_for(session);
}
void LockDesk::session_gone(SessionId session, bool evicted) {
  impl_->session_gone(session, evicted);
}
void LockDesk::session_back(SessionId session) {
  impl_->session_back(session);
}
void LockDesk::container_removed(ContainerId container) {
  impl_->container_removed(container);
}
void LockDesk::show(const Request& request, const wire::LocksT& ask) {
  impl_->show(request, ask);
}
std::vector<LockCounters> LockDesk::totals() const {
  return impl_->totals();
}
void LockDesk::tick() {
  impl_->tick();
}

}  // namespace sluice::engine
