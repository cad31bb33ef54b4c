#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "transport/ofi/ofi_transport.h"

namespace sluice::transport {

// Runs a transport on a thread of its own. The transport is borrowed: it outlives the LoopThread, and while
// the loop runs only post() may be called from elsewhere.
//
// The thread blocks all signals, so the host program's handlers never run on it. When the process exits while
// the loop runs (main() returns, or exit() anywhere), the loop is stopped before libfabric is torn down.
class LoopThread {
 public:
  explicit LoopThread(OfiTransport& transport);
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;
  ~LoopThread();  // stops

  // Once; kExists while it runs. A thread that cannot be started is kUnavailable.
  Result<> start();
  // On return the thread has ended; afterwards the caller may use the transport. Any thread but the loop's
  // own, any number of times. Work that was posted and has not run yet stays with the transport.
  void stop();
  // Lends the loop to the calling thread until `done` holds: it does the loop's work itself, so that an
  // answer it waits for wakes no other thread first. Several may do so at once; they take turns, and all see
  // what any of them did. `done` is called on the calling thread, between pieces of the loop's work, and must
  // be safe against other callers' turns; it need hold for a moment only. False when the loop ended first.
  // Not from the loop's work itself.
  bool drive(const std::function<bool()>& done);
  // Does `work` as a piece of the loop's work, on this thread, and what else is ready then. False when
  // another thread has the loop just now, or it ended: nothing was done.
  bool run_here(const std::function<void()>& work);
  // Whether posted work will run: from start() until stop(), or the end of the process. Any thread.
  bool running() const;

 private:
  class Runner;
  std::shared_ptr<Runner> runner_;
  uint64_t exit_hook_ = 0;
};

}  // namespace sluice::transport
