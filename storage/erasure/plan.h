#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.h"

// The arithmetic of a stripe: which byte lies in which shard, and what can stand in for what. Pure.
//
// A stripe of `data` bytes is cut into k data shards of equal length, one behind the other: byte b lies in
// shard b / shard at b % shard. The last data shards end in zeros where the data do not fill them; m parity
// shards follow. A shard is checked in blocks of kChecksumBlockBytes, counted from its start; the last may be
// short. A row is the blocks at the same place of all shards: it is the unit of rebuilding.
namespace sluice::storage {

struct StripeShape {
  uint32_t k = 0;
  uint32_t m = 0;
  Length data;   // bytes of user data
  Length shard;  // bytes of each shard

  uint32_t width() const { return k + m; }
  bool operator==(const StripeShape&) const = default;
};

// Shards are a multiple of this long, so that the codec never works on scraps.
inline constexpr uint64_t kShardAlignmentBytes = 64;
inline constexpr uint64_t kMaxShardBytes = uint64_t{16} * 1024 * 1024;

// The shape of a stripe of so many bytes; data > 0, k > 0.
StripeShape shape_of(uint32_t k, uint32_t m, Length data);
// True when the numbers can have come from shape_of(), within the limits of the format.
bool is_sound(const StripeShape& shape);

// Bytes [begin, end) of a shard; they belong at `out` of the caller's buffer.
struct ShardRange {
  ShardIndex shard;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t out = 0;
  bool operator==(const ShardRange&) const = default;
};

// Where bytes [offset, offset + length) of a stripe's data lie, in order. The range must lie inside the data.
std::vector<ShardRange> shard_ranges(const StripeShape& shape, uint64_t offset, Length length);

// Blocks [first, last) that a range of a shard touches, and a block's bytes.
struct BlockRange {
  uint64_t first = 0;
  uint64_t last = 0;
  bool operator==(const BlockRange&) const = default;
};
uint64_t block_count(Length shard);
BlockRange blocks_of(uint64_t begin, uint64_t end);
uint64_t block_begin(uint64_t block);
uint64_t block_end(Length shard, uint64_t block);

// A set of shards, by bit.
using ShardSet = uint64_t;
constexpr ShardSet shard_bit(ShardIndex shard) {
  return ShardSet{1} << shard.value;
}

// The k shards to rebuild others from: data shards first, in ascending order. Nothing when fewer than k are
// available.
std::optional<std::vector<ShardIndex>> choose_survivors(const StripeShape& shape, ShardSet available);

}  // namespace sluice::storage
