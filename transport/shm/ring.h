#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/shared_mapping.h"

// One link's shared memory: a queue of frames each way, and a word each way that says which of the other's
// exposed memory a side is copying just now. One producer and one consumer for each queue, no locks, so a
// process that dies at any instruction leaves the other with whole records only.
//
// Everything the other side can write is hostile: indices are checked at each use, and a record is copied out
// before anyone looks into it. The memory is sealed against shrinking before it is mapped.
//
// Memory layout: two RingSide, then two times kRingBytes of queue. Side 0 is the one that made the link. A
// record is a RecordHeader, the bytes, and padding to 8; it may wrap around the end.
namespace sluice::transport {

inline constexpr size_t kRingBytes = 256 * 1024;  // a power of two
inline constexpr size_t kRingRecordBytes = 64 * 1024;

// What one side writes, each word on its own cache line. Zero at first.
struct RingSide {
  alignas(64) std::atomic<uint64_t> tail;  // producer of its queue: bytes ever put
  alignas(64) std::atomic<uint64_t> head;  // consumer of the other's queue: bytes ever taken
  alignas(64)
      std::atomic<uint32_t> armed;  // how this side sleeps: whether to ring its bell after putting something
  alignas(64) std::atomic<uint32_t> waiting;  // this side wants its bell rung when there is room again
  alignas(64)
      std::atomic<uint64_t> copying;  // key of the other side's memory that this side is copying; 0 for none
  alignas(64)
      std::atomic<uint32_t> closed;  // this side has ended the link: its memory is not to be copied any more
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(RingSide) == 6 * 64);

inline constexpr size_t kRingMemoryBytes = 2 * sizeof(RingSide) + 2 * kRingBytes;

enum class Sleep : uint32_t {
  kAwake = 0,
  kAsleep = 1,  // ring
  kDozing = 2,  // it looks by itself in a moment: ring for what is hurried, or when there is no room
};

struct RecordHeader {
  uint64_t ticket;  // when it was put, by the receiver's clock (shm_wire.h); 0: without
  uint32_t length;
  uint32_t hurried;
};

// One side's view. Borrows the mapping.
class RingPair {
 public:
  RingPair(std::byte* memory, size_t side);

  enum class Put { kDone, kFull };
  // Puts one record, of two pieces. kFull also asks for a bell when there is room.
  Put put(uint64_t ticket, bool hurried, std::span<const std::byte> first, std::span<const std::byte> second);
  struct Record {
    uint64_t ticket;
    size_t length;
    bool hurried;
  };
  // Takes one record into `into`, which has kRingRecordBytes. Nothing when the queue is empty; kProtocol when
  // the other side has written nonsense.
  Result<std::optional<Record>> take(std::byte* into);
  bool anything_to_take() const;
  // Bytes ever put by the other side, and ever taken by this one, as they are now.
  uint64_t put_until_now() const { return theirs().tail.load(); }
  uint64_t taken() const { return taken_bytes_; }

  // True when the other side sleeps so that its bell must be rung now; it is rung by one putter only.
  bool disarm_peer(bool hurried);
  // True when the other side waited for the room that take() made.
  bool peer_waited();
  // Says that this side sleeps. The caller looks at anything_to_take() once more afterwards.
  void arm(Sleep sleep) { mine().armed.store(static_cast<uint32_t>(sleep)); }

  std::atomic<uint64_t>& my_copying() { return mine().copying; }
  uint64_t peer_copying() const { return theirs().copying.load(); }
  void close() { mine().closed.store(1); }
  bool peer_closed() const { return theirs().closed.load() != 0; }

 private:
  RingSide& mine() const { return sides_[side_]; }
  RingSide& theirs() const { return sides_[1 - side_]; }

  RingSide* sides_;
  size_t side_;
  std::byte* outgoing_;
  const std::byte* incoming_;
  uint64_t put_bytes_ = 0;  // own copies: what is in shared memory could be changed by the other side
  uint64_t taken_bytes_ = 0;
};

}  // namespace sluice::transport
