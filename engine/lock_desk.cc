#include "engine/lock_desk.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/log.h"
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

// Handles of a server that starts again must not name locks of an earlier run.
uint32_t new_generation(storage::MetaStore& meta) {
  auto number = meta.allot("lock generation", 1);
  if (!number) {
    log::warn("lock handles may repeat those of an earlier run: {}", number.error().message);
    return 1;
  }
  return static_cast<uint32_t>(*number % (UINT32_MAX - 1)) + 1;
}

}  // namespace

class LockDesk::Impl final : public lockmgr::LockOutbox {
 public:
  Impl(Context& context, OpenFiles& files)
      : context_(context),
        files_(files),
        clock_(context.parts.transport),
        // Leases are the sessions': they end here by evict().
        server_(clock_, *this, {.lease_ms = 0, .first_generation = new_generation(context.parts.meta)}) {}

  void lock(const Request& request, const wire::LockT& ask) {
    auto file = files_.find(request, ask.handle, ask.secret);
    if (!file) return context_.refuse(request, file.error());
    if (known_.insert(request.session).second) {
      if (auto opened = server_.open_session(request.session); !opened) {
        known_.erase(request.session);
        return context_.refuse(request, opened.error());
      }
    }
    lockmgr::LockAsk wanted;
    wanted.id = lockmgr::RequestId(request.id);
    wanted.container = (*file)->container;
    wanted.mode = static_cast<lockmgr::LockMode>(ask.mode);
    wanted.group = lockmgr::GroupId(ask.group);
    wanted.flags = ask.flags;
    wanted.extents = protocol::extents_of(ask.extents);
    if (auto asked = server_.request(request.session, wanted); !asked)
      context_.refuse(request, asked.error());
  }

  void unlock(const Request& request, const wire::UnlockT& ask) {
    const ContainerId container(ask.container);
    std::vector<LockHandle> handles;
    for (const uint64_t lock : ask.locks) {
      handles.emplace_back(lock);
      revoked_[request.session].erase({container, LockHandle(lock)});
    }
    // A session that never asked for a lock has none to give back.
    if (known_.contains(request.session)) (void)server_.release(request.session, container, handles);
    context_.answer(request, wire::DoneT{});
  }

  Result<> check(SessionId session, const OpenFile& file, uint64_t lock,
                 const std::vector<wire::Extent>& extents) {
    if (lock == 0) return {};
    Extent all{Offset(extents.front().begin()), Offset(extents.front().end())};
    for (const auto& extent : extents) {
      all.begin = std::min(all.begin, Offset(extent.begin()));
      all.end = std::max(all.end, Offset(extent.end()));
    }
    auto held = server_.check(session, file.container, LockHandle(lock), all, lockmgr::LockMode::kPw);
    // After a restart the desk does not know the session yet, and the client takes a new lock as for any lost
    // one.
    if (!held && held.error().code == ErrorCode::kFenced)
      return fail(ErrorCode::kConflict, held.error().message);
    return held;
  }

  void session_gone(SessionId session, bool evicted) {
    revoked_.erase(session);
    if (known_.erase(session) == 0) return;
    if (evicted) return server_.evict(session);
    server_.close_session(session);
  }

  void session_back(SessionId session) {
    const auto at = revoked_.find(session);
    if (at == revoked_.end()) return;
    for (const auto& [container, handle] : at->second) tell_revoke(session, container, handle);
  }

  void container_removed(ContainerId container) { server_.remove_container(container); }
  void tick() { server_.expire(); }

  // --- LockOutbox ---
  void send_grant(SessionId session, lockmgr::RequestId request, ContainerId,
                  const std::vector<lockmgr::ExtentAnswer>& answers) override {
    wire::GrantedT granted;
    for (const auto& answer : answers) {
      granted.answers.emplace_back(answer.handle.value,
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
    tell_revoke(session, container, handle);
  }
  void session_evicted(SessionId) override {}  // its requests are refused since its session is gone

 private:
  void tell_revoke(SessionId id, ContainerId container, LockHandle handle) {
    const Session* session = context_.sessions.find(id);
    if (session == nullptr || !session->peer) return;  // told when it comes back
    wire::RevokeT revoke;
    revoke.container = container.value;
    revoke.lock = handle.value;
    if (auto sent = context_.parts.transport.send(*session->peer, protocol::encode(0, std::move(revoke)));
        !sent) {
      // Cut off, it comes back and is told again.
      log::warn("session {}: revoke not sent: {}", id.value, sent.error().message);
      const auto peer = *session->peer;
      context_.sessions.peer_lost(peer);
      context_.parts.transport.disconnect(peer, sent.error());
    }
  }

  Context& context_;
  OpenFiles& files_;
  LoopClock clock_;
  lockmgr::LockServer server_;
  std::set<SessionId> known_;                                                  // to the lock server
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
Result<> LockDesk::check(SessionId session, const OpenFile& file, uint64_t lock,
                         const std::vector<wire::Extent>& extents) {
  return impl_->check(session, file, lock, extents);
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
void LockDesk::tick() {
  impl_->tick();
}

}  // namespace sluice::engine
