#include "storage/erasure/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <thread>

namespace sluice::storage {
namespace {

using Bytes = std::vector<std::byte>;

// GF(2^8) by the schoolbook: carry-less product, reduced by x^8 + x^4 + x^3 + x^2 + 1.
uint8_t naive_multiply(uint8_t a, uint8_t b) {
  unsigned product = 0;
  for (unsigned bit = 0; bit < 8; ++bit) {
    if ((b >> bit & 1u) != 0) product ^= unsigned{a} << bit;
  }
  for (int bit = 14; bit >= 8; --bit) {
    if ((product >> bit & 1u) != 0) product ^= 0x11du << (bit - 8);
  }
  return static_cast<uint8_t>(product);
}

uint8_t naive_inverse(uint8_t a) {
  for (unsigned b = 1; b < 256; ++b) {
    if (naive_multiply(a, static_cast<uint8_t>(b)) == 1) return static_cast<uint8_t>(b);
  }
  return 0;
}

uint8_t naive_coefficient(uint32_t k, uint32_t m, uint32_t parity_row, uint32_t column) {
  if (k == 1 || m == 1) return 1;
  return naive_inverse(static_cast<uint8_t>((k + parity_row) ^ column));
}

std::vector<Bytes> naive_parity(uint32_t k, uint32_t m, const std::vector<Bytes>& data) {
  std::vector<Bytes> parity(m, Bytes(data[0].size()));
  for (uint32_t row = 0; row < m; ++row) {
    for (uint32_t column = 0; column < k; ++column) {
      const uint8_t factor = naive_coefficient(k, m, row, column);
      for (size_t at = 0; at < data[0].size(); ++at) {
        parity[row][at] ^= std::byte(naive_multiply(factor, static_cast<uint8_t>(data[column][at])));
      }
    }
  }
  return parity;
}

std::vector<const std::byte*> inputs(const std::vector<Bytes>& shards) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& shard : shards) pointers.push_back(shard.data());
  return pointers;
}
std::vector<std::byte*> outputs(std::vector<Bytes>& shards) {
  std::vector<std::byte*> pointers;
  for (Bytes& shard : shards) pointers.push_back(shard.data());
  return pointers;
}

struct Shape {
  uint32_t k;
  uint32_t m;
};
constexpr Shape kShapes[] = {{1, 0}, {2, 0}, {8, 0}, {1, 1}, {1, 2}, {2, 1}, {4, 1}, {4, 2}, {8, 2}};

std::vector<Bytes> random_data(uint32_t k, size_t length) {
  std::vector<Bytes> data(k);
  for (Bytes& shard : data) {
    const auto bytes = *rc::gen::container<std::vector<uint8_t>>(length, rc::gen::arbitrary<uint8_t>());
    for (const uint8_t byte : bytes) shard.push_back(std::byte(byte));
  }
  return data;
}

RC_GTEST_PROP(CodecProperty, parity_equals_the_naive_field, ()) {
  for (const auto [k, m] : kShapes) {
    const auto length = *rc::gen::inRange<size_t>(1, 200);
    const auto data = random_data(k, length);
    std::vector<Bytes> parity(m, Bytes(length));
    Codec(k, m).encode(inputs(data), outputs(parity), length);
    RC_ASSERT(parity == naive_parity(k, m, data));
  }
}

RC_GTEST_PROP(CodecProperty, every_erasure_pattern_is_rebuilt, ()) {
  for (const auto [k, m] : kShapes) {
    const auto length = *rc::gen::inRange<size_t>(1, 100);
    const auto data = random_data(k, length);
    std::vector<Bytes> shards = data;
    for (Bytes& parity : naive_parity(k, m, data)) shards.push_back(std::move(parity));
    const Codec codec(k, m);
    const StripeShape shape{k, m, Length(k * length), Length(length)};
    for (ShardSet lost = 1; lost < (ShardSet{1} << (k + m)); ++lost) {
      if (std::popcount(lost) > static_cast<int>(m)) continue;
      const auto survivors = choose_survivors(shape, ~lost);
      RC_ASSERT(survivors.has_value());
      std::vector<const std::byte*> sources;
      for (const ShardIndex shard : *survivors) sources.push_back(shards[shard.value].data());
      std::vector<ShardIndex> wanted;
      for (uint32_t shard = 0; shard < k + m; ++shard) {
        if ((lost & shard_bit(ShardIndex(shard))) != 0) wanted.push_back(ShardIndex(shard));
      }
      std::vector<Bytes> rebuilt(wanted.size(), Bytes(length));
      codec.rebuild(*survivors, sources, wanted, outputs(rebuilt), length);
      for (size_t i = 0; i < wanted.size(); ++i) RC_ASSERT(rebuilt[i] == shards[wanted[i].value]);
    }
  }
}

TEST(Codec, wanted_shards_may_come_in_any_order) {
  std::vector<Bytes> shards(4, Bytes(64));
  for (size_t i = 0; i < shards.size(); ++i) shards[i].assign(64, std::byte(i * 17 + 1));
  for (Bytes& parity : naive_parity(4, 2, {shards.begin(), shards.end()}))
    shards.push_back(std::move(parity));
  const Codec codec(4, 2);
  const std::vector survivors{ShardIndex(0), ShardIndex(2), ShardIndex(4), ShardIndex(5)};
  const std::vector<const std::byte*> sources{shards[0].data(), shards[2].data(), shards[4].data(),
                                              shards[5].data()};
  for (const auto& wanted :
       {std::vector{ShardIndex(1), ShardIndex(3)}, std::vector{ShardIndex(3), ShardIndex(1)}}) {
    std::vector<Bytes> rebuilt(2, Bytes(64));
    codec.rebuild(survivors, sources, wanted, outputs(rebuilt), 64);
    EXPECT_EQ(rebuilt[0], shards[wanted[0].value]);
    EXPECT_EQ(rebuilt[1], shards[wanted[1].value]);
  }
}

TEST(Codec, one_codec_serves_many_threads) {
  std::vector<Bytes> shards;
  for (uint8_t i = 0; i < 8; ++i) shards.emplace_back(4096, std::byte(i * 31 + 5));
  for (Bytes& parity : naive_parity(8, 2, shards)) shards.push_back(std::move(parity));
  const Codec codec(8, 2);
  const StripeShape shape{8, 2, Length(8 * 4096), Length(4096)};
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint32_t lost = thread; lost < 200; ++lost) {
        const ShardIndex first(lost % 10);
        const auto survivors = *choose_survivors(shape, ~shard_bit(first));
        std::vector<const std::byte*> sources;
        for (const ShardIndex shard : survivors) sources.push_back(shards[shard.value].data());
        Bytes rebuilt(4096);
        std::byte* out = rebuilt.data();
        codec.rebuild(survivors, sources, std::span(&first, 1), std::span(&out, 1), rebuilt.size());
        if (rebuilt != shards[first.value]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace sluice::storage
