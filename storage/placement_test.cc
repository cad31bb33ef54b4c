#include "storage/placement.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace sluice::storage {
namespace {

TargetLoad load(uint32_t id, uint64_t used, TargetState state = TargetState::kUp, uint64_t free = 1 << 30) {
  return {TargetId(id), state, {used, free, false}};
}

RC_GTEST_PROP(PlacementProperty, targets_are_distinct_usable_and_never_much_more_loaded, ()) {
  const auto k = *rc::gen::inRange<uint32_t>(1, 6);
  const auto m = *rc::gen::inRange<uint32_t>(0, 3);
  const StripeShape shape = shape_of(k, m, Length(1000));
  std::vector<TargetLoad> loads;
  const auto count = *rc::gen::inRange<uint32_t>(0, 14);
  for (uint32_t id = 0; id < count; ++id) {
    const auto state = *rc::gen::weightedElement<TargetState>(
        {{6, TargetState::kUp}, {1, TargetState::kMissing}, {1, TargetState::kFailing}});
    loads.push_back(
        load(id, *rc::gen::inRange<uint64_t>(0, 100), state, *rc::gen::element<uint64_t>(0, 1 << 20)));
  }
  SeededRng rng(*rc::gen::arbitrary<uint64_t>());
  const Placement placement = choose_targets(shape, loads, 4096, rng);

  std::vector<TargetLoad> usable;
  for (const TargetLoad& l : loads) {
    if (l.state != TargetState::kMissing && l.usage.bytes_free >= 4096) usable.push_back(l);
  }
  RC_ASSERT(placement.shards.size() == shape.width());
  const size_t expected = std::min<size_t>(shape.width(), usable.size());
  std::set<TargetId> chosen;
  for (size_t i = 0; i < placement.shards.size(); ++i) {
    // Left-out shards are the last ones: parity before data.
    RC_ASSERT((placement.shards[i] == kNoTarget) == (i >= expected));
    if (i < expected) chosen.insert(placement.shards[i]);
  }
  RC_ASSERT(chosen.size() == expected);
  // What is left out is promised to a target of its own that is not usable now, as far as there are any.
  RC_ASSERT(placement.promised.size() == shape.width());
  std::set<TargetId> promised;
  for (size_t i = 0; i < placement.promised.size(); ++i) {
    const TargetId id = placement.promised[i];
    RC_ASSERT((id != kNoTarget) == (i >= expected && i < loads.size()));
    if (id == kNoTarget) continue;
    RC_ASSERT(promised.insert(id).second);
    RC_ASSERT(std::none_of(usable.begin(), usable.end(), [&](const TargetLoad& l) { return l.id == id; }));
  }
  std::set<TargetId> spares(placement.spares.begin(), placement.spares.end());
  RC_ASSERT(spares.size() == placement.spares.size());
  RC_ASSERT(chosen.size() + spares.size() == usable.size());
  for (const TargetLoad& l : usable) RC_ASSERT(chosen.contains(l.id) != spares.contains(l.id));

  // At most `slack` unchosen healthy targets are less loaded than a chosen healthy one; no failing one is
  // chosen before a healthy.
  for (const TargetLoad& in : usable) {
    if (!chosen.contains(in.id)) continue;
    size_t passed_over = 0;
    for (const TargetLoad& out : usable) {
      if (chosen.contains(out.id) || out.state != TargetState::kUp) continue;
      RC_ASSERT(in.state == TargetState::kUp);
      if (out.usage.bytes_used < in.usage.bytes_used) ++passed_over;
    }
    RC_ASSERT(passed_over <= kPlacementSlack);
  }
}

TEST(Placement, evens_out_and_spreads_roles) {
  std::vector<TargetLoad> loads;
  for (uint32_t id = 0; id < 8; ++id) loads.push_back(load(id, 0));
  const StripeShape shape = shape_of(4, 2, Length(4 << 20));
  SeededRng rng(7);
  std::map<TargetId, uint64_t> parity;
  for (int stripe = 0; stripe < 1000; ++stripe) {
    const Placement placement = choose_targets(shape, loads, 1 << 20, rng);
    for (const TargetId id : placement.shards) loads[id.value].usage.bytes_used += 1 << 20;
    ++parity[placement.shards[5]];
  }
  const auto [least, most] = std::minmax_element(
      loads.begin(), loads.end(),
      [](const TargetLoad& a, const TargetLoad& b) { return a.usage.bytes_used < b.usage.bytes_used; });
  EXPECT_LE(most->usage.bytes_used - least->usage.bytes_used, uint64_t{8} << 20);
  EXPECT_EQ(parity.size(), 8u);
  for (const auto& [id, count] : parity) EXPECT_GT(count, 60u) << id.value;
}

}  // namespace
}  // namespace sluice::storage
