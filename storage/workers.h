#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::storage {

// A few threads that help with independent blocking work. The caller always takes part, so work is done even
// when every thread is busy, and with no threads at all everything runs on the caller, in order. Thread-safe.
class Workers {
 public:
  explicit Workers(size_t threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls work(0) ... work(count - 1), each once, and returns when all have returned. `work` must not throw.
  void run(size_t count, const std::function<void(size_t)>& work);

 private:
  struct Batch;
  static void take_part(Batch& batch);
  void help();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Batch>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::storage
