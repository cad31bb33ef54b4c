#include "client/core.h"

namespace sluice::client {
namespace {

Session::Options with_locks(Session::Options options, LockAgent*& agent) {
  options.on_revoke = [&agent](uint64_t container, uint64_t lock) { agent->revoke(container, lock); };
  options.on_new_boot = [&agent] { agent->service_restarted(); };
  options.on_fenced = [&agent] { agent->fenced(); };
  return options;
}

}  // namespace

Core::Core(transport::Transport& loop, Session::Options options, Drive drive)
    : transport(loop),
      session(loop, with_locks(std::move(options), agent_)),
      locks(session),
      drive_(std::move(drive)) {
  agent_ = &locks;
}

void Core::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& ready,
                const std::function<bool()>& done) {
  if (!drive_) return ready.wait(lock, done);
  lock.unlock();
  drive_(done);
  lock.lock();
}

}  // namespace sluice::client
