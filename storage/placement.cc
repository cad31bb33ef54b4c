#include "storage/placement.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sluice::storage {
namespace {

// Moves `count` random elements of the first `window` to the front, in random order.
void draw(std::vector<TargetLoad>& loads, size_t count, size_t window, Rng& rng) {
  for (size_t i = 0; i < count; ++i) std::swap(loads[i], loads[i + rng.below(window - i)]);
}

bool is_usable(const TargetLoad& load, uint64_t shard_bytes) {
  return load.state != TargetState::kMissing && load.usage.bytes_free >= shard_bytes;
}

// Full targets before missing ones, least loaded first.
std::vector<TargetId> unusable_by_hope(std::span<const TargetLoad> loads, uint64_t shard_bytes) {
  std::vector<TargetLoad> unusable;
  for (const TargetLoad& load : loads) {
    if (!is_usable(load, shard_bytes)) unusable.push_back(load);
  }
  std::sort(unusable.begin(), unusable.end(), [](const TargetLoad& a, const TargetLoad& b) {
    const auto rank = [](const TargetLoad& load) {
      return std::tuple(load.state == TargetState::kMissing, load.usage.bytes_used, load.id);
    };
    return rank(a) < rank(b);
  });
  std::vector<TargetId> ids;
  for (const TargetLoad& load : unusable) ids.push_back(load.id);
  return ids;
}

}  // namespace

Placement choose_targets(const StripeShape& shape, std::span<const TargetLoad> loads, uint64_t shard_bytes,
                         Rng& rng) {
  std::vector<TargetLoad> usable;
  for (const TargetLoad& load : loads) {
    if (is_usable(load, shard_bytes)) usable.push_back(load);
  }
  const auto healthy_end = std::partition(
      usable.begin(), usable.end(), [](const TargetLoad& load) { return load.state == TargetState::kUp; });
  const size_t healthy = static_cast<size_t>(healthy_end - usable.begin());
  const auto by_load = [](const TargetLoad& a, const TargetLoad& b) {
    return std::pair(a.usage.bytes_used, a.id) < std::pair(b.usage.bytes_used, b.id);
  };
  std::sort(usable.begin(), healthy_end, by_load);
  std::sort(healthy_end, usable.end(), by_load);

  const size_t chosen = std::min<size_t>(shape.width(), usable.size());
  // Failing targets take part only where the healthy ones do not reach.
  size_t window = chosen;
  if (chosen > 0 && chosen <= healthy) {
    const uint64_t bound = usable[0].usage.bytes_used + kPlacementSlackShards * shard_bytes;
    while (window < std::min(healthy, chosen + kPlacementSlack) && usable[window].usage.bytes_used <= bound)
      ++window;
  }
  draw(usable, chosen, window, rng);

  Placement placement;
  placement.shards.assign(shape.width(), kNoTarget);
  for (size_t i = 0; i < chosen; ++i) placement.shards[i] = usable[i].id;
  std::sort(usable.begin() + static_cast<ptrdiff_t>(chosen), usable.begin() + static_cast<ptrdiff_t>(window),
            by_load);
  for (size_t i = chosen; i < usable.size(); ++i) placement.spares.push_back(usable[i].id);
  placement.promised.assign(shape.width(), kNoTarget);
  const auto later = unusable_by_hope(loads, shard_bytes);
  for (size_t i = 0; i < later.size() && chosen + i < shape.width(); ++i)
    placement.promised[chosen + i] = later[i];
  return placement;
}

}  // namespace sluice::storage
