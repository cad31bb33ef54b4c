#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/context.h"
#include "engine/open_files.h"

namespace sluice::engine {

// The lock manager's server side, reached through messages. Loop thread.
class LockDesk {
 public:
  LockDesk(Context& context, OpenFiles& files);
  ~LockDesk();

  void lock(const Request& request, const wire::LockT& lock);
  void unlock(const Request& request, const wire::UnlockT& unlock);

  // Whether a write to these extents may go on under that lock (0: the client takes none). kConflict when the
  // lock is not held, or does not cover them: the client takes a new one.
  Result<> check(SessionId session, const OpenFile& file, uint64_t lock,
                 const std::vector<wire::Extent>& extents);

  void session_gone(SessionId session, bool evicted);
  // It came back over another connection: what was asked back meanwhile is asked again.
  void session_back(SessionId session);
  void container_removed(ContainerId container);
  void tick();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
