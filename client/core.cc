#include "client/core.h"

#include <chrono>

namespace sluice::client {
namespace {

Session::Options with_locks(Session::Options options, LockAgent*& agent) {
  options.on_revoke = [&agent](uint64_t container, uint64_t lock) { agent->revoke(container, lock); };
  options.on_new_boot = [&agent] { agent->service_restarted(); };
  options.on_fenced = [&agent] { agent->fenced(); };
  return options;
}

}  // namespace

Core::Core(transport::Transport& loop, Session::Options options, std::function<bool()> loop_runs, Drive drive)
    : transport(loop),
      session(loop, with_locks(std::move(options), agent_)),
      locks(session),
      loop_runs_(std::move(loop_runs)),
      drive_(std::move(drive)) {
  agent_ = &locks;
}

bool Core::wait_while_running(std::unique_lock<std::mutex>& lock, std::condition_variable& ready,
                              const std::function<bool()>& done) {
  if (drive_) {
    wait(lock, ready, done);
    return done();
  }
  constexpr auto kLook = std::chrono::milliseconds(500);
  while (!ready.wait_for(lock, kLook, done)) {
    if (!loop_runs_()) return done();
  }
  return true;
}

void Core::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& ready,
                const std::function<bool()>& done) {
  if (!drive_) return ready.wait(lock, done);
  std::mutex& mutex = *lock.mutex();
  lock.unlock();
  drive_([&] {
    const std::lock_guard again(mutex);
    return done();
  });
  lock.lock();
}

}  // namespace sluice::client
