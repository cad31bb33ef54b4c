#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

// CRC32C (Castagnoli polynomial 0x1EDC6F41, reflected, initial value and final XOR 0xFFFFFFFF), by ISA-L.
namespace sluice {

// Bulk bytes carry one checksum for each piece of this size, counted from the start of the buffer; the last
// may be short.
inline constexpr size_t kChecksumBlockBytes = 64 * 1024;

// The checksum of `bytes`; crc32c({}, 0) == 0. `previous` continues an earlier call: crc32c(ab) == crc32c(b,
// crc32c(a)).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

// One checksum per block of kChecksumBlockBytes; empty for no bytes.
std::vector<uint32_t> block_checksums(std::span<const std::byte> bytes);

// True when `bytes` has exactly these block checksums.
bool checksums_match(std::span<const std::byte> bytes, std::span<const uint32_t> expected);

}  // namespace sluice
