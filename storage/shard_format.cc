#include "storage/shard_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/assert.h"

namespace sluice::storage {
namespace {

static_assert(std::endian::native == std::endian::little,
              "shards are little-endian; this machine needs byte swaps here");

std::span<const std::byte> bytes_before_crc(const RawShardHeader& raw) {
  return std::as_bytes(std::span(&raw, 1)).first(offsetof(RawShardHeader, header_crc));
}

tl::unexpected<Error> bad(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("not a shard: {}", why));
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

Result<> check_fields(const RawShardHeader& raw, const StripeShape& shape) {
  if (raw.header_bytes != kShardHeaderBytes) return bad("the header length is wrong");
  if (raw.block_bytes != kChecksumBlockBytes) return bad("the checksum block size is wrong");
  if (!is_sound(shape)) return bad("the stripe's shape makes no sense");
  if (raw.shard_index >= shape.width()) return bad("the shard index is beyond the stripe's width");
  if (raw.block_count != block_count(shape.shard)) return bad("the number of checksum blocks is wrong");
  if (raw.stripe == 0) return bad("the stripe has no number");
  if (raw.padding0 != 0 || raw.reserved != 0 || !is_zero(raw.padding1)) return bad("the padding is not zero");
  if (!is_zero(std::as_bytes(std::span(raw.block_crc)).subspan(size_t{raw.block_count} * sizeof(uint32_t)))) {
    return bad("the unused checksums are not zero");
  }
  return {};
}

}  // namespace

std::array<std::byte, kShardHeaderBytes> encode_shard_header(const ShardHeader& header) {
  SLUICE_ASSERT(is_sound(header.shape) && header.shard.value < header.shape.width() &&
                header.stripe.value != 0);
  SLUICE_ASSERT(header.block_crc.size() == block_count(header.shape.shard));
  RawShardHeader raw{};
  raw.magic = kShardMagic;
  raw.version = kShardFormatVersion;
  raw.header_bytes = kShardHeaderBytes;
  raw.pool_id = header.pool_id;
  raw.container = header.container.value;
  raw.stripe = header.stripe.value;
  raw.data_bytes = header.shape.data.value;
  raw.shard_bytes = static_cast<uint32_t>(header.shape.shard.value);
  raw.shard_index = header.shard.value;
  raw.k = static_cast<uint16_t>(header.shape.k);
  raw.m = static_cast<uint16_t>(header.shape.m);
  raw.block_bytes = kChecksumBlockBytes;
  raw.block_count = static_cast<uint32_t>(header.block_crc.size());
  std::copy(header.block_crc.begin(), header.block_crc.end(), raw.block_crc.begin());
  raw.header_crc = crc32c(bytes_before_crc(raw));
  return std::bit_cast<std::array<std::byte, kShardHeaderBytes>>(raw);
}

Result<ShardHeader> decode_shard_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kShardHeaderBytes) return bad("it is shorter than a header");
  RawShardHeader raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (raw.magic != kShardMagic) return bad("the magic is wrong");
  if (raw.header_crc != crc32c(bytes_before_crc(raw))) return bad("the header's checksum is wrong");
  if (raw.version != kShardFormatVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the shard has format version {}; this program reads version {}", raw.version,
                            kShardFormatVersion));
  }
  ShardHeader header;
  header.pool_id = raw.pool_id;
  header.container = ContainerId(raw.container);
  header.stripe = StripeId(raw.stripe);
  header.shard = ShardIndex(raw.shard_index);
  header.shape = {raw.k, raw.m, Length(raw.data_bytes), Length(raw.shard_bytes)};
  if (auto ok = check_fields(raw, header.shape); !ok) return fail(ok.error());
  header.block_crc.assign(raw.block_crc.begin(), raw.block_crc.begin() + raw.block_count);
  return header;
}

std::string describe(const ShardHeader& header) {
  return fmt::format(
      "pool {:016x} container {} stripe {} shard {} of {}+{}, {} bytes of {} data bytes, {} blocks",
      header.pool_id, header.container.value, header.stripe.value, header.shard.value, header.shape.k,
      header.shape.m, header.shape.shard.value, header.shape.data.value, header.block_crc.size());
}

}  // namespace sluice::storage
