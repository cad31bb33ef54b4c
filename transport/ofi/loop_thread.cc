#include "transport/ofi/loop_thread.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <system_error>

#include "base/assert.h"

namespace sluice::transport {

namespace {

// The loops that run in this process, for the one moment that no object's life covers: exit() while a loop
// runs. libfabric frees its tables at exit, under the feet of a running loop. The handler is registered after
// libfabric was loaded, so it runs before that. Never destroyed: loops may end later than any static object.
class RunningLoops {
 public:
  using StopAtExit = std::function<void()>;

  static RunningLoops& instance() {
    static auto* loops = new RunningLoops;
    return *loops;
  }

  uint64_t add(StopAtExit stop) {
    const std::lock_guard lock(mutex_);
    if (!registered_) registered_ = std::atexit([] { instance().stop_all(); }) == 0;
    loops_.emplace(++last_, std::move(stop));
    return last_;
  }

  void remove(uint64_t id) {
    const std::lock_guard lock(mutex_);
    loops_.erase(id);
  }

 private:
  void stop_all() {
    std::map<uint64_t, StopAtExit> loops;
    {
      const std::lock_guard lock(mutex_);
      loops.swap(loops_);
    }
    for (const auto& [id, stop] : loops) stop();
  }

  std::mutex mutex_;
  bool registered_ = false;
  uint64_t last_ = 0;
  std::map<uint64_t, StopAtExit> loops_;
};

}  // namespace

class LoopThread::Runner {
 public:
  explicit Runner(OfiTransport& transport) : transport_(transport) {}

  Result<> start() {
    if (thread_.joinable()) return fail(ErrorCode::kExists, "the loop runs already");
    stopping_ = false;
    ended_ = false;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Result<> outcome;
    try {
      running_ = true;  // before the thread may end
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      running_ = false;
      outcome =
          fail(ErrorCode::kUnavailable, std::string("cannot start the transport's thread: ") + error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return outcome;
  }

  bool running() const { return running_; }

  void stop() {
    const std::lock_guard one_at_a_time(stop_mutex_);
    if (!thread_.joinable()) return;
    request_stop();
    if (abandoned_) return thread_.detach();
    SLUICE_ASSERT(thread_.get_id() != std::this_thread::get_id());
    thread_.join();
  }

  // For the end of the process. The loop may be stuck in a callback that waits for the exiting thread, or be
  // the exiting thread itself: then it is left alone.
  void stop_at_exit() {
    if (!thread_.joinable()) return;
    abandoned_ = thread_.get_id() == std::this_thread::get_id();
    if (abandoned_) return;
    request_stop();
    std::unique_lock lock(ended_mutex_);
    abandoned_ = !ended_changed_.wait_for(lock, std::chrono::seconds(2), [this] { return ended_; });
  }

 private:
  static constexpr uint64_t kLongestWaitMs = 60'000;

  void request_stop() {
    stopping_.store(true);
    transport_.post([] {});
  }

  void run() {
    while (!stopping_.load()) transport_.run_once(kLongestWaitMs);
    running_ = false;
    const std::lock_guard lock(ended_mutex_);
    ended_ = true;
    ended_changed_.notify_all();
  }

  OfiTransport& transport_;
  std::atomic<bool> running_ = false;
  std::atomic<bool> stopping_ = false;
  std::mutex stop_mutex_;
  std::mutex ended_mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
  bool abandoned_ = false;  // at exit; only the exiting thread looks
  std::thread thread_;
};

LoopThread::LoopThread(OfiTransport& transport) : runner_(std::make_shared<Runner>(transport)) {}

bool LoopThread::running() const {
  return runner_->running();
}

LoopThread::~LoopThread() {
  stop();
}

Result<> LoopThread::start() {
  auto started = runner_->start();
  if (started) exit_hook_ = RunningLoops::instance().add([runner = runner_] { runner->stop_at_exit(); });
  return started;
}

void LoopThread::stop() {
  runner_->stop();
  RunningLoops::instance().remove(exit_hook_);
}

}  // namespace sluice::transport
