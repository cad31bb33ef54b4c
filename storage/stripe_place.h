#pragma once

#include <cstdint>

#include "base/extent.h"
#include "base/types.h"

namespace sluice::storage {

// Where a range of a file lies: `offset` bytes into the data of a stripe.
struct StripePlace {
  StripeId stripe;
  uint64_t offset = 0;
  StripePlace advanced(Length by) const { return {stripe, offset + by.value}; }
  bool operator==(const StripePlace&) const = default;
};

struct PlacedExtent {
  Extent extent;
  StripePlace place;
  bool operator==(const PlacedExtent&) const = default;
};

}  // namespace sluice::storage
