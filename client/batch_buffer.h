#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/result.h"
#include "client/lane.h"
#include "client/pieces.h"

namespace sluice::client {

// One request's bytes in one piece: the caller's own memory when it is contiguous, otherwise a copy.
struct BatchBuffer {
  // `in_place`: the bytes are in the hot tier, or will be fetched from there.
  BatchBuffer(const Batch& batch, bool in_place) {
    if (in_place) return;
    if (batch.contiguous()) {
      span = {static_cast<std::byte*>(batch.memory[0].data), batch.bytes};
    } else {
      copy.resize(batch.bytes);
      span = copy;
    }
  }
  BatchBuffer() = default;
  explicit BatchBuffer(Lane::Room place) : room(std::move(place)) {}
  // Memory of its own.
  explicit BatchBuffer(uint64_t bytes) : copy(bytes) { span = copy; }
  // Where bytes are put.
  std::byte* place() { return room ? room->mapping->at(room->offset) : span.data(); }
  // Only the first `bytes` were put there.
  void cut(uint64_t bytes) { span = span.first(std::min<size_t>(bytes, span.size())); }
  void gather(const Batch& batch) {
    MemoryCursor from(batch.memory);
    for (size_t done = 0; done < copy.size();) {
      const auto piece = from.take(copy.size() - done);
      std::memcpy(copy.data() + done, piece.data(), piece.size());
      done += piece.size();
    }
  }
  // Checks what arrived of a read and puts it where the caller wants it. Answers its bytes; kCorrupt.
  Result<uint64_t> deliver(const Batch& batch, const std::vector<uint32_t>& sums, uint64_t bytes) const {
    if (!checksums_match(span.first(bytes), sums)) {
      return fail(Error(ErrorCode::kCorrupt, "bytes were damaged on their way from the service; read again")
                      .mark_retryable());
    }
    if (copy.empty()) return bytes;
    MemoryCursor to(batch.memory);
    for (uint64_t done = 0; done < bytes;) {
      const auto piece = to.take(bytes - done);
      std::memcpy(piece.data(), copy.data() + done, piece.size());
      done += piece.size();
    }
    return bytes;
  }

  std::vector<std::byte> copy;
  std::span<std::byte> span;
  std::optional<Lane::Room> room;  // of a write that was put in place
  uint64_t version = 0;            // of a read: the epoch that it met; 0: a transaction's
  uint64_t ahead = 0;              // of a read: bytes behind it whose places are asked for too
  bool placed = false;             // a read whose bytes are where the caller wants them
};

}  // namespace sluice::client
