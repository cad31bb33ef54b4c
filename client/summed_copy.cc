#include "client/summed_copy.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/stream_copy.h"

namespace sluice::client {

void SummedCopy::append(MemoryCursor& from, uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t in_block = used_ % kChecksumBlockBytes;
    const auto piece = from.take(std::min(bytes, kChecksumBlockBytes - in_block));
    if (piece.size() == kChecksumBlockBytes) {
      // The checksum first: it brings the bytes into the cache that the copy then takes them from.
      sums_.push_back(crc32c(piece));
      stream_copy(to_ + used_, piece.data(), piece.size());
    } else {
      std::memcpy(to_ + used_, piece.data(), piece.size());
      if (in_block + piece.size() == kChecksumBlockBytes)
        sums_.push_back(crc32c({to_ + used_ - in_block, kChecksumBlockBytes}));
    }
    used_ += piece.size();
    bytes -= piece.size();
  }
}

std::vector<uint32_t> SummedCopy::finish() {
  const uint64_t rest = used_ % kChecksumBlockBytes;
  if (rest != 0) sums_.push_back(crc32c({to_ + used_ - rest, rest}));
  return std::move(sums_);
}

}  // namespace sluice::client
