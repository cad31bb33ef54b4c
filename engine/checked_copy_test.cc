#include "engine/checked_copy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "base/checksum.h"
#include "base/rng.h"

namespace sluice::engine {
namespace {

constexpr uint64_t kBlock = kChecksumBlockBytes;

struct Slab {
  explicit Slab(size_t size) : bytes(size) {
    SeededRng rng(size);
    for (auto& byte : bytes) byte = static_cast<std::byte>(rng.next());
    sums = block_checksums(bytes);
  }
  burst_buffer::Segment segment(uint64_t at, uint64_t length) const {
    burst_buffer::Segment segment;
    segment.kind = burst_buffer::Segment::Kind::kBytes;
    segment.bytes = std::span(bytes).subspan(at, length);
    segment.in_slab = at;
    segment.slab_length = bytes.size();
    segment.checksums = sums;
    return segment;
  }
  std::vector<std::byte> bytes;
  std::vector<uint32_t> sums;
};

RC_GTEST_PROP(CheckedCopyProperty, a_copy_fails_exactly_when_a_block_that_it_touches_is_damaged, ()) {
  Slab slab(*rc::gen::inRange<size_t>(1, 4 * kBlock));
  const auto damaged = *rc::gen::inRange<size_t>(0, slab.bytes.size());
  const bool damage = *rc::gen::arbitrary<bool>();
  if (damage) slab.bytes[damaged] ^= std::byte{4};
  CheckedCopy checked;
  const auto copies = *rc::gen::inRange(1, 6);
  for (int i = 0; i < copies; ++i) {
    const auto at = *rc::gen::inRange<size_t>(0, slab.bytes.size());
    const auto length = *rc::gen::inRange<size_t>(1, slab.bytes.size() - at + 1);
    const bool touched = at / kBlock <= damaged / kBlock && damaged / kBlock <= (at + length - 1) / kBlock;
    std::vector<std::byte> to(length);
    const bool copied = checked.copy(slab.segment(at, length), to);
    RC_ASSERT(copied == !(damage && touched));
    if (copied) RC_ASSERT(std::equal(to.begin(), to.end(), slab.bytes.begin() + at));
  }
}

}  // namespace
}  // namespace sluice::engine
