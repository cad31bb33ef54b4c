#include "engine/lock_sessions.h"

#include <sstream>
#include <utility>

#include "base/log.h"

namespace sluice::engine {
namespace {

constexpr const char* kKey = "lock sessions";
// Work of this key stays in order among itself only.
constexpr uint64_t kWorkKey = 0x6c6f636b73;

}  // namespace

LockSessions::LockSessions(Context& context) : context_(context) {
  const auto known = context_.parts.meta.get(kKey);
  if (!known) log::warn("which clients held locks is not known: {}", known.error().message);
  if (!known || !*known) return;
  std::istringstream words(**known);
  for (uint64_t id = 0; words >> id;) before_.insert(SessionId(id));
}

void LockSessions::forget_before(SessionId session) {
  if (before_.erase(session) == 0) return;
  changed_ = true;
  write();
}

void LockSessions::add(SessionId session, std::function<void(Result<>)> done) {
  now_.insert(session);
  waiting_.push_back(std::move(done));
  changed_ = true;
  write();
}

void LockSessions::remove(SessionId session) {
  if (now_.erase(session) == 0) return;
  changed_ = true;
  write();
}

void LockSessions::write() {
  if (writing_ || !changed_) return;
  writing_ = true;
  changed_ = false;
  std::string text;
  for (const auto* sessions : {&before_, &now_}) {
    for (const SessionId session : *sessions) text += std::to_string(session.value) + " ";
  }
  context_.off_loop(
      kWorkKey, [this, text] { return context_.parts.meta.put(kKey, text); },
      [this, told = std::exchange(waiting_, {})](Result<> written) {
        writing_ = false;
        for (const auto& done : told) done(written);
        write();
      });
}

}  // namespace sluice::engine
