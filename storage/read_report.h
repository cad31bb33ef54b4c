#pragma once

#include <cstdint>

namespace sluice::storage {

struct ReadReport {
  uint64_t degraded_blocks =
      0;  // blocks given back through the code because their own copy was missing or bad
  uint64_t repaired_blocks = 0;  // of those, rewritten in place

  ReadReport& operator+=(const ReadReport& other) {
    degraded_blocks += other.degraded_blocks;
    repaired_blocks += other.repaired_blocks;
    return *this;
  }
};

}  // namespace sluice::storage
