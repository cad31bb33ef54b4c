#include "lockmgr/strategy.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.h"

namespace sluice::lockmgr {
namespace {

constexpr std::array<std::pair<LockPolicy, std::string_view>, 5> kPolicies = {{
    {LockPolicy::kAuto, "auto"},
    {LockPolicy::kStandard, "standard"},
    {LockPolicy::kGroup, "group"},
    {LockPolicy::kLockahead, "lockahead"},
    {LockPolicy::kNone, "none"},
}};

LockPlan plain(const Extent& access, LockMode mode) {
  LockPlan plan;
  plan.mode = mode;
  plan.extent = access;
  return plan;
}

}  // namespace

LockPlan StandardStrategy::plan(const Extent& access, LockMode mode, bool /*cached*/) {
  return plain(access, mode);
}
std::string StandardStrategy::explain() const {
  return "a lock at each access, grown by the service, given back when another needs it";
}

LockPlan NoneStrategy::plan(const Extent& access, LockMode mode, bool /*cached*/) {
  LockPlan plan = plain(access, mode);
  plan.lock = false;
  return plan;
}
std::string NoneStrategy::explain() const {
  return "no locks: that accesses are disjoint is the program's word";
}

GroupStrategy::GroupStrategy(GroupId group) : group_(group) {
  SLUICE_ASSERT(group.value != 0);
}
LockPlan GroupStrategy::plan(const Extent&, LockMode, bool /*cached*/) {
  LockPlan plan = plain({Offset(0), Offset(kMaxFileBytes)}, LockMode::kGroup);
  plan.group = group_;
  return plan;
}
std::string GroupStrategy::explain() const {
  return "one lock on the whole file for all processes that opened it together; the program sees to "
         "consistency among them";
}

LockaheadStrategy::LockaheadStrategy(size_t extents) : extents_(extents) {
  SLUICE_ASSERT(extents >= 1 && extents <= kMaxExtents);
}

LockPlan LockaheadStrategy::plan(const Extent& access, LockMode mode, bool /*cached*/) {
  LockPlan plan = plain(access, mode);
  plan.expand = false;
  if (mode != LockMode::kPw) return plan;
  predictor_.observe(access);
  take_out(access, plan);
  if (regular() && window_.size() <= low_water_) refill(plan);
  if (window_.empty() && to_come_.empty()) told_ = false;
  return plan;
}

std::vector<Extent> LockaheadStrategy::expect(std::span<const Extent> writes) {
  window_.clear();
  to_come_.assign(writes.begin(), writes.end());
  told_ = !writes.empty();
  LockPlan plan;
  if (told_) refill(plan);
  return plan.ahead;
}

void LockaheadStrategy::take_out(const Extent& access, LockPlan& plan) {
  if (const auto at = std::find(window_.begin(), window_.end(), access); at != window_.end()) {
    window_.erase(window_.begin(), at + 1);
    return;
  }
  if (told_) {
    const auto at = std::find(to_come_.begin(), to_come_.end(), access);
    if (at == to_come_.end()) return;
    window_.clear();
    to_come_.erase(to_come_.begin(), at + 1);
    return;
  }
  plan.unwanted.assign(window_.begin(), window_.end());
  window_.clear();
  low_water_ = 0;
  next_fill_ = kFirstWindow;
}

void LockaheadStrategy::refill(LockPlan& plan) {
  const size_t wanted = told_ ? extents_ : std::min(extents_, next_fill_);
  while (window_.size() < wanted && !to_come_.empty()) {
    window_.push_back(to_come_.front());
    to_come_.pop_front();
  }
  if (to_come_.empty()) extend_by_pattern(wanted, plan);
  plan.ahead.assign(window_.begin(), window_.end());
  low_water_ = wanted / 2;
  next_fill_ = std::min(extents_, next_fill_ * kWindowGrowth);
}

void LockaheadStrategy::extend_by_pattern(size_t wanted, LockPlan& plan) {
  const std::vector<Extent> next = predictor_.predict(wanted);
  const bool agrees =
      next.size() >= window_.size() && std::equal(window_.begin(), window_.end(), next.begin());
  if (!agrees && told_) return;
  // What a changed pattern does not lead to any more.
  for (const Extent& extent : window_) {
    if (std::find(next.begin(), next.end(), extent) == next.end()) plan.unwanted.push_back(extent);
  }
  window_.assign(next.begin(), next.end());
}

std::string LockaheadStrategy::explain() const {
  return "exact locks, asked for ahead in windows of " + std::to_string(extents_) + " extents";
}

LockPlan AutoStrategy::plan(const Extent& access, LockMode mode, bool cached) {
  LockPlan plan = lockahead_.plan(access, mode, cached);
  plan.expand = !lockahead_.regular();
  return plan;
}
std::string AutoStrategy::explain() const {
  return lockahead_.regular() ? "lockahead: the writes follow a pattern"
                              : "standard: the writes follow no pattern";
}

std::string_view to_string(LockPolicy policy) {
  for (const auto& [known, name] : kPolicies) {
    if (known == policy) return name;
  }
  return "unknown";
}

Result<LockPolicy> parse_lock_policy(std::string_view name) {
  for (const auto& [policy, known] : kPolicies) {
    if (known == name) return policy;
  }
  return fail(ErrorCode::kInvalidArgument,
              "'" + std::string(name) + "' is not a lock mode; use one of " + std::string(kLockPolicyNames));
}

std::unique_ptr<LockStrategy> make_strategy(LockPolicy policy, GroupId group, size_t extents) {
  switch (policy) {
    case LockPolicy::kStandard:
      return std::make_unique<StandardStrategy>();
    case LockPolicy::kGroup:
      return std::make_unique<GroupStrategy>(group);
    case LockPolicy::kLockahead:
      return std::make_unique<LockaheadStrategy>(extents);
    case LockPolicy::kNone:
      return std::make_unique<NoneStrategy>();
    case LockPolicy::kAuto:
      return std::make_unique<AutoStrategy>(extents);
  }
  return std::make_unique<StandardStrategy>();
}

}  // namespace sluice::lockmgr
