#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/result.h"
#include "base/types.h"
#include "storage/erasure/plan.h"

// What a shard looks like on a medium: one header of kShardHeaderBytes, then the shard's bytes. FORMAT.md
// says it in tables. Pure; every decoder takes hostile bytes.
namespace sluice::storage {

inline constexpr uint64_t kShardHeaderBytes = 4096;
inline constexpr uint32_t kShardFormatVersion = 1;
inline constexpr size_t kMaxShardBlocks = kMaxShardBytes / kChecksumBlockBytes;
inline constexpr std::array<char, 8> kShardMagic = {'S', 'L', 'U', 'S', 'H', 'A', 'R', 'D'};

// As on media, little-endian.
struct RawShardHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t pool_id;
  uint64_t container;
  uint64_t stripe;
  uint64_t data_bytes;
  uint32_t shard_bytes;
  uint32_t shard_index;
  uint16_t k;
  uint16_t m;
  uint32_t block_bytes;
  uint32_t block_count;
  uint32_t padding0;
  std::array<uint32_t, kMaxShardBlocks> block_crc;
  std::array<std::byte, 2992> padding1;
  uint32_t reserved;
  uint32_t header_crc;  // crc32c of all bytes before it
};
static_assert(sizeof(RawShardHeader) == kShardHeaderBytes);
static_assert(offsetof(RawShardHeader, pool_id) == 16);
static_assert(offsetof(RawShardHeader, shard_bytes) == 48);
static_assert(offsetof(RawShardHeader, block_crc) == 72);
static_assert(offsetof(RawShardHeader, padding1) == 1096);
static_assert(offsetof(RawShardHeader, header_crc) == 4092);
static_assert(std::is_trivially_copyable_v<RawShardHeader>);

struct ShardHeader {
  uint64_t pool_id = 0;
  ContainerId container;
  StripeId stripe;
  ShardIndex shard;
  StripeShape shape;
  std::vector<uint32_t> block_crc;  // one for each block of the shard

  bool operator==(const ShardHeader&) const = default;
};

std::array<std::byte, kShardHeaderBytes> encode_shard_header(const ShardHeader& header);

// kCorrupt, saying what is wrong, for anything encode_shard_header() cannot have made; kUnsupported for a
// later version. A header that decodes has a sound shape, a shard index inside it and one checksum for each
// block.
Result<ShardHeader> decode_shard_header(std::span<const std::byte> bytes);

// One line, for people and the dump tool.
std::string describe(const ShardHeader& header);

}  // namespace sluice::storage
