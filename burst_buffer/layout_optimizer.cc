#include "burst_buffer/layout_optimizer.h"

#include <algorithm>
#include <numeric>

#include "base/assert.h"

namespace sluice::burst_buffer {

std::vector<StripePlan> plan_stripes(std::span<const Extent> extents, Length stripe_bytes) {
  SLUICE_ASSERT(stripe_bytes.value > 0);
  std::vector<size_t> order(extents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return extents[a].begin < extents[b].begin; });

  std::vector<StripePlan> stripes;
  for (const size_t source : order) {
    Extent left = extents[source];
    SLUICE_ASSERT(left.valid() && !left.empty());
    while (!left.empty()) {
      if (stripes.empty() || stripes.back().length == stripe_bytes) stripes.emplace_back();
      StripePlan& stripe = stripes.back();
      const Length piece = std::min(left.length(), stripe_bytes - stripe.length);
      stripe.parts.push_back({source, Extent::at(left.begin, piece), stripe.length.value});
      stripe.length = stripe.length + piece;
      left.begin = left.begin + piece;
    }
  }
  return stripes;
}

}  // namespace sluice::burst_buffer
