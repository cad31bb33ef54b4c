#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/extent.h"
#include "base/types.h"

// From extents as they were written to full stripes as the storage tier wants them. Pure.
namespace sluice::burst_buffer {

// A part of one of the given extents and its place in the stripe.
struct StripePlanPart {
  size_t source = 0;  // which of the given extents
  Extent extent;      // of the file; inside that extent
  uint64_t stripe_offset = 0;
};

struct StripePlan {
  std::vector<StripePlanPart> parts;  // in the order in which their bytes follow each other
  Length length;                      // of all parts
};

// Gathers extents in the order of the file: every stripe but the last is exactly `stripe_bytes` long, an
// extent that does not fit in what is left of a stripe is split there, and small ones share a stripe. Each
// byte of each extent appears once. The extents may come in any order and are not empty; `stripe_bytes` is at
// least 1.
std::vector<StripePlan> plan_stripes(std::span<const Extent> extents, Length stripe_bytes);

}  // namespace sluice::burst_buffer
