#pragma once

#include <cstddef>
#include <span>
#include <unordered_set>

#include "burst_buffer/hot_tier.h"

namespace sluice::engine {

// Copies bytes out of the hot tier, and checks each checksum block that holds some of them, whole, once.
//
// One reader's, for as long as the pins on what it copied live. Thread rule: one thread at a time.
class CheckedCopy {
 public:
  // Segments of kind kBytes; `to` is as long. False when a block does not match: `to` is undefined then.
  bool copy(const burst_buffer::Segment& from, std::span<std::byte> to);

 private:
  std::unordered_set<const std::byte*> checked_;  // blocks that were copied in part, by where they begin
};

}  // namespace sluice::engine
