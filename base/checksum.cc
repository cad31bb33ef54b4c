#include "base/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <climits>

namespace sluice {
namespace {

// ISA-L takes an int length and leaves the initial value and the final inversion to its caller.
constexpr size_t kMaxIsalBytes = INT_MAX / 2 + 1;

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  uint32_t state = ~previous;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kMaxIsalBytes));
    // The parameter is not const in ISA-L, but nothing is written through it.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    state = crc32_iscsi(data, static_cast<int>(piece.size()), state);
    bytes = bytes.subspan(piece.size());
  }
  return ~state;
}

std::vector<uint32_t> block_checksums(std::span<const std::byte> bytes) {
  std::vector<uint32_t> sums;
  sums.reserve((bytes.size() + kChecksumBlockBytes - 1) / kChecksumBlockBytes);
  for (size_t at = 0; at < bytes.size(); at += kChecksumBlockBytes) {
    sums.push_back(crc32c(bytes.subspan(at, std::min(kChecksumBlockBytes, bytes.size() - at))));
  }
  return sums;
}

bool checksums_match(std::span<const std::byte> bytes, std::span<const uint32_t> expected) {
  if (expected.size() != (bytes.size() + kChecksumBlockBytes - 1) / kChecksumBlockBytes) return false;
  size_t at = 0;
  for (const uint32_t sum : expected) {
    if (crc32c(bytes.subspan(at, std::min(kChecksumBlockBytes, bytes.size() - at))) != sum) return false;
    at += kChecksumBlockBytes;
  }
  return true;
}

}  // namespace sluice
