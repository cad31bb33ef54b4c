#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "base/result.h"
#include "base/types.h"

// The words that the lock table, the server and the client share. Plain data; no thread rule of its own.
namespace sluice::lockmgr {

// Who holds a lock: one client session. Never 0.
using OwnerId = Strong<struct LockOwnerTag, uint64_t>;
// The members of a job that share a GROUP lock carry the same id. Never 0 in a GROUP request, always 0
// elsewhere.
using GroupId = Strong<struct LockGroupTag, uint64_t>;
// One granted lock of one object. Not reused while anybody could still mean the old one. 0 is "no lock".
using LockHandle = Strong<struct LockHandleTag, uint64_t>;
// One waiting request of one object; later requests have larger tickets.
using Ticket = Strong<struct LockTicketTag, uint64_t>;
// A client's name for one of its requests; unique among those it has in flight.
using RequestId = Strong<struct LockRequestTag, uint64_t>;

inline constexpr LockHandle kNoLock{0};

// Shared read, exclusive write, or shared by the members of one group. On the wire by number: append only.
enum class LockMode : uint8_t { kPr = 1, kPw = 2, kGroup = 3 };
inline constexpr int kLockModes = 3;

// Exactly one of kBlocking and kSpeculative is set in every request.
enum LockFlags : uint32_t {
  kBlocking = 1u << 0,  // waits its turn behind every conflicting lock and every earlier conflicting request
  kSpeculative = 1u << 1,  // never waits and never grows; a conflict drops the extent
  kNoExpand = 1u << 2,     // the lock granted is the extent asked for
};
inline constexpr uint32_t kKnownLockFlags = kBlocking | kSpeculative | kNoExpand;

inline constexpr size_t kMaxExtentsPerRequest = 1024;

// Two locks conflict when their extents overlap and their modes do not go together:
//
//                 PR            PW            GROUP(h)
//   PR            together      same owner    never
//   PW            same owner    same owner    never
//   GROUP(g)      never         never         g == h
//
// GROUP goes together with nothing else even within one owner: what another member of the group wrote must
// not be hidden by bytes this owner cached under a PR or PW lock of its own.
constexpr bool modes_conflict(OwnerId owner_a, LockMode a, GroupId group_a, OwnerId owner_b, LockMode b,
                              GroupId group_b) {
  if (a == LockMode::kGroup || b == LockMode::kGroup) return a != b || group_a != group_b;
  return owner_a != owner_b && (a == LockMode::kPw || b == LockMode::kPw);
}

// Whether holding `held` makes asking for `wanted` unnecessary.
constexpr bool mode_covers(LockMode held, GroupId held_group, LockMode wanted, GroupId wanted_group) {
  if (held == LockMode::kGroup || wanted == LockMode::kGroup)
    return held == wanted && held_group == wanted_group;
  return held == wanted || held == LockMode::kPw;
}

// Whether I/O may be done under `held`: kPr stands for reading, kPw for writing. Under GROUP the job owns
// consistency.
constexpr bool mode_permits(LockMode held, LockMode access) {
  return held != LockMode::kPr || access == LockMode::kPr;
}

struct LockRequest {
  OwnerId owner;
  LockMode mode = LockMode::kPw;
  GroupId group;
  uint32_t flags = kBlocking;
  std::span<const Extent> extents;  // borrowed for the call
};

enum class LockAnswer : uint8_t {
  kGranted = 1,  // a new lock
  kCovered,      // the owner's lock `handle` already gives this and more; no lock was added
  kSame,         // the owner's lock `handle` is exactly this; no lock was added
  kDropped,      // speculative only: there was a conflict; nothing is held and nothing waits
};

// What a dropped extent met first.
enum class LockBlocker : uint8_t { kNone = 0, kGrantedLock, kGroupLock, kWaitingRequest, kLimit, kRecovery };

struct ExtentAnswer {
  LockAnswer answer = LockAnswer::kDropped;
  LockBlocker blocker = LockBlocker::kNone;  // kDropped only
  LockHandle handle;                         // kNoLock when dropped
  Extent extent;                  // of the lock named by `handle`; the extent asked for when dropped
  LockMode mode = LockMode::kPw;  // of the lock named by `handle`
};

std::string_view to_string(LockAnswer answer);
std::string_view to_string(LockBlocker blocker);
std::string to_string(LockMode mode, GroupId group);
std::string to_string(const Extent& extent);

// What a request must satisfy before a table looks at it; also what a hostile one fails. Names the field.
Result<> validate(const LockRequest& request);

}  // namespace sluice::lockmgr
