#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "storage/buffer_pool.h"
#include "storage/erasure/codec.h"
#include "storage/erasure/plan.h"

namespace sluice::storage {

// The shards of a stripe, ready to be put. Data shards point into the caller's pieces wherever these are not
// scraps.
struct EncodedStripe {
  std::vector<std::vector<std::span<const std::byte>>> shards;  // by shard index: its bytes, padding included
  std::vector<std::vector<uint32_t>> block_crc;                 // by shard index
  std::vector<BufferPool::Buffer> owned;                        // what the pieces do not hold
};

// Checksums and parity in one pass, block by block, while the bytes are in cache. The pieces are shape.data
// bytes in all.
EncodedStripe encode_stripe(const Codec& codec, const StripeShape& shape,
                            std::span<const std::span<const std::byte>> pieces, BufferPool& buffers);

}  // namespace sluice::storage
