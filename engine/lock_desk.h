#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/context.h"
#include "engine/open_files.h"

namespace sluice::engine {

// The lock manager's server side, reached through messages. Loop thread.
//
// Which sessions may hold locks is in the metastore before they are granted the first: that is whom a service
// that starts again waits for. The names of locks on the wire are of one run of the service. A lock that was
// replayed keeps its old name towards its client.
class LockDesk {
 public:
  LockDesk(Context& context, OpenFiles& files);
  ~LockDesk();

  void lock(const Request& request, const wire::LockT& lock);
  void unlock(const Request& request, const wire::UnlockT& unlock);

  // Whether a write to these extents may go on under those locks (none: the client takes none). kConflict when
  // one is not held, or they do not cover them: the client takes a new one.
  Result<> check(SessionId session, const OpenFile& file, const std::vector<uint64_t>& locks,
                 const std::vector<wire::Extent>& extents);

  // Has whoever else holds write locks beyond write back what it gathered there, then calls `then`: at once
  // when nobody does, at the latest when the last of them was given up.
  void glimpse(const Request& request, ContainerId container, uint64_t beyond, std::function<void()> then);
  void glimpsed(const Request& request, const wire::GlimpsedT& told);

  // After a restart of the service. A session's locks come with the recovery of its files; the first thing
  // that it says besides tells that all came. Nothing new is granted until every session that held locks
  // before the restart has come that far, or the recovery window is over.
  void session_replaces(SessionId before, SessionId now);
  void replay(SessionId session, ContainerId container, const wire::RecoverT& recover);
  void recovery_is_over_for(SessionId session);

  void session_gone(SessionId session, bool evicted);
  // It came back over another connection: what was asked back meanwhile is asked again.
  void session_back(SessionId session);
  void container_removed(ContainerId container);

  // Who may read the file may see its locks.
  void show(const Request& request, const wire::LocksT& ask);
  std::vector<LockCounters> totals() const;  // any thread
  void tick();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
