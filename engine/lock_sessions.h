#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/context.h"

namespace sluice::engine {

// The sessions that may hold locks, as the metastore knows them: for whom a service that starts again waits.
// Loop thread, but for the constructor, which may block.
class LockSessions {
 public:
  explicit LockSessions(Context& context);

  // Those of before the restart; empty when what is written there cannot be understood.
  const std::set<SessionId>& before() const { return before_; }
  void forget_before(SessionId session);

  // `done` is called when the session is written down, or with the reason why it is not.
  void add(SessionId session, std::function<void(Result<>)> done);
  void remove(SessionId session);
  bool contains(SessionId session) const { return now_.contains(session); }

 private:
  void write();

  Context& context_;
  std::set<SessionId> before_;
  std::set<SessionId> now_;
  std::vector<std::function<void(Result<>)>> waiting_;  // for a write that begins later
  bool writing_ = false;
  bool changed_ = false;
};

}  // namespace sluice::engine
