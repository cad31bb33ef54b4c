#include "storage/erasure/plan.h"

#include <algorithm>

#include "base/assert.h"
#include "base/checksum.h"
#include "storage/object_class.h"

namespace sluice::storage {

StripeShape shape_of(uint32_t k, uint32_t m, Length data) {
  SLUICE_ASSERT(k > 0 && k + m <= kMaxShards);
  SLUICE_ASSERT(data.value > 0 && data.value <= k * kMaxShardBytes);
  const uint64_t even = (data.value + k - 1) / k;
  const uint64_t shard = (even + kShardAlignmentBytes - 1) / kShardAlignmentBytes * kShardAlignmentBytes;
  return {k, m, data, Length(shard)};
}

bool is_sound(const StripeShape& shape) {
  if (shape.k == 0 || shape.k > kMaxShards || shape.m > kMaxShards || shape.width() > kMaxShards)
    return false;
  if (shape.data.value == 0 || shape.data.value > shape.k * kMaxShardBytes) return false;
  return shape_of(shape.k, shape.m, shape.data) == shape;
}

std::vector<ShardRange> shard_ranges(const StripeShape& shape, uint64_t offset, Length length) {
  SLUICE_ASSERT(offset <= shape.data.value && length.value <= shape.data.value - offset);
  std::vector<ShardRange> ranges;
  uint64_t done = 0;
  while (done < length.value) {
    const uint64_t shard = (offset + done) / shape.shard.value;
    const uint64_t begin = (offset + done) % shape.shard.value;
    const uint64_t end = std::min(shape.shard.value, begin + (length.value - done));
    ranges.push_back({ShardIndex(static_cast<uint32_t>(shard)), begin, end, done});
    done += end - begin;
  }
  return ranges;
}

uint64_t block_count(Length shard) {
  return (shard.value + kChecksumBlockBytes - 1) / kChecksumBlockBytes;
}

BlockRange blocks_of(uint64_t begin, uint64_t end) {
  SLUICE_ASSERT(begin < end);
  return {begin / kChecksumBlockBytes, (end + kChecksumBlockBytes - 1) / kChecksumBlockBytes};
}

uint64_t block_begin(uint64_t block) {
  return block * kChecksumBlockBytes;
}

uint64_t block_end(Length shard, uint64_t block) {
  return std::min<uint64_t>(shard.value, (block + 1) * kChecksumBlockBytes);
}

std::optional<std::vector<ShardIndex>> choose_survivors(const StripeShape& shape, ShardSet available) {
  std::vector<ShardIndex> chosen;
  for (uint32_t shard = 0; shard < shape.width() && chosen.size() < shape.k; ++shard) {
    if ((available & shard_bit(ShardIndex(shard))) != 0) chosen.push_back(ShardIndex(shard));
  }
  if (chosen.size() < shape.k) return std::nullopt;
  return chosen;
}

}  // namespace sluice::storage
