#include "engine/checked_copy.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"

namespace sluice::engine {

bool CheckedCopy::copy(const burst_buffer::Segment& from, std::span<std::byte> to) {
  const std::byte* slab = from.bytes.data() - from.in_slab;
  for (uint64_t done = 0; done < to.size();) {
    const uint64_t at = from.in_slab + done;
    const uint64_t index = at / kChecksumBlockBytes;
    const uint64_t begin = index * kChecksumBlockBytes;
    const std::span block(slab + begin, std::min(kChecksumBlockBytes, from.slab_length - begin));
    const auto part = to.subspan(done, std::min(begin + block.size() - at, to.size() - done));
    std::memcpy(part.data(), slab + at, part.size());
    const bool whole = part.size() == block.size();
    // Of a whole block it is the copy that is checked.
    if (whole && crc32c(part) != from.checksums[index]) return false;
    if (!whole && !checked_.contains(block.data())) {
      if (crc32c(block) != from.checksums[index]) return false;
      checked_.insert(block.data());
    }
    done += part.size();
  }
  return true;
}

}  // namespace sluice::engine
