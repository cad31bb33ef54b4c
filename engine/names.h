#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/blocked_watch.h"
#include "engine/context.h"
#include "engine/lock_desk.h"
#include "engine/open_files.h"

namespace sluice::engine {

// Requests about paths: stat, list, remove, explain, and waiting for the drain. Loop thread.
class Names {
 public:
  Names(Context& context, OpenFiles& files, LockDesk& locks)
      : context_(context), files_(files), locks_(locks) {}

  void stat(const Request& request, const wire::StatT& stat);
  void list(const Request& request, const wire::ListT& list);
  void remove(const Request& request, const wire::RemoveT& remove);
  void explain(const Request& request, const wire::ExplainT& explain);
  // Answers when all is drained that is committed now, with kTimedOut after the time that was asked for, and
  // with the reason when waiting is pointless (see BlockedWatch).
  void await_drained(const Request& request, const wire::AwaitDrainedT& await);

 private:
  struct Wanted {
    ContainerId container;
    Epoch epoch;
  };
  struct Await {
    Request request;
    std::vector<Wanted> wanted;
    uint64_t deadline_ms = 0;
    std::string path;
    uint64_t failed_rounds = 0;  // of the drain, when it was asked
  };
  void check_drained(Await await);

  Context& context_;
  OpenFiles& files_;
  LockDesk& locks_;
  BlockedWatch blocked_;  // over all who wait: who asks anew every second finds it as it was
};

}  // namespace sluice::engine
