#include "storage/shard_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>

namespace sluice::storage {
namespace {

using testing::HasSubstr;

ShardHeader example() {
  ShardHeader header;
  header.pool_id = 0x1122334455667788;
  header.container = ContainerId(7);
  header.stripe = StripeId(42);
  header.shard = ShardIndex(1);
  header.shape = shape_of(2, 1, Length(200'000));
  header.block_crc = {0xdeadbeef, 0x01020304};
  return header;
}

// Gives a changed header its checksum back, so that the deeper checks are reached.
void reseal(std::array<std::byte, kShardHeaderBytes>& bytes) {
  const uint32_t crc = crc32c(std::span(bytes).first(kShardHeaderBytes - 4));
  std::memcpy(bytes.data() + kShardHeaderBytes - 4, &crc, 4);
}

TEST(ShardHeader, survives_the_round_trip) {
  const auto bytes = encode_shard_header(example());
  const auto decoded = decode_shard_header(bytes);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, example());
  EXPECT_THAT(describe(*decoded), HasSubstr("stripe 42 shard 1 of 2+1"));
}

// The worked example of FORMAT.md.
TEST(ShardHeader, lies_on_media_as_documented) {
  const auto bytes = encode_shard_header(example());
  const std::array<uint8_t, 80> expected = {
      'S',  'L',  'U',  'S',  'H',  'A',  'R',  'D',  0x01, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00,
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x2a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x40, 0x0d, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00,
      0xc0, 0x86, 0x01, 0x00, 0x01, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00,
      0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xef, 0xbe, 0xad, 0xde, 0x04, 0x03, 0x02, 0x01};
  EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), expected.size()), 0);
}

TEST(ShardHeader, every_flipped_bit_is_noticed) {
  const auto bytes = encode_shard_header(example());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto decoded = decode_shard_header(flipped);
    ASSERT_FALSE(decoded) << "bit " << bit;
    ASSERT_EQ(decoded.error().code, ErrorCode::kCorrupt);
  }
}

TEST(ShardHeader, a_later_version_is_unsupported_not_corrupt) {
  auto bytes = encode_shard_header(example());
  bytes[8] = std::byte{2};
  reseal(bytes);
  EXPECT_EQ(decode_shard_header(bytes).error().code, ErrorCode::kUnsupported);
}

TEST(ShardHeader, a_short_buffer_is_refused) {
  const auto bytes = encode_shard_header(example());
  EXPECT_FALSE(decode_shard_header(std::span(bytes).first(kShardHeaderBytes - 1)));
  EXPECT_FALSE(decode_shard_header({}));
}

// Whatever decodes under a right checksum is something that could have been encoded: the same bytes come
// back.
RC_GTEST_PROP(ShardHeaderProperty, hostile_fields_under_a_right_checksum_are_refused_or_canonical, ()) {
  auto bytes = encode_shard_header(example());
  const auto changes = *rc::gen::inRange(1, 4);
  for (int change = 0; change < changes; ++change) {
    const auto at = *rc::gen::weightedOneOf<size_t>(
        {{8, rc::gen::inRange<size_t>(8, 80)}, {1, rc::gen::inRange<size_t>(0, kShardHeaderBytes - 4)}});
    bytes[at] = std::byte(*rc::gen::arbitrary<uint8_t>());
  }
  reseal(bytes);
  if (const auto decoded = decode_shard_header(bytes)) RC_ASSERT(encode_shard_header(*decoded) == bytes);
}

RC_GTEST_PROP(ShardHeaderProperty, random_bytes_never_decode, (const std::vector<uint8_t>& noise)) {
  std::vector<std::byte> bytes(kShardHeaderBytes);
  for (size_t i = 0; i < bytes.size() && !noise.empty(); ++i) bytes[i] = std::byte(noise[i % noise.size()]);
  RC_ASSERT(!decode_shard_header(bytes));
}

}  // namespace
}  // namespace sluice::storage
