#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "client/client.h"

// Cutting one read or write into requests. Pure; thread-safe.
namespace sluice::client {

// Around all of them; there must be one.
Extent bounds(std::span<const Extent> extents);
uint64_t total_bytes(std::span<const Extent> extents);
// Where in the file the byte lies that comes behind the first `bytes` of these extents; kMaxFileBytes when
// there is none.
uint64_t place_of(std::span<const Extent> extents, uint64_t bytes);

// A part of a transfer that fits into one request.
struct Batch {
  std::vector<Extent> extents;
  std::vector<Piece> memory;  // the same number of bytes
  uint64_t bytes = 0;

  // The bytes lie in one piece of memory: no copy is needed.
  bool contiguous() const { return memory.size() == 1; }
};

// Memory of the caller's, walked forward only.
class MemoryCursor {
 public:
  explicit MemoryCursor(std::span<const Piece> memory) : memory_(memory) {}
  // The next bytes of one piece, at most `most`; they are taken. There must be some left.
  std::span<std::byte> take(uint64_t most);

 private:
  std::span<const Piece> memory_;
  size_t index_ = 0;
  uint64_t used_ = 0;  // of that piece
};

struct BatchLimits {
  uint64_t bytes = 4 * 1024 * 1024;
  size_t extents = 1024;
};

// kInvalidArgument when the sides do not add up to the same number of bytes, or an extent is not valid. Empty
// extents and pieces are passed over; neighbouring ones are joined.
Result<std::vector<Batch>> plan_batches(std::span<const Extent> extents, std::span<const Piece> memory,
                                        BatchLimits limits);

}  // namespace sluice::client
