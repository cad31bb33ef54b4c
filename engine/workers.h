#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::engine {

// Where work goes that may block. Work of one key runs one after another in the order given; different keys
// may run at once.
class Workers {
 public:
  virtual ~Workers() = default;
  virtual void run(uint64_t key, std::function<void()> work) = 0;
};

// A fixed number of threads. The destructor finishes the work in hand and drops nothing that was given before
// it.
class ThreadWorkers final : public Workers {
 public:
  explicit ThreadWorkers(unsigned threads);
  ~ThreadWorkers() override;
  void run(uint64_t key, std::function<void()> work) override;

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable wakeup;
    std::deque<std::function<void()>> queue;
    bool stopping = false;
    std::thread thread;
  };
  void serve(Lane& lane);

  std::vector<std::unique_ptr<Lane>> lanes_;
};

// Runs at once on the caller's thread: for simulation, where everything is one thread.
class InlineWorkers final : public Workers {
 public:
  void run(uint64_t, std::function<void()> work) override { work(); }
};

}  // namespace sluice::engine
