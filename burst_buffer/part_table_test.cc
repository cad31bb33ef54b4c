#include "burst_buffer/part_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/rng.h"

namespace sluice::burst_buffer {
namespace {

constexpr uint64_t kSlabAt = 512;

StripePart part(uint64_t begin, uint64_t length, uint64_t record, uint64_t offset) {
  return {Extent::at(Offset(begin), Length(length)), record, StripeId(9), offset};
}

struct Stored {
  TableRecord record;
  std::vector<std::byte> data;
};

Stored store(const std::vector<StripePart>& parts) {
  const auto table = encode_part_table(parts);
  Stored stored;
  stored.data.resize(kSlabAt + table.size());
  std::copy(table.begin(), table.end(), stored.data.begin() + kSlabAt);
  stored.record.stripe = StripeId(9);
  stored.record.slab = {kSlabAt, Length(table.size())};
  stored.record.crc32c = crc32c(table);
  stored.record.count = static_cast<uint32_t>(parts.size());
  return stored;
}

void expect_same(const std::vector<StripePart>& read, const std::vector<StripePart>& parts) {
  ASSERT_EQ(read.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(read[i].extent, parts[i].extent) << i;
    EXPECT_EQ(read[i].record, parts[i].record) << i;
    EXPECT_EQ(read[i].stripe, parts[i].stripe) << i;
    EXPECT_EQ(read[i].stripe_offset, parts[i].stripe_offset) << i;
  }
}

TEST(PartTable, regular_pieces_take_no_room_each) {
  std::vector<StripePart> parts;
  for (uint64_t i = 0; i < 60'000; ++i) parts.push_back(part(7 + i * 100, 3, 5, i * 3));
  Stored stored = store(parts);
  EXPECT_LT(stored.record.slab.length.value, 20u);
  ASSERT_TRUE(read_part_table(stored.record, stored.data));
  expect_same(stored.record.parts, parts);
}

TEST(PartTable, says_again_whatever_parts_it_was_given) {
  rc::check([](uint64_t seed) {
    SeededRng rng(seed);
    std::vector<StripePart> parts;
    const size_t count = 1 + rng.below(300);
    uint64_t at = rng.below(kMaxFileBytes / 2);
    for (size_t i = 0; i < count; ++i) {
      if (rng.below(20) == 0) at = rng.below(kMaxFileBytes / 2);
      const uint64_t length = 1 + rng.below(rng.below(4) == 0 ? 1'000'000 : 2);
      parts.push_back(part(at, length, rng.below(4) == 0 ? rng.below(kMaxFileBytes) : 12,
                           i > 0 && rng.below(4) != 0
                               ? parts.back().stripe_offset + parts.back().extent.length().value
                               : rng.below(kMaxFileBytes / 2)));
      at += length + rng.below(3);
    }
    Stored stored = store(parts);
    const auto read = read_part_table(stored.record, stored.data);
    RC_ASSERT(read.has_value());
    expect_same(stored.record.parts, parts);
  });
}

TEST(PartTable, damage_is_told_and_never_taken_for_parts) {
  const Stored good = store({part(10, 5, 3, 0), part(20, 5, 3, 5), part(100, 7, 4, 10)});
  for (size_t at = kSlabAt; at < good.data.size(); ++at) {
    Stored damaged = good;
    damaged.data[at] ^= std::byte{4};
    const auto read = read_part_table(damaged.record, damaged.data);
    ASSERT_FALSE(read) << at;
    EXPECT_TRUE(read.error().data_loss);
  }
  Stored shorter = good;
  shorter.data.pop_back();
  EXPECT_FALSE(read_part_table(shorter.record, shorter.data));
  for (const uint32_t count : {2u, 4u, 1u << 31}) {
    Stored other = good;
    other.record.count = count;
    EXPECT_FALSE(read_part_table(other.record, other.data)) << count;
  }
}

// With a checksum that fits: nothing that such bytes say may be believed, or take the memory of what they
// claim.
TEST(PartTable, hostile_bytes_with_a_good_checksum_do_no_harm) {
  rc::check([](uint64_t seed) {
    SeededRng rng(seed);
    std::vector<std::byte> data(1 + rng.below(40));
    for (std::byte& byte : data) byte = static_cast<std::byte>(rng.below(4) == 0 ? 0xFF : rng.below(256));
    TableRecord record;
    record.stripe = StripeId(9);
    record.slab = {0, Length(data.size())};
    record.crc32c = crc32c(data);
    record.count = static_cast<uint32_t>(1 + rng.below(kMaxTableParts));
    if (!read_part_table(record, data)) return;
    for (const StripePart& p : record.parts) RC_ASSERT(p.extent.valid() && !p.extent.empty());
  });
}

}  // namespace
}  // namespace sluice::burst_buffer
