#include "lockmgr/lock_types.h"

namespace sluice::lockmgr {

std::string_view to_string(LockAnswer answer) {
  switch (answer) {
    case LockAnswer::kGranted:
      return "granted";
    case LockAnswer::kCovered:
      return "covered";
    case LockAnswer::kSame:
      return "same";
    case LockAnswer::kDropped:
      return "dropped";
  }
  return "unknown";
}

std::string_view to_string(LockBlocker blocker) {
  switch (blocker) {
    case LockBlocker::kNone:
      return "nothing";
    case LockBlocker::kGrantedLock:
      return "granted lock";
    case LockBlocker::kGroupLock:
      return "group lock";
    case LockBlocker::kWaitingRequest:
      return "waiting request";
    case LockBlocker::kLimit:
      return "limit";
    case LockBlocker::kRecovery:
      return "recovery";
  }
  return "unknown";
}

std::string to_string(LockMode mode, GroupId group) {
  switch (mode) {
    case LockMode::kPr:
      return "PR";
    case LockMode::kPw:
      return "PW";
    case LockMode::kGroup:
      return "GROUP(" + std::to_string(group.value) + ")";
  }
  return "mode " + std::to_string(static_cast<int>(mode));
}

std::string to_string(const Extent& extent) {
  const std::string end = extent.end.value == kMaxFileBytes ? "max" : std::to_string(extent.end.value);
  return "[" + std::to_string(extent.begin.value) + ", " + end + ")";
}

namespace {

tl::unexpected<Error> invalid(std::string_view field, std::string_view why) {
  std::string message = "lock request: field '";
  message.append(field).append("': ").append(why);
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<> validate_words(const LockRequest& r) {
  if (r.owner.value == 0) return invalid("owner", "0 is nobody; use the session's id");
  if (r.mode != LockMode::kPr && r.mode != LockMode::kPw && r.mode != LockMode::kGroup) {
    return invalid("mode",
                   "unknown mode " + std::to_string(static_cast<int>(r.mode)) + "; use PR, PW or GROUP");
  }
  if (r.mode == LockMode::kGroup && r.group.value == 0)
    return invalid("group", "a GROUP lock needs an id above 0");
  if (r.mode != LockMode::kGroup && r.group.value != 0)
    return invalid("group", "only a GROUP lock carries an id");
  if ((r.flags & ~kKnownLockFlags) != 0) {
    return invalid("flags", "unknown bits " + std::to_string(r.flags & ~kKnownLockFlags));
  }
  const bool blocking = (r.flags & kBlocking) != 0;
  const bool speculative = (r.flags & kSpeculative) != 0;
  if (blocking && speculative)
    return invalid("flags", "speculative and blocking exclude each other; choose one");
  if (!blocking && !speculative) return invalid("flags", "neither speculative nor blocking; choose one");
  return {};
}

}  // namespace

Result<> validate(const LockRequest& r) {
  if (auto ok = validate_words(r); !ok) return ok;
  if (r.extents.empty()) return invalid("extents", "none given");
  if (r.extents.size() > kMaxExtentsPerRequest) {
    return invalid("extents", std::to_string(r.extents.size()) + " given, the limit is " +
                                  std::to_string(kMaxExtentsPerRequest) + "; split the request");
  }
  for (size_t i = 0; i < r.extents.size(); ++i) {
    const Extent& e = r.extents[i];
    const std::string_view why =
        e.begin >= e.end ? "begin must be below end" : "end is beyond the largest file";
    if (e.begin >= e.end || !e.valid()) {
      return invalid("extents[" + std::to_string(i) + "]", to_string(e) + ": " + std::string(why));
    }
  }
  return {};
}

}  // namespace sluice::lockmgr
