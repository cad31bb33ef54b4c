#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/pieces.h"

namespace sluice::client {

// Bytes copied to one place, one piece behind the other, and their block checksums. Not thread-safe.
class SummedCopy {
 public:
  // `to` has room for all that is appended, and outlives this.
  explicit SummedCopy(std::byte* to) : to_(to) {}

  void append(MemoryCursor& from, uint64_t bytes);
  uint64_t bytes() const { return used_; }
  // The CRC32C of each block of kChecksumBlockBytes; the last may be short. Nothing is appended afterwards.
  std::vector<uint32_t> finish();

 private:
  std::byte* to_;
  uint64_t used_ = 0;
  std::vector<uint32_t> sums_;  // of whole blocks
};

}  // namespace sluice::client
