#include "client/pieces.h"

#include <algorithm>

#include "base/assert.h"

namespace sluice::client {
namespace {

Result<> check(std::span<const Extent> extents, std::span<const Piece> memory) {
  uint64_t file_bytes = 0;
  for (const Extent& extent : extents) {
    if (!extent.valid())
      return fail(ErrorCode::kInvalidArgument, "an extent is backwards or beyond the largest file");
    file_bytes += extent.length().value;
  }
  uint64_t memory_bytes = 0;
  for (const Piece& piece : memory) memory_bytes += piece.bytes;
  if (file_bytes != memory_bytes) {
    return fail(ErrorCode::kInvalidArgument, "the extents hold " + std::to_string(file_bytes) +
                                                 " bytes, the memory " + std::to_string(memory_bytes));
  }
  return {};
}

// Takes the next `bytes` of memory into the batch, joining what lies together.
void take_memory(Batch& batch, std::span<const Piece> memory, size_t& index, size_t& used, uint64_t bytes) {
  while (bytes > 0) {
    SLUICE_ASSERT(index < memory.size());
    const Piece& piece = memory[index];
    const uint64_t now = std::min<uint64_t>(bytes, piece.bytes - used);
    if (now > 0) {
      auto* data = static_cast<std::byte*>(piece.data) + used;
      Piece* last = batch.memory.empty() ? nullptr : &batch.memory.back();
      if (last != nullptr && static_cast<std::byte*>(last->data) + last->bytes == data) {
        last->bytes += now;
      } else {
        batch.memory.push_back({data, now});
      }
    }
    bytes -= now;
    used += now;
    if (used == piece.bytes) {
      ++index;
      used = 0;
    }
  }
}

}  // namespace

Extent bounds(std::span<const Extent> extents) {
  Extent all = extents.front();
  for (const Extent& extent : extents) {
    all.begin = std::min(all.begin, extent.begin);
    all.end = std::max(all.end, extent.end);
  }
  return all;
}

uint64_t total_bytes(std::span<const Extent> extents) {
  uint64_t total = 0;
  for (const Extent& extent : extents) total += extent.length().value;
  return total;
}

uint64_t place_of(std::span<const Extent> extents, uint64_t bytes) {
  for (const Extent& extent : extents) {
    if (bytes < extent.length().value) return extent.begin.value + bytes;
    bytes -= extent.length().value;
  }
  return kMaxFileBytes;
}

Result<std::vector<Batch>> plan_batches(std::span<const Extent> extents, std::span<const Piece> memory,
                                        BatchLimits limits) {
  if (auto ok = check(extents, memory); !ok) return fail(ok.error());
  std::vector<Batch> batches;
  size_t index = 0;
  size_t used = 0;
  for (const Extent& extent : extents) {
    Offset at = extent.begin;
    while (at < extent.end) {
      if (batches.empty() || batches.back().bytes == limits.bytes) batches.emplace_back();
      const bool joins = !batches.back().extents.empty() && batches.back().extents.back().end == at;
      if (!joins && batches.back().extents.size() == limits.extents) batches.emplace_back();
      Batch& batch = batches.back();
      const uint64_t now = std::min((extent.end - at).value, limits.bytes - batch.bytes);
      if (joins && !batch.extents.empty()) {
        batch.extents.back().end = at + Length(now);
      } else {
        batch.extents.push_back(Extent::at(at, Length(now)));
      }
      take_memory(batch, memory, index, used, now);
      batch.bytes += now;
      at = at + Length(now);
    }
  }
  return batches;
}

std::span<std::byte> MemoryCursor::take(uint64_t most) {
  while (used_ == memory_[index_].bytes) {
    ++index_;
    used_ = 0;
  }
  const Piece& piece = memory_[index_];
  const uint64_t now = std::min<uint64_t>(most, piece.bytes - used_);
  const std::span taken(static_cast<std::byte*>(piece.data) + used_, now);
  used_ += now;
  return taken;
}

}  // namespace sluice::client
