#include "client/lock_mode.h"

#include <sstream>

namespace sluice::client {

using lockmgr::LockPolicy;

std::string LockSettings::explain() const {
  switch (reason) {
    case Reason::kAsked:
      break;
    case Reason::kReading:
      return "auto: none, because a file that is only read shows committed versions, which do not change";
    case Reason::kAlone:
      return "auto: none, because nobody else had the file open for writing, and nobody sees a transaction "
             "before it "
             "is whole";
    case Reason::kOthers:
      return "auto: lockahead while the writes follow a pattern, standard otherwise, because " +
             std::to_string(writers) + " other" + (writers == 1 ? "" : "s") +
             " had the file open for writing";
  }
  return name() + ", as asked: " + lockmgr::make_strategy(policy, lockmgr::GroupId(1), extents)->explain();
}

std::string LockSettings::print() const {
  return name() + ":" + std::to_string(extents) + ":" + std::to_string(static_cast<int>(reason)) + ":" +
         std::to_string(writers);
}

Result<LockSettings> LockSettings::read(const std::string& word) {
  const size_t colon = word.find(':');
  LockSettings settings;
  int reason = -1;
  char first = 0;
  char second = 0;
  std::istringstream rest(colon == std::string::npos ? std::string() : word.substr(colon + 1));
  rest >> settings.extents >> first >> reason >> second >> settings.writers;
  const auto policy = lockmgr::parse_lock_policy(word.substr(0, colon));
  const bool whole = !rest.fail() && rest.peek() == std::istringstream::traits_type::eof();
  if (!policy || !whole || first != ':' || second != ':' || reason < 0 ||
      reason > static_cast<int>(Reason::kOthers) || settings.extents == 0 ||
      settings.extents > kMaxLockaheadExtents) {
    return fail(ErrorCode::kInvalidArgument, "'" + word + "' does not describe the locks of an open file");
  }
  settings.policy = *policy;
  settings.reason = static_cast<Reason>(reason);
  return settings;
}

Result<> check_lock_mode(const std::string& mode) {
  if (lockmgr::parse_lock_policy(mode)) return {};
  return fail(ErrorCode::kInvalidArgument, "SLUICE_LOCK_MODE=" + mode + " is not a lock mode; use one of " +
                                               std::string(lockmgr::kLockPolicyNames));
}

Result<LockSettings> settle_lock_mode(const std::string& mode, uint32_t extents, AccessMode access,
                                      uint32_t writers) {
  if (auto ok = check_lock_mode(mode); !ok) return fail(ok.error());
  if (extents > kMaxLockaheadExtents) {
    return fail(ErrorCode::kInvalidArgument, "sluice_lockahead_extents is " + std::to_string(extents) +
                                                 "; use a number from 1 to " +
                                                 std::to_string(kMaxLockaheadExtents));
  }
  LockSettings settings;
  settings.policy = *lockmgr::parse_lock_policy(mode);
  settings.writers = writers;
  if (extents != 0) settings.extents = extents;
  if (settings.policy != LockPolicy::kAuto) return settings;
  settings.reason = access == AccessMode::kReadOnly ? LockSettings::Reason::kReading
                    : writers == 0                  ? LockSettings::Reason::kAlone
                                                    : LockSettings::Reason::kOthers;
  if (settings.reason != LockSettings::Reason::kOthers) settings.policy = LockPolicy::kNone;
  return settings;
}

}  // namespace sluice::client
