#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/os.h"
#include "base/result.h"

namespace sluice::tools {

// While it lives, SIGINT, SIGTERM, SIGHUP and SIGQUIT (those that the process does not ignore) do not end the
// process: they set signal(), and whoever works looks at it and ends in order. Make it before any other
// thread exists, for threads inherit what is blocked; one at a time.
//
// A call may block where nobody looks. So after grace_ms, and at once with a second signal, the files that
// are guarded are removed and the process ends by the signal. done() takes that time away, not the second
// signal.
//
// Thread-safe.
class Interruption {
 public:
  static constexpr uint64_t kGraceMs = 5'000;
  static Result<std::unique_ptr<Interruption>> begin(uint64_t grace_ms = kGraceMs);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // The first signal that came; 0 when none did.
  int signal() const { return signal_; }
  // A file that must not outlive a process that ends by the signal.
  void guard(const std::filesystem::path& file);
  void release(const std::filesystem::path& file);
  // What could be interrupted half way is over.
  void done() { done_ = true; }

 private:
  Interruption(uint64_t grace_ms, sigset_t before, UniqueFd signals, UniqueFd stop);
  void watch();
  void end_by_signal();

  const uint64_t grace_ms_;
  const sigset_t before_;
  const UniqueFd signals_, stop_;
  std::atomic<int> signal_{0};
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::set<std::filesystem::path> guarded_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace sluice::tools
