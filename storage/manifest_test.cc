#include "storage/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <set>

#include "base/checksum.h"

namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ContainerId kContainer{9};
constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

StripeRecord stripe(uint64_t id, uint64_t data) {
  StripeRecord record{StripeId(id), kContainer, shape_of(2, 1, Length(data)), {}};
  for (uint32_t shard = 0; shard < 3; ++shard)
    record.targets.push_back(TargetId(shard + static_cast<uint32_t>(id % 4)));
  return record;
}

ManifestStep step(uint64_t from, uint64_t to, uint64_t size, std::vector<StripeRecord> stripes,
                  std::vector<PlacedExtent> extents) {
  return {Epoch(from), Epoch(to), std::nullopt, Length(size), std::move(stripes), std::move(extents)};
}

std::vector<uint64_t> ids(const std::vector<Manifest::RecordPtr>& records) {
  std::vector<uint64_t> ids;
  for (const auto& record : records) ids.push_back(record->id.value);
  return ids;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Manifest, an_overwritten_stripe_is_freed_with_its_last_byte) {
  Manifest manifest(kContainer);
  EXPECT_THAT(ids(manifest.apply(step(0, 1, 100, {stripe(1, 100)}, {{ext(0, 100), {StripeId(1), 0}}}))),
              ElementsAre());
  EXPECT_THAT(ids(manifest.apply(step(1, 2, 100, {stripe(2, 99)}, {{ext(0, 99), {StripeId(2), 0}}}))),
              ElementsAre());
  EXPECT_THAT(ids(manifest.apply(step(2, 3, 100, {stripe(3, 1)}, {{ext(99, 100), {StripeId(3), 0}}}))),
              ElementsAre(1));
  EXPECT_EQ(manifest.stripe(StripeId(1)), nullptr);
  EXPECT_THAT(ids(manifest.stripes()), ElementsAre(2, 3));
}

TEST(Manifest, a_cut_frees_and_what_comes_after_it_stays) {
  Manifest manifest(kContainer);
  manifest.apply(step(0, 1, 200, {stripe(1, 100), stripe(2, 100)},
                      {{ext(0, 100), {StripeId(1), 0}}, {ext(100, 200), {StripeId(2), 0}}}));
  ManifestStep cut = step(1, 2, 300, {stripe(3, 50)}, {{ext(250, 300), {StripeId(3), 0}}});
  cut.cut = Length(50);
  EXPECT_THAT(ids(manifest.apply(cut)), ElementsAre(2));
  EXPECT_THAT(manifest.lookup(ext(0, 1000)), ElementsAre(PlacedExtent{ext(0, 50), {StripeId(1), 0}},
                                                         PlacedExtent{ext(250, 300), {StripeId(3), 0}}));
}

TEST(Manifest, a_stripe_hidden_within_its_own_step_is_freed_at_once) {
  Manifest manifest(kContainer);
  EXPECT_THAT(ids(manifest.apply(step(0, 1, 10, {stripe(1, 10), stripe(2, 10)},
                                      {{ext(0, 10), {StripeId(1), 0}}, {ext(0, 10), {StripeId(2), 0}}}))),
              ElementsAre(1));
}

TEST(Manifest, steps_that_make_no_sense_are_refused) {
  Manifest manifest(kContainer);
  manifest.apply(step(0, 3, 100, {stripe(1, 100)}, {{ext(0, 100), {StripeId(1), 0}}}));
  EXPECT_EQ(manifest.check(step(2, 4, 100, {}, {})).error().code, ErrorCode::kConflict);
  EXPECT_EQ(manifest.check(step(3, 3, 100, {}, {})).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(manifest.check(step(3, 4, 100, {}, {{ext(0, 1), {StripeId(8), 0}}})).error().code,
            ErrorCode::kNotFound);
  EXPECT_EQ(manifest.check(step(3, 4, 50, {}, {{ext(0, 51), {StripeId(1), 0}}})).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(manifest.check(step(3, 4, 100, {}, {{ext(0, 10), {StripeId(1), 91}}})).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(manifest.check(step(3, 4, 100, {}, {{ext(0, 10), {StripeId(1), UINT64_MAX - 3}}})).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(manifest.check(step(3, 4, 100, {stripe(1, 100)}, {})).error().code, ErrorCode::kInvalidArgument);
  StripeRecord doubled = stripe(5, 10);
  doubled.targets[1] = doubled.targets[0];
  EXPECT_FALSE(manifest.check(step(3, 4, 100, {doubled}, {})));
  EXPECT_TRUE(manifest.check(step(3, 4, 100, {}, {{ext(0, 10), {StripeId(1), 90}}})));
}

TEST(ManifestStep, neighbours_in_one_stripe_are_one_extent) {
  EXPECT_THAT(
      coalesced({{ext(0, 10), {StripeId(1), 5}},
                 {ext(10, 20), {StripeId(1), 15}},
                 {ext(20, 20), {StripeId(1), 0}},
                 {ext(20, 30), {StripeId(1), 26}},
                 {ext(30, 40), {StripeId(2), 36}}}),
      ElementsAre(PlacedExtent{ext(0, 20), {StripeId(1), 5}}, PlacedExtent{ext(20, 30), {StripeId(1), 26}},
                  PlacedExtent{ext(30, 40), {StripeId(2), 36}}));
}

ManifestStep example() {
  ManifestStep s = step(4, 7, 1000, {stripe(1, 100), stripe(2, 65536 * 3)},
                        {{ext(0, 100), {StripeId(1), 0}}, {ext(500, 1000), {StripeId(2), 77}}});
  s.cut = Length(400);
  s.stripes[1].targets[2] = kNoTarget;
  return s;
}

TEST(ManifestStep, survives_the_round_trip) {
  for (const ManifestStep& s : {example(), step(0, 1, 0, {}, {})}) {
    const auto decoded = decode_step(bytes_of(encode_step(s)), kContainer);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(*decoded, s);
  }
}

// The worked example of FORMAT.md.
TEST(ManifestStep, lies_on_media_as_documented) {
  StripeRecord record{
      StripeId(42), kContainer, shape_of(2, 1, Length(200'000)), {TargetId(2), TargetId(0), TargetId(1)}};
  const std::string bytes =
      encode_step(step(4, 5, 200'000, {record}, {{ext(0, 200'000), {StripeId(42), 0}}}));
  const std::array<uint8_t, 48> head = {
      0x53, 0x4c, 0x4d, 0x53, 0xa0, 0x5a, 0xae, 0xd9, 0x1c, 0x00, 0x00, 0x00, 0x53, 0x4c, 0x4d, 0x53,
      0x14, 0x00, 0x30, 0x00, 0x04, 0x00, 0x14, 0x00, 0x1c, 0x00, 0x00, 0x00, 0x24, 0x00, 0x08, 0x00,
      0x0c, 0x00, 0x10, 0x00, 0x14, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x28, 0x00, 0x00, 0x00};
  ASSERT_EQ(bytes.size(), 168u);
  EXPECT_EQ(std::memcmp(bytes.data(), head.data(), head.size()), 0)
      << "the checksum among them covers the rest";
}

TEST(ManifestStep, every_flipped_bit_and_every_cut_is_noticed) {
  const std::string good = encode_step(example());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(decode_step(bytes_of(flipped), kContainer)) << "bit " << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_FALSE(decode_step(bytes_of(good.substr(0, size)), kContainer)) << "size " << size;
  }
}

// Hostile bytes under a right checksum: an error, or a step that can be encoded again.
RC_GTEST_PROP(ManifestStepProperty, hostile_bytes_end_in_an_error_or_a_sound_step, ()) {
  std::string bytes = encode_step(example());
  const auto changes = *rc::gen::inRange(1, 6);
  for (int change = 0; change < changes; ++change) {
    const auto at = *rc::gen::inRange<size_t>(8, bytes.size());
    bytes[at] = static_cast<char>(*rc::gen::element(0, 1, 2, 127, 128, 255, *rc::gen::inRange(0, 256)));
  }
  const uint32_t crc = crc32c(bytes_of(bytes).subspan(8));
  std::memcpy(bytes.data() + 4, &crc, sizeof crc);
  // At an odd address, as a received buffer may be.
  const std::string shifted = "x" + bytes;
  if (const auto decoded = decode_step(bytes_of(shifted).subspan(1), kContainer)) {
    RC_ASSERT(decode_step(bytes_of(encode_step(*decoded)), kContainer).value() == *decoded);
  }
}

constexpr uint64_t kModelBytes = 200;

// A file as a plain array of "which byte of which stripe".
struct Model {
  std::array<std::optional<StripePlace>, kModelBytes> bytes;

  void apply(const ManifestStep& s) {
    auto drop_from = [&](uint64_t from) {
      for (uint64_t at = from; at < kModelBytes; ++at) bytes[at].reset();
    };
    if (s.cut) drop_from(s.cut->value);
    for (const PlacedExtent& placed : s.extents) {
      for (uint64_t at = placed.extent.begin.value; at < placed.extent.end.value; ++at) {
        bytes[at] = placed.place.advanced(Length(at - placed.extent.begin.value));
      }
    }
    drop_from(s.size.value);
  }
  std::set<StripeId> live() const {
    std::set<StripeId> live;
    for (const auto& byte : bytes) {
      if (byte) live.insert(byte->stripe);
    }
    return live;
  }
};

void expect_same(const Manifest& manifest, const Model& model) {
  Model seen;
  for (const PlacedExtent& placed : manifest.lookup(ext(0, kMaxFileBytes))) {
    for (uint64_t at = placed.extent.begin.value; at < placed.extent.end.value; ++at) {
      RC_ASSERT(!seen.bytes[at]);
      seen.bytes[at] = placed.place.advanced(Length(at - placed.extent.begin.value));
    }
  }
  RC_ASSERT(seen.bytes == model.bytes);
  std::set<StripeId> live;
  for (const auto& record : manifest.stripes()) live.insert(record->id);
  RC_ASSERT(live == model.live());
}

ManifestStep random_step(const Manifest& at, uint64_t& next_stripe) {
  ManifestStep s;
  s.from = at.epoch();
  s.to = Epoch(s.from.value + *rc::gen::inRange<uint64_t>(1, 4));
  s.size = Length(*rc::gen::inRange<uint64_t>(0, kModelBytes + 1));
  if (*rc::gen::weightedElement<bool>({{1, true}, {3, false}}))
    s.cut = Length(*rc::gen::inRange<uint64_t>(0, kModelBytes));
  const auto stripes = *rc::gen::inRange(0, 3);
  for (int i = 0; i < stripes; ++i)
    s.stripes.push_back(stripe(next_stripe++, *rc::gen::inRange<uint64_t>(1, 60)));
  std::vector<StripeRecord> usable = s.stripes;
  for (const auto& record : at.stripes()) usable.push_back(*record);
  const auto extents = usable.empty() || s.size.value == 0 ? 0 : *rc::gen::inRange(0, 5);
  for (int i = 0; i < extents; ++i) {
    const StripeRecord& in = usable[*rc::gen::inRange<size_t>(0, usable.size())];
    const auto offset = *rc::gen::inRange<uint64_t>(0, in.shape.data.value);
    const auto begin = *rc::gen::inRange<uint64_t>(0, s.size.value);
    const auto length =
        *rc::gen::inRange<uint64_t>(1, std::min(in.shape.data.value - offset, s.size.value - begin) + 1);
    s.extents.push_back({ext(begin, begin + length), {in.id, offset}});
  }
  return s;
}

// After any steps: the bytes and the live stripes of a plain array; each stripe is freed exactly once; the
// encoded steps give the same map again, and so does their aggregation.
RC_GTEST_PROP(ManifestProperty, equals_a_naive_byte_array, ()) {
  Manifest manifest(kContainer);
  Manifest reloaded(kContainer);
  Model model;
  uint64_t next_stripe = 1;
  std::set<StripeId> freed;
  const auto steps = *rc::gen::inRange(1, 12);
  for (int i = 0; i < steps; ++i) {
    const ManifestStep s = random_step(manifest, next_stripe);
    RC_ASSERT(manifest.check(s));
    const auto before = model.live();
    model.apply(s);
    for (const auto& record : manifest.apply(s)) {
      RC_ASSERT(freed.insert(record->id).second);
      RC_ASSERT(before.contains(record->id) || record->id.value < next_stripe);
    }
    expect_same(manifest, model);
    RC_ASSERT(manifest.epoch() == s.to && manifest.size() == s.size);
    const auto decoded = decode_step(bytes_of(encode_step(s)), kContainer);
    RC_ASSERT(decoded.has_value());
    RC_ASSERT(reloaded.check(*decoded));
    reloaded.apply(*decoded);
  }
  expect_same(reloaded, model);
  for (const StripeId id : model.live()) RC_ASSERT(!freed.contains(id));
  RC_ASSERT(freed.size() + model.live().size() == next_stripe - 1);

  const auto merged = decode_step(bytes_of(encode_step(manifest.merged())), kContainer);
  RC_ASSERT(merged.has_value());
  Manifest aggregated(kContainer);
  RC_ASSERT(aggregated.check(*merged));
  RC_ASSERT(aggregated.apply(*merged).empty());
  expect_same(aggregated, model);
  RC_ASSERT(aggregated.epoch() == manifest.epoch() && aggregated.size() == manifest.size());
}

}  // namespace
}  // namespace sluice::storage
