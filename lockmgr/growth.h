#pragma once

#include <algorithm>

#include "base/assert.h"
#include "base/extent.h"

// How far a granted lock grows beyond what was asked. Pure.
//
// Specification. Let A be the extent asked for, and R the room: the largest extent around A that
// overlaps no conflicting lock, granted or waiting, of anybody else. C is the object's contention score.
//
//   G1  Only a blocking request of one extent, mode PR or PW, without NOEXPAND grows. All others get A.
//       Nor does one whose A, or a part of it, somebody in conflict already waits for: it is wanted back
//       at once.
//   G2  A is inside the result, and the result is inside R. Hence growing never makes a lock conflict
//       with one that is granted, and never overtakes one that waits.
//   G3  C <  kContendedScore: the result is R.
//   G4  C >= kContendedScore: it grows upward only, to kContendedGrowthBytes from A's begin, or to R's
//       end if that is nearer.
//   G5  C >= kExactScore: the result is A. Neighbours that interleave finely stop taking locks from each
//       other.
//   G6  C rises by kContentionStep, up to kContentionMax, when a blocking request has to wait and so makes
//       the table ask for a lock back that another blocking request took. Locks asked ahead, their loss,
//       reclaimed locks and dropped extents do not move it.
//   G7  C falls by one with each lock granted to a blocking request that did not wait. So growth comes
//       back by itself.
namespace sluice::lockmgr {

inline constexpr uint32_t kContentionStep = 16;
inline constexpr uint32_t kContentionMax = 256;
inline constexpr uint32_t kContendedScore = 32;
inline constexpr uint32_t kExactScore = 128;
inline constexpr uint64_t kContendedGrowthBytes = uint64_t{32} << 20;

// G2 to G5.
inline Extent grown_extent(const Extent& asked, const Extent& room, uint32_t contention) {
  SLUICE_ASSERT(room.contains(asked));
  if (contention >= kExactScore) return asked;
  if (contention < kContendedScore) return room;
  const Offset reach(std::min(kMaxFileBytes, asked.begin.value + kContendedGrowthBytes));
  return {asked.begin, std::min(room.end, std::max(asked.end, reach))};
}

// The score itself (G6, G7).
class Contention {
 public:
  void ordinary_lock_taken_away() { score_ = std::min(kContentionMax, score_ + kContentionStep); }
  void granted_without_waiting() { score_ -= score_ > 0 ? 1 : 0; }
  uint32_t score() const { return score_; }

 private:
  uint32_t score_ = 0;
};

}  // namespace sluice::lockmgr
