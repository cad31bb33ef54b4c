#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "base/result.h"
#include "lockmgr/lock_types.h"
#include "lockmgr/stride.h"

// How a client asks for locks: the lock modes of a file. Pure; not thread-safe.
namespace sluice::lockmgr {

// What to ask the server for when an access needs a lock.
struct LockPlan {
  bool lock = true;  // false: mode none, the access goes on at once
  LockMode mode = LockMode::kPw;
  GroupId group;
  Extent extent;  // contains the access
  bool expand = true;
  std::vector<Extent> ahead;     // asked for speculatively besides; what is held or asked already is left out
  std::vector<Extent> unwanted;  // asked ahead before, and not expected to be used: given back when idle
};

// Called for each acquire, also those that the cache answers, so that a strategy that locks ahead can refill
// its window before it is used up.
class LockStrategy {
 public:
  virtual ~LockStrategy() = default;
  virtual LockPlan plan(const Extent& access, LockMode mode, bool cached) = 0;
  // The writes to come, in order, as far as somebody knows them: an aggregator its file domain, a transfer
  // its parts. Replaces what was told before. Answers what to ask for at once.
  virtual std::vector<Extent> expect(std::span<const Extent> /*writes*/) { return {}; }
  // What it does and why, in a few words, for people.
  virtual std::string explain() const = 0;
};

// A lock at each access that none covers, as large as the server makes it.
class StandardStrategy final : public LockStrategy {
 public:
  LockPlan plan(const Extent& access, LockMode mode, bool cached) override;
  std::string explain() const override;
};

// Disjointness is the application's word.
class NoneStrategy final : public LockStrategy {
 public:
  LockPlan plan(const Extent& access, LockMode mode, bool cached) override;
  std::string explain() const override;
};

// One lock on the whole file for all members of a group, who see to consistency among themselves.
class GroupStrategy final : public LockStrategy {
 public:
  explicit GroupStrategy(GroupId group);  // not 0
  LockPlan plan(const Extent& access, LockMode mode, bool cached) override;
  std::string explain() const override;

 private:
  GroupId group_;
};

// A lock of exactly the extent of each write, asked ahead as soon as the writes show a pattern.
//
// Specification. N is `extents`; the window holds the extents expected to be written next, in order.
//
//   A1  Every lock is of the extent of the access: NOEXPAND, for reading and for writing.
//   A2  What is told by expect() is expected in that order, the first write included, and beyond its end what
//       the pattern of the writes says. Without it, the pattern alone counts, once there is one.
//   A3  A write that was expected takes itself and all before it out of the window. One that was not empties
//       it, and what was in it is unwanted; but what was told stays.
//   A4  When at most half of what was last filled in is left, the window is filled again: to N with what was
//       told; from a pattern first with kFirstWindow extents, then each time with kWindowGrowth as many, up
//       to N: a guess that is wrong costs little.
//   A5  All of a filled window is asked for, not only what is new in it. So an extent that was dropped is
//       asked for again, and if it is still missing when its write comes, that write takes it as any other.
//   A6  Reads take no part in the window.
class LockaheadStrategy final : public LockStrategy {
 public:
  static constexpr size_t kDefaultExtents = 64;
  static constexpr size_t kMaxExtents = 65536;
  static constexpr size_t kFirstWindow = 4;
  static constexpr size_t kWindowGrowth = 4;

  explicit LockaheadStrategy(size_t extents = kDefaultExtents);  // 1 to kMaxExtents
  LockPlan plan(const Extent& access, LockMode mode, bool cached) override;
  std::string explain() const override;

  std::vector<Extent> expect(std::span<const Extent> writes) override;

  // Whether it knows what comes next.
  bool regular() const { return told_ || predictor_.regular(); }

 private:
  void take_out(const Extent& access, LockPlan& plan);
  void refill(LockPlan& plan);
  void extend_by_pattern(size_t wanted, LockPlan& plan);

  const size_t extents_;
  StridePredictor predictor_;
  std::deque<Extent> window_;
  std::deque<Extent> to_come_;       // told, and not in the window yet
  bool told_ = false;                // until all that was told is written
  size_t next_fill_ = kFirstWindow;  // how many to ask for at the next refill
  size_t low_water_ = 0;
};

// Lockahead while the writes are regular, standard otherwise: a process that is alone gets one large lock,
// one that writes at random among others the locks it needs, one that strides the locks ahead.
class AutoStrategy final : public LockStrategy {
 public:
  explicit AutoStrategy(size_t extents = LockaheadStrategy::kDefaultExtents) : lockahead_(extents) {}
  LockPlan plan(const Extent& access, LockMode mode, bool cached) override;
  std::vector<Extent> expect(std::span<const Extent> writes) override { return lockahead_.expect(writes); }
  std::string explain() const override;

 private:
  LockaheadStrategy lockahead_;
};

enum class LockPolicy { kStandard, kGroup, kLockahead, kNone, kAuto };
inline constexpr std::string_view kLockPolicyNames = "auto, standard, group, lockahead, none";

std::string_view to_string(LockPolicy policy);
// kInvalidArgument with the names that there are.
Result<LockPolicy> parse_lock_policy(std::string_view name);
// `group` is looked at by kGroup only, `extents` by kLockahead and kAuto.
std::unique_ptr<LockStrategy> make_strategy(LockPolicy policy, GroupId group, size_t extents);

}  // namespace sluice::lockmgr
