#include "transport/ofi/loop_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
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
    process_ = ::getpid();
    loops_.emplace(++last_, std::move(stop));
    return last_;
  }

  void remove(uint64_t id) {
    const std::lock_guard lock(mutex_);
    loops_.erase(id);
  }

 private:
  void stop_all() {
    if (process_ != ::getpid()) return;  // a child has the handler, but none of the threads
    std::map<uint64_t, StopAtExit> loops;
    {
      const std::lock_guard lock(mutex_);
      loops.swap(loops_);
    }
    for (const auto& [id, stop] : loops) stop();
  }

  std::mutex mutex_;
  bool registered_ = false;
  pid_t process_ = 0;
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

  bool drive(const std::function<bool()>& done) {
    if (done()) return true;
    ++drivers_;
    std::unique_lock lock(turn_mutex_);
    // What was seen counts, also when it holds no more by the time that it is answered.
    bool seen = false;
    while (!(seen = seen || done()) && running_ && !stopping_) {
      if (turn_taken_) {
        if (background_has_turn_) transport_.post([] {});  // it waits for the network; here is somebody
        turn_changed_.wait_for(lock, kTurnPatience);
        continue;
      }
      turn_taken_ = true;
      lock.unlock();
      seen = take_turns(done);
      lock.lock();
      turn_taken_ = false;
      turn_changed_.notify_all();
    }
    driven_at_ = Steady::now();
    if (--drivers_ == 0) turn_changed_.notify_all();
    return seen;
  }

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

  bool run_here(const std::function<void()>& work) {
    {
      const std::lock_guard lock(turn_mutex_);
      if (turn_taken_ || !running_ || stopping_) return false;
      turn_taken_ = true;
    }
    work();
    transport_.run_ready();
    const std::lock_guard lock(turn_mutex_);
    turn_taken_ = false;
    driven_at_ = Steady::now();
    if (drivers_ > 0) turn_changed_.notify_all();
    return true;
  }

 private:
  static constexpr uint64_t kLongestWaitMs = 60'000;
  static constexpr uint64_t kLongestDriveMs = 500;  // then `done` is asked again

  void request_stop() {
    stopping_.store(true);
    transport_.post([] {});
    const std::lock_guard lock(turn_mutex_);
    turn_changed_.notify_all();
  }

  using Steady = std::chrono::steady_clock;
  // A thread that drives looks for its answer without sleeping for so long: about what a service on the same
  // machine needs. It lets others run between looks.
  static constexpr auto kLookAgain = std::chrono::microseconds(60);
  static constexpr auto kTurnPatience = std::chrono::milliseconds(100);
  // After a turn of somebody else's the loop's own thread leaves the loop alone for so long, because the same
  // program is likely to come again, and each change of hands costs two wake-ups.
  static constexpr auto kQuiet = std::chrono::milliseconds(2);

  // With the turn, without the mutex. Answers whether it saw `done` hold.
  bool take_turns(const std::function<bool()>& done) {
    auto busy_at = Steady::now();
    while (!stopping_) {
      const bool any = transport_.run_ready();
      // Others that wait for something else look whether this turn brought it.
      if (any && drivers_ > 1) {
        const std::lock_guard lock(turn_mutex_);
        turn_changed_.notify_all();
      }
      if (done()) return true;
      if (any) {
        busy_at = Steady::now();
      } else if (Steady::now() - busy_at < kLookAgain) {
        ::sched_yield();
      } else {
        transport_.run_once(kLongestDriveMs);
        busy_at = Steady::now();
      }
    }
    return false;
  }

  void run() {
    std::unique_lock lock(turn_mutex_);
    while (!stopping_) {
      if (turn_taken_ || drivers_ > 0) {
        turn_changed_.wait_for(lock, kTurnPatience);
        continue;
      }
      const auto quiet_for = Steady::now() - driven_at_;
      if (quiet_for < kQuiet) {
        turn_changed_.wait_for(lock, kQuiet - quiet_for);
        continue;
      }
      turn_taken_ = background_has_turn_ = true;
      lock.unlock();
      while (!stopping_ && drivers_ == 0) transport_.run_once(kLongestWaitMs);
      lock.lock();
      turn_taken_ = background_has_turn_ = false;
      turn_changed_.notify_all();
    }
    lock.unlock();
    running_ = false;
    const std::lock_guard ended(ended_mutex_);
    ended_ = true;
    ended_changed_.notify_all();
  }

  OfiTransport& transport_;
  std::atomic<bool> running_ = false;
  std::atomic<bool> stopping_ = false;
  std::mutex stop_mutex_;
  std::mutex turn_mutex_;
  std::condition_variable turn_changed_;
  std::atomic<int> drivers_ = 0;  // threads in drive()
  bool turn_taken_ = false;       // somebody is in the transport; turn_mutex_
  bool background_has_turn_ = false;
  Steady::time_point driven_at_{};
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

bool LoopThread::run_here(const std::function<void()>& work) {
  return runner_->run_here(work);
}

bool LoopThread::drive(const std::function<bool()>& done) {
  return runner_->drive(done);
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
