#include "client/lock_agent.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "lockmgr/client.h"

namespace sluice::client {
namespace {

constexpr uint64_t kTickMs = 10'000;

class LoopClock final : public Clock {
 public:
  explicit LoopClock(transport::Transport& transport) : transport_(transport) {}
  uint64_t now_ms() const override { return transport_.now_ms(); }

 private:
  transport::Transport& transport_;
};

lockmgr::ExtentAnswer from_wire(const wire::LockAnswer& told) {
  lockmgr::ExtentAnswer answer;
  answer.answer = static_cast<lockmgr::LockAnswer>(told.answer());
  answer.blocker = static_cast<lockmgr::LockBlocker>(told.blocker());
  answer.handle = lockmgr::LockHandle(told.lock());
  answer.extent = {Offset(told.extent().begin()), Offset(told.extent().end())};
  answer.mode = static_cast<lockmgr::LockMode>(told.mode());
  return answer;
}

}  // namespace

class LockAgent::Impl final : public lockmgr::LockRequester, public lockmgr::LockFlusher {
 public:
  // Larger than any window of lockahead, or the cache would give back what was just asked for.
  static constexpr size_t kMaxIdleLocks = 4 * kMaxLockaheadExtents;

  explicit Impl(Session& session)
      : session_(session),
        clock_(session.transport()),
        cache_(clock_, *this, *this, {.max_idle_locks = kMaxIdleLocks, .max_idle_ms = 60'000}) {
    tick();
  }
  ~Impl() override {
    *alive_ = false;
    for (const auto& replay : replays_) session_.remove(replay.get());
  }

  void opened(const LockTarget& target) {
    auto& open = targets_[target.container];
    open.push_back(target);
    if (open.size() > 1) return;
    waits_[target.container] = {};
    // The members of a group share the handle.
    cache_.use_strategy(target.container,
                        lockmgr::make_strategy(target.settings.policy, lockmgr::GroupId(target.handle),
                                               target.settings.extents));
  }

  std::optional<LockStats> closed(const LockTarget& target) {
    auto& open = targets_[target.container];
    std::erase_if(open, [&](const LockTarget& one) { return one.handle == target.handle; });
    if (!open.empty()) return std::nullopt;
    const LockStats stats{cache_.counts(target.container), waits_[target.container].count,
                          waits_[target.container].us};
    waits_.erase(target.container);
    cache_.drop(target.container);
    targets_.erase(target.container);
    return stats;
  }

  void acquire(ContainerId container, Extent extent, bool write, std::function<void(Result<LockUse>)> done) {
    take(&lockmgr::LockCache::acquire, container, extent, write, std::move(done));
  }

  void expect(ContainerId container, std::span<const Extent> writes) { cache_.expect(container, writes); }

  void hold(ContainerId container, Extent extent, bool exclusive,
            std::function<void(Result<uint64_t>)> done) {
    waiting_.push_back({next_held_++, container, extent, exclusive, {}, std::move(done)});
    serve_waiting();
  }

  Result<> release(uint64_t id) {
    const auto at =
        std::find_if(held_.begin(), held_.end(), [id](const Held& held) { return held.id == id; });
    if (at == held_.end())
      return fail(ErrorCode::kInvalidArgument, "lock " + std::to_string(id) + " is not held");
    const bool lost = at->lost;
    held_.erase(at);
    serve_waiting();
    if (!lost) return {};
    return fail(
        ErrorCode::kAborted,
        "a lock was lost when the service was restarted, so others may have written in its range; do the "
        "operation again");
  }

  void revoke(const wire::RevokeT& revoke) {
    const ContainerId container(revoke.container);
    std::vector<lockmgr::LockHandle> locks = {lockmgr::LockHandle(revoke.lock)};
    for (const uint64_t lock : revoke.more) locks.emplace_back(lock);
    if (!revoke.lost) return cache_.on_revoke(container, locks);
    for (const lockmgr::LockHandle lock : locks) lose(container, lock);
  }

  void refused(ContainerId container, uint64_t lock) { lose(container, lockmgr::LockHandle(lock)); }

  void glimpse(const wire::GlimpseT& glimpse) {
    flush(ContainerId(glimpse.container), {Offset(glimpse.beyond), Offset(kMaxFileBytes)},
          [this, alive = alive_, number = glimpse.number] {
            if (!*alive) return;
            protocol::Body body;
            wire::GlimpsedT told;
            told.number = number;
            body.Set(std::move(told));
            session_.tell(std::move(body));
          });
  }

  // Requests that were not answered are asked again by the session.
  void service_restarted() {
    for (const auto& replay : replays_) session_.remove(replay.get());
    replays_.clear();
    for (const auto& [container, held] : cache_.held()) {
      for (size_t from = 0; from < held.size(); from += protocol::kMaxHeldLocks) {
        replays_.push_back(std::make_unique<LockReplay>(*this, container, from));
        session_.add(replays_.back().get());
      }
    }
  }
  void fenced() {
    for (Held& held : held_) held.lost = held.done == nullptr;
    cache_.session_lost();
  }

  uint64_t covering(ContainerId container, const Extent& extent) const {
    return cache_.covering(container, extent, lockmgr::LockMode::kPw).handle.value;
  }

  // --- LockFlusher ---
  void flush(ContainerId container, Extent extent, std::function<void()> done) override {
    const auto open = targets_.find(container);
    if (open == targets_.end()) return done();
    const auto left = std::make_shared<size_t>(open->second.size() + 1);
    const auto one_less = [left, done = std::move(done)] {
      if (--*left == 0) done();
    };
    for (const LockTarget& file : open->second) file.flush(extent, one_less);
    one_less();
  }

  // --- LockRequester ---
  void send_request(const lockmgr::LockAsk& ask) override {
    const auto target = targets_.find(ask.container);
    const Error closed(ErrorCode::kInvalidArgument, "the file was closed while a lock was asked for");
    if (target == targets_.end()) return later(ask.id, closed);
    wire::LockT wanted;
    wanted.handle = target->second.front().handle;
    wanted.secret = target->second.front().secret;
    wanted.mode = static_cast<uint8_t>(ask.mode);
    wanted.group = ask.group.value;
    wanted.flags = ask.flags;
    wanted.extents = protocol::to_wire(ask.extents);
    sending_ = true;
    session_.call(std::move(wanted),
                  [this, alive = alive_, id = ask.id, container = ask.container](Result<Answer> answer) {
                    if (!*alive) return;
                    if (!answer)
                      return sending_ ? later(id, answer.error()) : cache_.on_error(id, answer.error());
                    const auto* granted = answer->message->body.AsGranted();
                    if (granted == nullptr)
                      return cache_.on_error(
                          id, Error(ErrorCode::kProtocol, "a lock request was answered with something else"));
                    std::vector<lockmgr::ExtentAnswer> answers;
                    for (const auto& told : granted->answers) answers.push_back(from_wire(told));
                    cache_.on_answer(id, container, answers);
                  });
    sending_ = false;
  }

  void send_release(ContainerId container, const std::vector<lockmgr::LockHandle>& handles) override {
    for (size_t at = 0; at < handles.size(); at += protocol::kMaxUnlocks) {
      wire::UnlockT unlock;
      unlock.container = container.value;
      for (size_t i = at; i < std::min(handles.size(), at + protocol::kMaxUnlocks); ++i)
        unlock.locks.push_back(handles[i].value);
      session_.call(std::move(unlock), [](Result<Answer>) {});
    }
  }

 private:
  struct Held {
    uint64_t id = 0;
    ContainerId container;
    Extent extent;
    bool exclusive = false;
    LockUse use;
    std::function<void(Result<uint64_t>)> done;  // until it is granted
    bool lost = false;

    bool conflicts(const Held& other) const {
      return container == other.container && extent.overlaps(other.extent) && (exclusive || other.exclusive);
    }
  };

  struct Waits {
    uint64_t count = 0;
    uint64_t us = 0;
  };
  void take(decltype(&lockmgr::LockCache::acquire) how, ContainerId container, Extent extent, bool write,
            std::function<void(Result<LockUse>)> done) {
    const auto access = write ? lockmgr::LockMode::kPw : lockmgr::LockMode::kPr;
    const auto asked = std::chrono::steady_clock::now();
    const auto at_once = std::make_shared<bool>(true);
    (cache_.*how)(container, extent, access,
                  [this, container, asked, at_once, done = std::move(done)](Result<lockmgr::LockUse> use) {
                    if (!*at_once) note_wait(container, std::chrono::steady_clock::now() - asked);
                    if (!use) return done(fail(use.error()));
                    const uint64_t id = use->token().handle.value;
                    done(LockUse{id, std::make_shared<lockmgr::LockUse>(std::move(*use))});
                  });
    *at_once = false;
  }
  void note_wait(ContainerId container, std::chrono::steady_clock::duration waited) {
    Waits& waits = waits_[container];
    ++waits.count;
    waits.us += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(waited).count());
  }
  // The cache must not hear an answer from within its own call.
  void later(lockmgr::RequestId id, const Error& error) {
    session_.transport().post([this, alive = alive_, id, error] {
      if (*alive) cache_.on_error(id, error);
    });
  }

  // Those whose turn it is within this process go on to the service.
  void serve_waiting() {
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const auto blocks = [&](const Held& other) { return other.conflicts(*at); };
      if (std::any_of(held_.begin(), held_.end(), blocks) || std::any_of(waiting_.begin(), at, blocks)) {
        ++at;
        continue;
      }
      held_.push_back(std::move(*at));
      at = waiting_.erase(at);
      ask(held_.back().id);
    }
  }

  void ask(uint64_t id) {
    const Held& mine = *find_held(id);
    const auto granted = [this, id](Result<LockUse> use) {
      const auto at = find_held(id);
      auto done = std::exchange(at->done, nullptr);
      if (use) {
        at->use = std::move(*use);
        return done(id);
      }
      held_.erase(at);
      done(fail(use.error()));
      serve_waiting();
    };
    take(&lockmgr::LockCache::hold, mine.container, mine.extent, mine.exclusive, granted);
  }

  // A part of the locks of one container, on its way with the recovery of the files.
  class LockReplay final : public Recoverable {
   public:
    LockReplay(Impl& agent, ContainerId container, size_t from)
        : agent_(agent), container_(container), from_(from) {}
    // Made when it is sent: what was given back meanwhile is not held any more.
    wire::RecoverT recovery() const override { return agent_.replay(container_, from_); }
    void lost(const Error&) override { agent_.lose_all(container_); }

   private:
    Impl& agent_;
    const ContainerId container_;
    const size_t from_;
  };

  wire::RecoverT replay(ContainerId container, size_t from) const {
    wire::RecoverT ask;
    ask.container = container.value;
    if (const auto open = targets_.find(container); open != targets_.end() && !open->second.empty()) {
      ask.handle = open->second.front().handle;
      ask.secret = open->second.front().secret;
    }
    const auto all = cache_.held();
    const auto held = all.find(container);
    if (held == all.end()) return ask;
    for (size_t i = from; i < std::min(held->second.size(), from + protocol::kMaxHeldLocks); ++i) {
      const lockmgr::HeldLock& lock = held->second[i];
      ask.locks.emplace_back(wire::Extent(lock.extent.begin.value, lock.extent.end.value), lock.handle.value,
                             lock.group.value, static_cast<uint8_t>(lock.mode), lock.ordinary);
    }
    return ask;
  }

  void lose_all(ContainerId container) {
    const auto all = cache_.held();
    const auto held = all.find(container);
    if (held == all.end()) return;
    for (const lockmgr::HeldLock& lock : held->second) lose(container, lock.handle);
  }
  void lose(ContainerId container, lockmgr::LockHandle lock) {
    const lockmgr::HeldLock gone{lock, lockmgr::LockMode::kPw, lockmgr::GroupId(0), {}, true};
    cache_.replayed(container, {&gone, 1}, {&lockmgr::kNoLock, 1});
    for (Held& held : held_)
      held.lost =
          held.lost || (held.container == container && held.done == nullptr && held.use.id == lock.value);
  }

  std::list<Held>::iterator find_held(uint64_t id) {
    return std::find_if(held_.begin(), held_.end(), [id](const Held& held) { return held.id == id; });
  }

  void tick() {
    session_.transport().post([this, alive = alive_] {
      if (!*alive) return;
      session_.transport().after_ms(kTickMs, [this, alive] {
        if (!*alive) return;
        cache_.tick();
        tick();
      });
    });
  }

  Session& session_;
  LoopClock clock_;
  lockmgr::LockCache cache_;
  std::map<ContainerId, std::vector<LockTarget>> targets_;  // open files
  std::map<ContainerId, Waits> waits_;
  std::list<Held> held_;                              // by hold(), granted or asked for
  std::vector<std::unique_ptr<LockReplay>> replays_;  // since the last restart of the service
  std::list<Held> waiting_;                           // behind one of held_, in order
  uint64_t next_held_ = 1;
  bool sending_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

LockReport to_lock_report(const wire::LocksShownT& shown) {
  LockReport report;
  for (const auto& lock : shown.locks) {
    report.locks.push_back(
        {{Offset(lock.extent().begin()), Offset(lock.extent().end())},
         lock.session(),
         lock.pid(),
         lockmgr::to_string(static_cast<lockmgr::LockMode>(lock.mode()), lockmgr::GroupId(lock.group())),
         lock.waiting(),
         lock.revoked(),
         lock.ahead()});
  }
  report.held = shown.held;
  report.waiting = shown.waiting;
  report.revoked = shown.revoked;
  report.grants = shown.grants;
  report.expansions = shown.expansions;
  report.revokes = shown.revokes;
  report.reclaimed = shown.reclaimed;
  report.ahead_extents = shown.ahead_extents;
  report.ahead_dropped = shown.ahead_dropped;
  report.waits = shown.waits;
  report.wait_ms = shown.wait_ms;
  return report;
}

LockAgent::LockAgent(Session& session) : impl_(std::make_unique<Impl>(session)) {}
LockAgent::~LockAgent() = default;
void LockAgent::opened(const LockTarget& target) {
  impl_->opened(target);
}
std::optional<LockStats> LockAgent::closed(const LockTarget& target) {
  return impl_->closed(target);
}
void LockAgent::acquire(ContainerId container, Extent extent, bool write,
                        std::function<void(Result<LockUse>)> done) {
  impl_->acquire(container, extent, write, std::move(done));
}
void LockAgent::expect(ContainerId container, std::span<const Extent> writes) {
  impl_->expect(container, writes);
}
void LockAgent::hold(ContainerId container, Extent extent, bool exclusive,
                     std::function<void(Result<uint64_t>)> done) {
  impl_->hold(container, extent, exclusive, std::move(done));
}
void LockAgent::flush(ContainerId container, Extent extent, std::function<void()> done) {
  impl_->flush(container, extent, std::move(done));
}
uint64_t LockAgent::covering(ContainerId container, const Extent& extent) const {
  return impl_->covering(container, extent);
}
Result<> LockAgent::release(uint64_t held) {
  return impl_->release(held);
}
void LockAgent::refused(ContainerId container, uint64_t lock) {
  impl_->refused(container, lock);
}
void LockAgent::revoke(const wire::RevokeT& revoke) {
  impl_->revoke(revoke);
}
void LockAgent::glimpse(const wire::GlimpseT& glimpse) {
  impl_->glimpse(glimpse);
}
void LockAgent::service_restarted() {
  impl_->service_restarted();
}
void LockAgent::fenced() {
  impl_->fenced();
}

}  // namespace sluice::client
