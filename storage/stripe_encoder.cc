#include "storage/stripe_encoder.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"

namespace sluice::storage {
namespace {

using Pieces = std::vector<std::span<const std::byte>>;

// Below this, on average, gathering a shard beats handing its pieces to the system one by one.
constexpr size_t kScrapBytes = 4096;

// What fills up the last data shards, shard by shard at most this much at once.
constexpr std::array<std::byte, kChecksumBlockBytes> kZeros{};

// The pieces, one behind the other, cut into k lists of shard bytes each; zeros at the end.
std::vector<Pieces> cut_into_shards(const StripeShape& shape,
                                    std::span<const std::span<const std::byte>> pieces) {
  std::vector<Pieces> shards(shape.k);
  uint64_t at = 0;
  auto append = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const uint64_t room = shape.shard.value - at % shape.shard.value;
      const auto part = bytes.first(std::min<uint64_t>(room, bytes.size()));
      shards[at / shape.shard.value].push_back(part);
      at += part.size();
      bytes = bytes.subspan(part.size());
    }
  };
  for (const auto piece : pieces) append(piece);
  SLUICE_ASSERT(at == shape.data.value);
  const uint64_t whole = shape.k * shape.shard.value;
  while (at < whole) append(std::span(kZeros).first(std::min<uint64_t>(kZeros.size(), whole - at)));
  return shards;
}

void gather_scraps(Pieces& shard, Length shard_length, EncodedStripe& stripe, BufferPool& buffers) {
  if (shard.size() <= 1 || shard_length.value / shard.size() >= kScrapBytes) return;
  BufferPool::Buffer whole = buffers.take(shard_length.value);
  size_t at = 0;
  for (const auto piece : shard) {
    std::memcpy(whole.bytes().data() + at, piece.data(), piece.size());
    at += piece.size();
  }
  shard = {whole.bytes()};
  stripe.owned.push_back(std::move(whole));
}

// Walks a shard's pieces in steps.
class Cursor {
 public:
  explicit Cursor(const Pieces& pieces) : pieces_(&pieces) {}

  // The next bytes: where they are when one piece holds them all, otherwise copied to `scratch`.
  const std::byte* next(size_t length, std::byte* scratch) {
    const auto piece = (*pieces_)[index_].subspan(offset_);
    if (piece.size() >= length) {
      advance(length);
      return piece.data();
    }
    for (size_t done = 0; done < length;) {
      const auto source = (*pieces_)[index_].subspan(offset_);
      const size_t part = std::min(source.size(), length - done);
      std::memcpy(scratch + done, source.data(), part);
      done += part;
      advance(part);
    }
    return scratch;
  }

 private:
  void advance(size_t length) {
    offset_ += length;
    if (offset_ < (*pieces_)[index_].size()) return;
    ++index_;
    offset_ = 0;
  }

  const Pieces* pieces_;
  size_t index_ = 0;
  size_t offset_ = 0;
};

}  // namespace

EncodedStripe encode_stripe(const Codec& codec, const StripeShape& shape,
                            std::span<const std::span<const std::byte>> pieces, BufferPool& buffers) {
  SLUICE_ASSERT(codec.k() == shape.k && codec.m() == shape.m);
  EncodedStripe stripe;
  stripe.shards = cut_into_shards(shape, pieces);
  for (Pieces& shard : stripe.shards) gather_scraps(shard, shape.shard, stripe, buffers);
  stripe.block_crc.resize(shape.width());
  const bool copies = shape.k == 1;
  const uint32_t parity_count = copies ? 0 : shape.m;

  std::vector<std::byte*> parity;
  for (uint32_t i = 0; i < parity_count; ++i) {
    stripe.owned.push_back(buffers.take(shape.shard.value));
    parity.push_back(stripe.owned.back().bytes().data());
    stripe.shards.push_back({stripe.owned.back().bytes()});
  }

  std::vector<Cursor> cursors;
  for (uint32_t i = 0; i < shape.k; ++i) cursors.emplace_back(stripe.shards[i]);
  const size_t scratch_block = std::min<size_t>(kChecksumBlockBytes, shape.shard.value);
  const BufferPool::Buffer scratch = buffers.take(shape.k * scratch_block);
  std::vector<const std::byte*> sources(shape.k);
  std::vector<std::byte*> out(parity_count);
  for (uint64_t block = 0; block < block_count(shape.shard); ++block) {
    const size_t length = block_end(shape.shard, block) - block_begin(block);
    for (uint32_t i = 0; i < shape.k; ++i) {
      sources[i] = cursors[i].next(length, scratch.bytes().data() + i * scratch_block);
      stripe.block_crc[i].push_back(crc32c({sources[i], length}));
    }
    for (uint32_t i = 0; i < parity_count; ++i) out[i] = parity[i] + block_begin(block);
    if (parity_count > 0) codec.encode(sources, out, length);
    for (uint32_t i = 0; i < parity_count; ++i)
      stripe.block_crc[shape.k + i].push_back(crc32c({out[i], length}));
  }
  if (copies) {
    for (uint32_t copy = 1; copy < shape.width(); ++copy) {
      stripe.shards.push_back(stripe.shards[0]);
      stripe.block_crc[copy] = stripe.block_crc[0];
    }
  }
  return stripe;
}

}  // namespace sluice::storage
