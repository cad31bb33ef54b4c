#include "transport/shm/ring.h"

#include <cstring>
#include <utility>

#include "base/assert.h"

namespace sluice::transport {
namespace {

uint64_t padded(uint64_t bytes) {
  return (bytes + 7) & ~uint64_t{7};
}

void copy_in(std::byte* ring, uint64_t at, std::span<const std::byte> from) {
  const size_t begin = at % kRingBytes;
  const size_t first = std::min(from.size(), kRingBytes - begin);
  if (first > 0) std::memcpy(ring + begin, from.data(), first);
  if (first < from.size()) std::memcpy(ring, from.data() + first, from.size() - first);
}

void copy_out(const std::byte* ring, uint64_t at, std::span<std::byte> into) {
  const size_t begin = at % kRingBytes;
  const size_t first = std::min(into.size(), kRingBytes - begin);
  if (first > 0) std::memcpy(into.data(), ring + begin, first);
  if (first < into.size()) std::memcpy(into.data() + first, ring, into.size() - first);
}

}  // namespace

RingPair::RingPair(std::byte* memory, size_t side)
    : sides_(reinterpret_cast<RingSide*>(memory)), side_(side) {
  SLUICE_ASSERT(side < 2);
  std::byte* queues = memory + 2 * sizeof(RingSide);
  outgoing_ = queues + side * kRingBytes;
  incoming_ = queues + (1 - side) * kRingBytes;
}

RingPair::Put RingPair::put(uint64_t ticket, bool hurried, std::span<const std::byte> first,
                            std::span<const std::byte> second) {
  const RecordHeader header{ticket, static_cast<uint32_t>(first.size() + second.size()), hurried};
  SLUICE_ASSERT(header.length <= kRingRecordBytes);
  const uint64_t record = padded(sizeof header + header.length);
  const auto room = [&] {
    // A head beyond what was put would be nonsense of the other side's; the room is then taken for none.
    const uint64_t used = put_bytes_ - theirs().head.load();
    return used <= kRingBytes && kRingBytes - used >= record;
  };
  if (!room()) {
    mine().waiting.store(1);
    if (!room())
      return Put::kFull;  // looked again: the other side may have made room before it could see the flag
    mine().waiting.store(0);
  }
  copy_in(outgoing_, put_bytes_, std::as_bytes(std::span(&header, 1)));
  copy_in(outgoing_, put_bytes_ + sizeof header, first);
  copy_in(outgoing_, put_bytes_ + sizeof header + first.size(), second);
  put_bytes_ += record;
  mine().tail.store(put_bytes_);
  return Put::kDone;
}

bool RingPair::anything_to_take() const {
  return theirs().tail.load() != taken_bytes_;
}

Result<std::optional<RingPair::Record>> RingPair::take(std::byte* into) {
  const uint64_t available = theirs().tail.load() - taken_bytes_;
  if (available == 0) return std::optional<Record>();
  const auto nonsense = [] { return fail(ErrorCode::kProtocol, "the shared queue holds nonsense"); };
  RecordHeader header{};
  if (available > kRingBytes || available < sizeof header) return nonsense();
  copy_out(incoming_, taken_bytes_, std::as_writable_bytes(std::span(&header, 1)));
  const uint64_t record = padded(sizeof header + uint64_t{header.length});
  if (header.length > kRingRecordBytes || record > available) return nonsense();
  copy_out(incoming_, taken_bytes_ + sizeof header, {into, header.length});
  taken_bytes_ += record;
  mine().head.store(taken_bytes_);
  return std::optional(Record{header.ticket, header.length, header.hurried != 0});
}

bool RingPair::disarm_peer(bool hurried) {
  const uint32_t sleep = theirs().armed.load();
  if (sleep == static_cast<uint32_t>(Sleep::kAwake)) return false;
  if (sleep == static_cast<uint32_t>(Sleep::kDozing) && !hurried) return false;
  return theirs().armed.exchange(0) != 0;
}

bool RingPair::peer_waited() {
  return theirs().waiting.load() != 0 && theirs().waiting.exchange(0) != 0;
}

}  // namespace sluice::transport
