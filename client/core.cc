#include "client/core.h"

#include <chrono>

namespace sluice::client {

// What the session calls runs on the loop, and so after the construction.
Session::Options Core::with_hooks(Session::Options options) {
  options.on_revoke = [this](const wire::RevokeT& revoke) { locks.revoke(revoke); };
  options.on_glimpse = [this](const wire::GlimpseT& glimpse) { locks.glimpse(glimpse); };
  options.on_new_boot = [this] { locks.service_restarted(); };
  options.on_fenced = [this] {
    locks.fenced();
    lane.fenced();
    transport.post([this] { give_back(false); });
  };
  options.on_welcome = [this](const wire::WelcomeT& welcome, transport::PeerId peer) {
    {
      const std::lock_guard lock(terms_mutex_);
      terms_ = {welcome.hints, welcome.drain};
    }
    if (welcome.lane) return lane.attach(transport.lent_files(peer), *welcome.lane);
    lane.detach();
  };
  options.grants = [this] { return lane.held(); };
  options.on_recall = [this] { give_back(true); };
  return options;
}

Core::Core(transport::Transport& loop, Session::Options options, std::function<bool()> loop_runs, Drive drive,
           RunHere run_here)
    : transport(loop),
      session(loop, with_hooks(std::move(options))),
      locks(session),
      loop_runs_(std::move(loop_runs)),
      drive_(std::move(drive)),
      run_here_(std::move(run_here)) {}

Result<> Core::on_loop(const std::function<void()>& work) {
  if (run_here_ && run_here_(work)) return {};
  auto done = wait_for<bool>([&work](auto told) {
    work();
    told(true);
  });
  if (!done) return fail(done.error());
  return {};
}

void Core::give_back(bool idle) {
  if (!session.ready_now()) return;  // they stay, for the next time
  wire::GiveBackT back;
  back.grants = lane.take_returns(idle);
  if (back.grants.empty()) return;
  protocol::Body body;
  body.Set(std::move(back));
  session.tell(std::move(body));
}

bool Core::wait_while_running(std::unique_lock<std::mutex>& lock, std::condition_variable& ready,
                              const std::function<bool()>& done) {
  if (drive_) return drive(lock, done);
  constexpr auto kLook = std::chrono::milliseconds(500);
  while (!ready.wait_for(lock, kLook, done)) {
    if (!loop_runs_()) return done();
  }
  return true;
}

void Core::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& ready,
                const std::function<bool()>& done) {
  if (!drive_) return ready.wait(lock, done);
  (void)drive(lock, done);
}

bool Core::drive(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  std::mutex& mutex = *lock.mutex();
  lock.unlock();
  const bool seen = drive_([&] {
    const std::lock_guard again(mutex);
    return done();
  });
  lock.lock();
  return seen || done();
}

}  // namespace sluice::client
