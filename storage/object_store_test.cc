#include "storage/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <thread>

#include "base/os.h"
#include "storage/shard_format.h"
#include "storage/testing/store_rig.h"

namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ObjectStoreTest : public testing::Test {
 protected:
  ObjectStoreTest() : rig_(6) { EXPECT_TRUE(rig_.reopen()); }

  ContainerId make(const std::string& path, const std::string& class_name = "") {
    return rig_.create(path, class_name).value().id;
  }
  static Publication step(uint64_t from, uint64_t to, uint64_t size, std::vector<PlacedExtent> extents) {
    Publication p;
    p.from = Epoch(from);
    p.to = Epoch(to);
    p.size = Length(size);
    p.extents = std::move(extents);
    return p;
  }
  static PlacedExtent placed(uint64_t begin, uint64_t end, StripeId stripe, uint64_t offset = 0) {
    return {{Offset(begin), Offset(end)}, {stripe, offset}};
  }

  StoreRig rig_;
};

TEST_F(ObjectStoreTest, create_records_the_class_resolved) {
  EXPECT_EQ(rig_.create("/a")->attributes.object_class.name(), "EC_4P2");
  EXPECT_EQ(rig_.create("/b", "SX")->attributes.object_class.name(), "S6");
}

TEST_F(ObjectStoreTest, create_refuses_what_makes_no_sense) {
  ASSERT_TRUE(rig_.create("/a"));
  EXPECT_EQ(rig_.create("/a").error().code, ErrorCode::kExists);
  const auto wide = rig_.create("/w", "EC_8P2");
  EXPECT_EQ(wide.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(wide.error().message, HasSubstr("nearest class that fits is EC_4P2"));
  for (const uint64_t chunk :
       {uint64_t{0}, uint64_t{1000}, uint64_t{32768}, uint64_t{3} << 16, uint64_t{32} << 20}) {
    EXPECT_EQ(rig_.create("/c", "", chunk).error().code, ErrorCode::kInvalidArgument) << chunk;
  }
  for (const std::string& path :
       {std::string(""), std::string("a"), std::string("/"), std::string("/a/"), std::string("/a//b"),
        std::string("/a/../b"), std::string("/./a"), std::string("/a\0b", 4), "/" + std::string(5000, 'x')}) {
    EXPECT_EQ(rig_.create(path).error().code, ErrorCode::kInvalidArgument) << path;
  }
}

TEST_F(ObjectStoreTest, what_is_published_is_read_after_a_restart_too) {
  const ContainerId id = make("/a");
  const Bytes data = pattern(200'000, 1);
  ASSERT_TRUE(rig_.write(id, 0, data));
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(rig_.read(id, 0, data.size()).value(), data);
    EXPECT_EQ(rig_.store().find("/a")->size, Length(data.size()));
    EXPECT_EQ(rig_.store().find("/a")->published, Epoch(1));
    EXPECT_EQ(rig_.store().degraded_blocks(), 0u);
    ASSERT_TRUE(rig_.reopen());
  }
}

TEST_F(ObjectStoreTest, holes_and_what_lies_beyond_the_end_read_as_zeros) {
  const ContainerId id = make("/a");
  EXPECT_EQ(rig_.read(id, 5, 100).value(), Bytes(95)) << "nothing was ever written";
  const Bytes data = pattern(100, 2);
  ASSERT_TRUE(rig_.write(id, 1000, data));
  Bytes expected(2000);
  std::copy(data.begin(), data.end(), expected.begin() + 1000);
  EXPECT_EQ(rig_.read(id, 0, 2000).value(), expected);
  EXPECT_TRUE(rig_.read(id, 500, 500).value().empty());
}

TEST_F(ObjectStoreTest, a_placed_stripe_is_readable_and_not_yet_visible) {
  const ContainerId id = make("/a");
  const Bytes data = pattern(100'000, 3);
  const StripeId stripe = rig_.place(id, data).value();
  Bytes out(50'000);
  ASSERT_TRUE(rig_.store().read_stripe(stripe, 40'000, out));
  EXPECT_EQ(std::memcmp(out.data(), data.data() + 40'000, out.size()), 0);
  EXPECT_EQ(rig_.read(id, 0, 100).value(), Bytes(100));
  EXPECT_EQ(rig_.store().read_stripe(stripe, 60'000, out).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rig_.store().read_stripe(StripeId(999), 0, out).error().code, ErrorCode::kNotFound);
}

TEST_F(ObjectStoreTest, place_takes_one_byte_to_one_full_stripe) {
  const ContainerId id = make("/a");
  const uint64_t full = rig_.store().stripe_bytes(id)->value;
  EXPECT_EQ(full, 4u * 65536);
  EXPECT_EQ(rig_.place(id, {}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rig_.place(id, pattern(full + 1, 1)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(rig_.place(id, pattern(full, 1)));
  EXPECT_TRUE(rig_.place(id, pattern(1, 1)));
  EXPECT_EQ(rig_.place(ContainerId(77), pattern(1, 1)).error().code, ErrorCode::kNotFound);
}

TEST_F(ObjectStoreTest, a_container_without_versions_takes_another_chunk_size) {
  const ContainerId id = make("/a");
  ASSERT_EQ(rig_.store().stripe_bytes(id)->value, 4u * 65536);
  EXPECT_EQ(rig_.store().shape(id, Length(100'000), "odd").error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(rig_.store().shape(id, Length(131072), "blocks of 100000 bytes"));
  EXPECT_EQ(rig_.store().stripe_bytes(id)->value, 4u * 131072);
  EXPECT_EQ(rig_.store().find(id)->attributes.chunk_reason, "blocks of 100000 bytes");
  const Bytes bytes = pattern(4 * 131072, 3);
  const StripeId stripe = rig_.place(id, bytes).value();
  ASSERT_TRUE(rig_.store().publish(id, step(0, 1, bytes.size(), {placed(0, bytes.size(), stripe)})));
  EXPECT_EQ(rig_.read(id, 0, bytes.size()).value(), bytes);
  EXPECT_EQ(rig_.store().shape(id, Length(65536), "late").error().code, ErrorCode::kConflict);
}

TEST_F(ObjectStoreTest, publish_is_a_compare_and_set) {
  const ContainerId id = make("/a");
  const StripeId stripe = rig_.place(id, pattern(100, 1)).value();
  ASSERT_TRUE(rig_.store().publish(id, step(0, 5, 100, {placed(0, 100, stripe)})));
  EXPECT_TRUE(rig_.store().publish(id, step(0, 5, 100, {placed(0, 100, stripe)}))) << "again";
  EXPECT_EQ(rig_.store().publish(id, step(0, 6, 100, {})).error().code, ErrorCode::kConflict);
  EXPECT_EQ(rig_.store().publish(id, step(5, 5, 100, {})).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rig_.store().publish(id, step(5, 6, 50, {placed(0, 60, stripe)})).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(rig_.store().publish(id, step(5, 6, 100, {placed(0, 50, StripeId(999))})).error().code,
            ErrorCode::kNotFound);
  EXPECT_EQ(rig_.store().publish(id, step(5, 6, 1000, {placed(0, 101, stripe)})).error().code,
            ErrorCode::kInvalidArgument);
  const ContainerId other = make("/b");
  EXPECT_EQ(rig_.store().publish(other, step(0, 1, 100, {placed(0, 100, stripe)})).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(rig_.store().find(id)->published, Epoch(5));
  EXPECT_EQ(rig_.store().find(other)->published, Epoch(0));
  EXPECT_EQ(rig_.read(id, 0, 100).value(), pattern(100, 1));
}

TEST_F(ObjectStoreTest, an_overwritten_stripe_is_removed) {
  const ContainerId id = make("/a");
  const StripeId first = rig_.write(id, 0, pattern(1000, 1)).value();
  const StripeId second = rig_.write(id, 0, pattern(999, 2)).value();
  EXPECT_EQ(rig_.stripes(), (std::set{first, second}));
  const StripeId third = rig_.write(id, 500, pattern(500, 3)).value();
  EXPECT_EQ(rig_.stripes(), (std::set{second, third}));
  Bytes out(1);
  EXPECT_EQ(rig_.store().read_stripe(first, 0, out).error().code, ErrorCode::kNotFound);
}

TEST_F(ObjectStoreTest, truncation_drops_bytes_and_stripes) {
  const ContainerId id = make("/a");
  const StripeId first = rig_.write(id, 0, pattern(1000, 1)).value();
  ASSERT_TRUE(rig_.write(id, 1000, pattern(1000, 2)));
  Publication cut = step(2, 3, 1500, {});
  cut.cut = Length(400);
  ASSERT_TRUE(rig_.store().publish(id, cut));
  EXPECT_EQ(rig_.stripes(), std::set{first});
  Bytes expected = pattern(1000, 1);
  std::fill(expected.begin() + 400, expected.end(), std::byte{0});
  EXPECT_EQ(rig_.read(id, 0, 1000).value(), expected);
  EXPECT_EQ(rig_.store().find(id)->size, Length(1500));
}

// A stripe that is published in two steps survives the overwriting of its first half, when the first step
// says so.
TEST_F(ObjectStoreTest, a_placer_holds_what_a_later_step_publishes) {
  const ContainerId id = make("/a");
  const Bytes data = pattern(1000, 1);
  const StripeId shared = rig_.place(id, data).value();
  Publication first = step(0, 1, 500, {placed(0, 500, shared)});
  first.still_held = {shared};
  ASSERT_TRUE(rig_.store().publish(id, first));
  const StripeId over = rig_.place(id, pattern(500, 2)).value();
  ASSERT_TRUE(rig_.store().publish(id, step(1, 2, 500, {placed(0, 500, over)})));
  EXPECT_EQ(rig_.stripes(), (std::set{shared, over}));
  ASSERT_TRUE(rig_.store().publish(id, step(2, 3, 1000, {placed(500, 1000, shared, 500)})));
  EXPECT_EQ(rig_.read(id, 500, 1000).value(), Bytes(data.begin() + 500, data.end()));
  ASSERT_TRUE(rig_.store().publish(id, step(3, 4, 500, {})));
  EXPECT_EQ(rig_.stripes(), std::set{over}) << "nobody holds it any more";
  ASSERT_TRUE(rig_.reopen());
  EXPECT_EQ(rig_.read(id, 0, 500).value(), pattern(500, 2));
}

TEST_F(ObjectStoreTest, a_stripe_published_in_part_goes_with_its_last_byte) {
  const ContainerId id = make("/a");
  const StripeId part = rig_.place(id, pattern(1000, 1)).value();
  ASSERT_TRUE(rig_.store().publish(id, step(0, 1, 500, {placed(0, 500, part)})));
  EXPECT_EQ(rig_.stripes(), std::set{part});
  ASSERT_TRUE(rig_.store().publish(id, step(1, 2, 0, {})));
  EXPECT_THAT(rig_.stripes(), IsEmpty());
  EXPECT_EQ(rig_.store().publish(id, step(2, 3, 500, {placed(0, 500, part)})).error().code,
            ErrorCode::kNotFound);
}

TEST_F(ObjectStoreTest, discard_drops_what_was_never_published_only) {
  const ContainerId id = make("/a");
  const StripeId dropped = rig_.place(id, pattern(1000, 1)).value();
  rig_.store().discard(dropped);
  EXPECT_THAT(rig_.stripes(), IsEmpty());
  const StripeId kept = rig_.write(id, 0, pattern(1000, 2)).value();
  rig_.store().discard(kept);
  EXPECT_EQ(rig_.read(id, 0, 1000).value(), pattern(1000, 2));

  const StripeId earlier = rig_.place(id, pattern(1000, 3)).value();
  ASSERT_TRUE(rig_.reopen());
  rig_.store().discard(kept);
  rig_.store().discard(earlier);
  rig_.store().discard(StripeId(4711));
  EXPECT_EQ(rig_.stripes(), std::set{kept});
  EXPECT_EQ(rig_.read(id, 0, 1000).value(), pattern(1000, 2));
}

TEST_F(ObjectStoreTest, a_stripe_placed_by_an_earlier_run_is_read_and_published) {
  const ContainerId id = make("/a");
  const Bytes data = pattern(150'000, 1);
  const StripeId stripe = rig_.place(id, data).value();
  ASSERT_TRUE(rig_.reopen());
  Bytes out(data.size());
  ASSERT_TRUE(rig_.store().read_stripe(stripe, 0, out));
  EXPECT_EQ(out, data);
  ASSERT_TRUE(rig_.reopen());
  ASSERT_TRUE(rig_.store().publish(id, step(0, 1, data.size(), {placed(0, data.size(), stripe)})));
  ASSERT_TRUE(rig_.reopen());
  EXPECT_EQ(rig_.read(id, 0, data.size()).value(), data);
}

TEST_F(ObjectStoreTest, orphans_go_and_all_that_is_wanted_stays) {
  const ContainerId id = make("/a");
  const StripeId published = rig_.write(id, 0, pattern(1000, 1)).value();
  const StripeId staged = rig_.place(id, pattern(1000, 2)).value();
  const StripeId orphan = rig_.place(id, pattern(1000, 3)).value();
  EXPECT_EQ(rig_.store().collect_orphans({staged}).value(), 0u) << "placed in this run: held";
  EXPECT_TRUE(rig_.stripes().contains(orphan));
  ASSERT_TRUE(rig_.reopen());
  EXPECT_EQ(rig_.store().collect_orphans({staged}).value(), 1u);
  EXPECT_EQ(rig_.stripes(), (std::set{published, staged}));
  const StripeId fresh = rig_.place(id, pattern(1000, 4)).value();
  EXPECT_GT(fresh, orphan) << "numbers are never used again";
}

TEST_F(ObjectStoreTest, stripes_of_a_damaged_manifest_are_no_orphans) {
  const ContainerId id = make("/a");
  const ContainerId other = make("/b");
  const StripeId stripe = rig_.write(id, 0, pattern(1000, 1)).value();
  const StripeId sound = rig_.write(other, 0, pattern(1000, 2)).value();
  ASSERT_TRUE(rig_.place(other, pattern(1000, 3)));
  ASSERT_TRUE(rig_.metastore().aggregate(id, Epoch(1), "garbage"));
  ASSERT_TRUE(rig_.reopen());
  EXPECT_EQ(rig_.store().collect_orphans({}).value(), 1u);
  EXPECT_EQ(rig_.stripes(), (std::set{stripe, sound}));
  const auto damaged = rig_.read(id, 0, 10);
  EXPECT_EQ(damaged.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(damaged.error().message, HasSubstr("/a"));
  EXPECT_EQ(rig_.read(other, 0, 1000).value(), pattern(1000, 2)) << "nobody else suffers";
  EXPECT_TRUE(rig_.store().remove(id)) << "it can still be removed";
  EXPECT_EQ(rig_.store().collect_orphans({}).value(), 1u);
  EXPECT_EQ(rig_.stripes(), std::set{sound});
}

TEST_F(ObjectStoreTest, removing_frees_the_path_and_the_stripes) {
  const ContainerId id = make("/a");
  ASSERT_TRUE(rig_.write(id, 0, pattern(1000, 1)));
  const StripeId staged = rig_.place(id, pattern(1000, 2)).value();
  ASSERT_TRUE(rig_.store().remove(id));
  EXPECT_EQ(rig_.stripes(), std::set{staged}) << "the placer still holds it";
  rig_.store().discard(staged);
  EXPECT_THAT(rig_.stripes(), IsEmpty());
  EXPECT_EQ(rig_.store().find("/a").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(rig_.read(id, 0, 10).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(rig_.place(id, pattern(1, 1)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(rig_.store().remove(id).error().code, ErrorCode::kNotFound);
  EXPECT_NE(make("/a"), id);
}

TEST_F(ObjectStoreTest, steps_are_merged_before_they_become_many) {
  const ContainerId id = make("/a", "S1");
  Bytes expected(200 * 100);
  for (uint64_t i = 0; i < 200; ++i) {
    const Bytes data = pattern(150, i);
    const uint64_t at = (i * 37 % 199) * 100;
    ASSERT_TRUE(rig_.write(id, at, data));
    if (expected.size() < at + data.size()) expected.resize(at + data.size());
    std::copy(data.begin(), data.end(), expected.begin() + static_cast<ptrdiff_t>(at));
    // Loading costs the map and as much again, not the history.
    ASSERT_LE(rig_.metastore().steps(id)->size(), 66u + rig_.store().layout(id)->size());
  }
  EXPECT_EQ(rig_.read(id, 0, expected.size()).value(), expected);
  ASSERT_TRUE(rig_.reopen());
  EXPECT_EQ(rig_.read(id, 0, expected.size()).value(), expected);
  EXPECT_EQ(rig_.store().collect_orphans({}).value(), 0u) << "every overwritten stripe was removed at once";

  const ContainerId small = make("/small", "S1");
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(rig_.write(small, 0, pattern(150, i)));
    ASSERT_LE(rig_.metastore().steps(small)->size(), 66u);
  }
  ASSERT_TRUE(rig_.reopen());
  EXPECT_EQ(rig_.read(small, 0, 150).value(), pattern(150, 199));
}

TEST_F(ObjectStoreTest, layout_tells_where_the_bytes_lie) {
  const ContainerId id = make("/a");
  const StripeId first = rig_.write(id, 0, pattern(1000, 1)).value();
  const StripeId second = rig_.write(id, 500, pattern(100, 2)).value();
  EXPECT_THAT(rig_.store().layout(id).value(),
              ElementsAre(placed(0, 500, first), placed(500, 600, second), placed(600, 1000, first, 600)));
}

TEST_F(ObjectStoreTest, status_tells_each_target) {
  ASSERT_TRUE(rig_.write(make("/a"), 0, pattern(100'000, 1)));
  rig_.target(2).set_missing(true);
  const auto status = rig_.store().target_status();
  ASSERT_EQ(status.size(), 6u);
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(status[i].id, TargetId(i));
    EXPECT_EQ(status[i].state, i == 2 ? "missing" : "up");
    EXPECT_EQ(status[i].bytes_used > 0, i != 2);
  }
}

TEST_F(ObjectStoreTest, a_missing_target_stops_neither_writes_nor_reads) {
  const ContainerId id = make("/a");
  const Bytes before = pattern(200'000, 1);
  ASSERT_TRUE(rig_.write(id, 0, before));
  rig_.target(1).set_missing(true);
  rig_.target(4).set_missing(true);
  EXPECT_EQ(rig_.read(id, 0, before.size()).value(), before);
  const Bytes after = pattern(200'000, 2);
  ASSERT_TRUE(rig_.write(id, 0, after)) << "with the parity left out";
  EXPECT_EQ(rig_.read(id, 0, after.size()).value(), after);
  rig_.target(0).set_missing(true);
  const auto refused = rig_.place(id, after);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("/a, class EC_4P2"));
}

TEST_F(ObjectStoreTest, scrub_finds_and_repairs_what_no_read_would_meet) {
  const ContainerId id = make("/a");
  const StripeId stripe = rig_.write(id, 0, pattern(4 * 65536, 1)).value();
  EXPECT_EQ(rig_.store().scrub()->bad_blocks, 0u);
  const ShardName parity{stripe, ShardIndex(5)};
  ASSERT_TRUE(rig_.target(rig_.place_of(parity).value)
                  .flip_bit(parity, kShardHeaderBytes + 5, kShardHeaderBytes + 65536));
  auto report = rig_.store().scrub().value();
  EXPECT_EQ(report.stripes, 1u);
  EXPECT_EQ(report.bad_blocks, 1u);
  EXPECT_EQ(report.repaired_blocks, 1u);
  EXPECT_EQ(rig_.store().scrub()->bad_blocks, 0u);
  for (const size_t target : {0, 1, 2}) rig_.target(target).set_missing(true);
  report = rig_.store().scrub().value();
  EXPECT_GT(report.lost_blocks, 0u);
}

bool never() {
  return false;
}

TEST_F(ObjectStoreTest, a_shard_left_out_while_its_target_was_missing_is_put_back_when_it_returns) {
  const ContainerId id = make("/a");
  ASSERT_TRUE(rig_.store().heal(never));
  rig_.target(1).set_missing(true);
  rig_.target(4).set_missing(true);
  const Bytes data = pattern(200'000, 2);
  ASSERT_TRUE(rig_.write(id, 0, data));
  EXPECT_EQ(rig_.store().missing_shards(), 2u);
  EXPECT_EQ(rig_.store().heal(never).value(), 0u) << "they are still missing";
  rig_.target(1).set_missing(false);
  EXPECT_EQ(rig_.store().heal(never).value(), 1u);
  rig_.target(4).set_missing(false);
  EXPECT_EQ(rig_.store().heal(never).value(), 1u);
  EXPECT_EQ(rig_.store().missing_shards(), 0u);
  EXPECT_EQ(rig_.shards().size(), 6u);
  // The full redundancy is there again.
  rig_.target(0).set_missing(true);
  rig_.target(2).set_missing(true);
  EXPECT_EQ(rig_.read(id, 0, data.size()).value(), data);
}

TEST_F(ObjectStoreTest, a_target_that_returns_after_a_restart_gets_what_was_written_without_it) {
  const ContainerId id = make("/a");
  rig_.target(3).set_missing(true);
  const Bytes data = pattern(200'000, 2);
  ASSERT_TRUE(rig_.write(id, 0, data));
  ASSERT_TRUE(rig_.reopen());
  ASSERT_TRUE(rig_.store().collect_orphans({}));
  EXPECT_EQ(rig_.store().heal(never).value(), 1u);
  EXPECT_EQ(rig_.shards().size(), 6u);
  EXPECT_EQ(rig_.read(id, 0, data.size()).value(), data);
}

TEST_F(ObjectStoreTest, a_full_target_gets_its_shard_when_it_has_room_again) {
  StoreRig small(3, 300'000);
  ASSERT_TRUE(small.reopen());
  const ContainerId id = small.create("/a", "EC_2P1").value().id;
  const Bytes filling(250'000);
  const std::span<const std::byte> whole(filling);
  const ShardName ballast{StripeId(1'000'000), ShardIndex(0)};
  ASSERT_TRUE(small.medium(1).put(ballast, std::span(&whole, 1)));
  const Bytes data = pattern(2 * 65536, 3);
  ASSERT_TRUE(small.write(id, 0, data));
  EXPECT_EQ(small.store().missing_shards(), 1u);
  ASSERT_TRUE(small.medium(1).remove(ballast));
  EXPECT_EQ(small.store().heal(never).value(), 1u);
  small.target(0).set_missing(true);
  EXPECT_EQ(small.read(id, 0, data.size()).value(), data);
}

TEST_F(ObjectStoreTest, an_emptied_target_is_filled_again) {
  const ContainerId id = make("/a");
  const Bytes data = pattern(200'000, 2);
  const StripeId stripe = rig_.write(id, 0, data).value();
  ASSERT_TRUE(rig_.store().heal(never));
  const ShardName parity{stripe, ShardIndex(5)};
  const size_t place = rig_.place_of(parity).value;
  rig_.target(place).set_missing(true);
  EXPECT_EQ(rig_.store().heal(never).value(), 0u);
  ASSERT_TRUE(rig_.medium(place).remove(parity));
  rig_.target(place).set_missing(false);
  EXPECT_EQ(rig_.store().heal(never).value(), 1u);
  EXPECT_EQ(rig_.place_of(parity).value, place);
}

TEST_F(ObjectStoreTest, a_target_that_returns_loses_the_shards_of_what_was_removed_meanwhile) {
  const ContainerId gone = make("/gone");
  ASSERT_TRUE(rig_.write(gone, 0, pattern(200'000, 2)));
  const ContainerId kept = make("/kept");
  const StripeId stays = rig_.write(kept, 0, pattern(200'000, 3)).value();
  const StripeId placed = rig_.place(kept, pattern(200'000, 4)).value();  // nobody's but the placer's
  ASSERT_TRUE(rig_.store().heal(never));
  rig_.target(3).set_missing(true);
  ASSERT_TRUE(rig_.store().heal(never));
  ASSERT_TRUE(rig_.store().remove(gone));
  EXPECT_EQ(rig_.stripes().size(), 3u);
  rig_.target(3).set_missing(false);
  EXPECT_EQ(rig_.store().heal(never).value(), 0u);
  EXPECT_EQ(rig_.stripes(), (std::set{stays, placed}));
  EXPECT_EQ(rig_.shards().size(), 12u);
}

// All its shards were on missing targets at the restart, so nothing is known of it but its number.
TEST_F(ObjectStoreTest, a_staged_stripe_that_could_not_be_found_is_no_orphan_when_its_targets_return) {
  StoreRig rig(3);
  ASSERT_TRUE(rig.reopen());
  const ContainerId id = rig.create("/a", "S1").value().id;
  const Bytes data = pattern(50'000, 5);
  const StripeId stripe = rig.place(id, data).value();
  const size_t place = rig.place_of({stripe, ShardIndex(0)}).value;
  ASSERT_TRUE(rig.reopen());
  rig.target(place).set_missing(true);
  ASSERT_TRUE(rig.store().collect_orphans({stripe}));
  ASSERT_TRUE(rig.store().heal(never));
  rig.target(place).set_missing(false);
  ASSERT_TRUE(rig.store().heal(never));
  Bytes read(data.size());
  ASSERT_TRUE(rig.store().read_stripe(stripe, 0, read));
  EXPECT_EQ(read, data);
}

TEST_F(ObjectStoreTest, a_shard_that_went_from_a_target_that_stayed_up_is_put_back_when_all_are_compared) {
  const ContainerId id = make("/a");
  const StripeId stripe = rig_.write(id, 0, pattern(200'000, 2)).value();
  ASSERT_TRUE(rig_.store().heal(never));
  const ShardName parity{stripe, ShardIndex(4)};
  const size_t place = rig_.place_of(parity).value;
  ASSERT_TRUE(rig_.medium(place).remove(parity));
  EXPECT_EQ(rig_.store().heal(never).value(), 0u) << "there was no reason to look";
  rig_.store().compare_all_again();
  EXPECT_EQ(rig_.store().heal(never).value(), 1u);
  EXPECT_EQ(rig_.place_of(parity).value, place);
}

TEST_F(ObjectStoreTest, a_target_that_cannot_be_compared_keeps_no_other_from_being_healed) {
  const ContainerId id = make("/a");
  ASSERT_TRUE(rig_.store().heal(never));
  for (const size_t away : {1, 4}) rig_.target(away).set_missing(true);
  ASSERT_TRUE(rig_.store().heal(never));
  ASSERT_TRUE(rig_.write(id, 0, pattern(200'000, 2)));
  for (const size_t away : {1, 4}) rig_.target(away).set_missing(false);
  rig_.target(1).set_list_error(ErrorCode::kIo);
  EXPECT_EQ(rig_.store().heal(never).error().code, ErrorCode::kIo);
  EXPECT_EQ(rig_.shards().size(), 6u);
  rig_.target(1).set_list_error(std::nullopt);
  EXPECT_TRUE(rig_.store().heal(never));
}

TEST_F(ObjectStoreTest,
       shards_that_cannot_be_rebuilt_are_counted_as_lost_and_tried_again_when_all_are_compared) {
  const ContainerId id = make("/a");
  const Bytes data = pattern(200'000, 2);
  const StripeId stripe = rig_.write(id, 0, data).value();
  std::map<ShardName, std::pair<size_t, Bytes>> taken;
  for (uint32_t shard = 0; shard < 3; ++shard) {
    const ShardName name{stripe, ShardIndex(shard)};
    const size_t place = rig_.place_of(name).value;
    Bytes bytes(rig_.medium(place).usage()->bytes_used);
    const std::span<std::byte> whole(bytes);
    ASSERT_TRUE(rig_.medium(place).get(name, 0, std::span(&whole, 1)));
    ASSERT_TRUE(rig_.medium(place).remove(name));
    taken[name] = {place, std::move(bytes)};
  }
  EXPECT_EQ(rig_.store().heal(never).value(), 0u);
  EXPECT_EQ(rig_.store().missing_shards(), 3u);
  EXPECT_EQ(rig_.store().lost_shards(), 0u) << "the others may be readable at the next look";
  for (int look = 0; look < 2; ++look) EXPECT_EQ(rig_.store().heal(never).value(), 0u);
  EXPECT_EQ(rig_.store().lost_shards(), 3u);
  const auto& [name, back] = *taken.begin();
  const std::span<const std::byte> whole(back.second);
  ASSERT_TRUE(rig_.medium(back.first).put(name, std::span(&whole, 1)));
  EXPECT_EQ(rig_.store().heal(never).value(), 0u) << "not tried at each look";
  rig_.store().compare_all_again();
  EXPECT_GE(rig_.store().heal(never).value(), 2u);
  EXPECT_EQ(rig_.store().lost_shards(), 0u);
  EXPECT_EQ(rig_.store().missing_shards(), 0u);
  EXPECT_EQ(rig_.read(id, 0, data.size()).value(), data);
}

TEST_F(ObjectStoreTest, healing_stops_when_it_is_told_to) {
  const ContainerId id = make("/a");
  rig_.target(1).set_missing(true);
  ASSERT_TRUE(rig_.write(id, 0, pattern(200'000, 2)));
  rig_.target(1).set_missing(false);
  EXPECT_EQ(rig_.store().heal([] { return true; }).value(), 0u);
  EXPECT_EQ(rig_.store().missing_shards(), 1u);
}

TEST_F(ObjectStoreTest, a_pool_full_of_data_says_no_space) {
  StoreRig small(3, 200'000);
  ASSERT_TRUE(small.reopen());
  const ContainerId id = small.create("/a", "EC_2P1").value().id;
  Result<StripeId> last = StripeId(0);
  int stripes = 0;
  while (last && stripes < 100) {
    last = small.write(id, static_cast<uint64_t>(stripes) * 100'000,
                       pattern(100'000, static_cast<uint64_t>(stripes)));
    ++stripes;
  }
  ASSERT_FALSE(last);
  EXPECT_THAT(last.error().message, HasSubstr("has room"));
  for (int i = 0; i + 1 < stripes; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * 100'000;
    EXPECT_EQ(small.read(id, at, at + 100'000).value(), pattern(100'000, static_cast<uint64_t>(i)));
  }
}

TEST(ObjectStoreOpen, refuses_parts_that_do_not_belong_together) {
  auto open = [](std::vector<std::unique_ptr<Target>> targets, std::shared_ptr<MetaStore> meta,
                 const char* class_name = "S1") {
    ObjectStore::Options options;
    options.default_class = ObjectClass::parse(class_name).value();
    return ObjectStore::open(
        options, std::move(targets),
        std::make_unique<FaultMetaStore>(std::move(meta), std::make_shared<FaultPlan>()));
  };
  auto targets = [](std::vector<std::pair<uint32_t, uint64_t>> ids_and_pools) {
    std::vector<std::unique_ptr<Target>> made;
    for (const auto& [id, pool] : ids_and_pools) made.push_back(make_memory_target(TargetId(id), 1000, pool));
    return made;
  };
  const std::shared_ptr<MetaStore> meta = make_memory_metastore();
  EXPECT_EQ(open({}, meta).error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(open(targets({{0, 1}, {0, 1}}), meta).error().message, HasSubstr("used twice"));
  EXPECT_THAT(open(targets({{0, 1}, {1, 2}}), meta).error().message, HasSubstr("different pools"));
  EXPECT_THAT(open(targets({{0, 1}}), meta, "EC_4P2").error().message,
              HasSubstr("nearest class that fits is S1"));
  EXPECT_TRUE(open(targets({{0, 1}}), meta));
  EXPECT_TRUE(open(targets({{0, 1}}), meta));
  EXPECT_THAT(open(targets({{0, 2}}), meta).error().message, HasSubstr("bring the right ones together"));
}

// Readers run against publications that free the stripes under them: each read is one version, whole.
TEST(ObjectStoreConcurrency, readers_see_whole_versions_while_stripes_are_freed) {
  StoreRig rig(4, uint64_t{1} << 30, 2);
  ASSERT_TRUE(rig.reopen());
  const ContainerId id = rig.create("/a", "EC_2P1").value().id;
  constexpr size_t kSize = 60'000;
  ASSERT_TRUE(rig.write(id, 0, Bytes(kSize, std::byte{1})));
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> wrong = 0;
  std::atomic<uint64_t> reads = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const auto bytes = rig.read(id, 0, kSize);
        if (!bytes ||
            std::any_of(bytes->begin(), bytes->end(), [&](std::byte b) { return b != bytes->front(); }))
          ++wrong;
        ++reads;
      }
    });
  }
  for (uint8_t version = 2; version < 100; ++version) {
    ASSERT_TRUE(rig.write(id, 0, Bytes(kSize, std::byte{version})));
    while (version % 10 == 0 && reads < version) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(rig.stripes().size(), 1u) << "no freed stripe is left, none came back by a repair";
  EXPECT_EQ(rig.store().degraded_blocks(), 0u);
}

TEST(ObjectStoreConcurrency, many_placers_and_publishers) {
  StoreRig rig(6, uint64_t{1} << 30, 2);
  ASSERT_TRUE(rig.reopen());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      const ContainerId id = rig.create("/t" + std::to_string(thread)).value().id;
      for (uint64_t i = 0; i < 20; ++i) {
        const Bytes data = pattern(30'000, thread * 100 + i);
        if (!rig.write(id, 0, data) || rig.read(id, 0, data.size()).value() != data) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(rig.stripes().size(), 3u);
}

// Random work on several containers with restarts, against plain byte arrays.
RC_GTEST_PROP(ObjectStoreProperty, equals_plain_files, ()) {
  StoreRig rig(*rc::gen::element<size_t>(1, 3, 6));
  RC_ASSERT(rig.reopen().has_value());
  std::map<ContainerId, Bytes> model;
  const auto steps = *rc::gen::inRange(1, 25);
  for (int i = 0; i < steps; ++i) {
    const int action = *rc::gen::weightedElement<int>({{2, 0}, {10, 1}, {2, 2}, {1, 3}, {1, 4}});
    if (action == 0 || model.empty()) {
      model[rig.create("/f" + std::to_string(i)).value().id] = {};
      continue;
    }
    auto& [id, bytes] =
        *std::next(model.begin(), *rc::gen::inRange<ptrdiff_t>(0, static_cast<ptrdiff_t>(model.size())));
    if (action == 1) {
      const auto at = *rc::gen::inRange<size_t>(0, 3000);
      const Bytes data = pattern(*rc::gen::inRange<size_t>(1, 3000), *rc::gen::arbitrary<uint32_t>());
      RC_ASSERT(rig.write(id, at, data).has_value());
      bytes.resize(std::max(bytes.size(), at + data.size()));
      std::copy(data.begin(), data.end(), bytes.begin() + static_cast<ptrdiff_t>(at));
    } else if (action == 2) {
      const auto info = rig.store().find(id).value();
      const auto size = *rc::gen::inRange<size_t>(0, 4000);
      Publication cut;
      cut.from = info.published;
      cut.to = Epoch(info.published.value + 2);
      cut.size = Length(size);
      RC_ASSERT(rig.store().publish(id, cut).has_value());
      bytes.resize(size);
    } else if (action == 3) {
      RC_ASSERT(rig.reopen().has_value());
      RC_ASSERT(rig.store().collect_orphans({}).value() == 0u);
    } else {
      RC_ASSERT(rig.store().remove(id).has_value());
      model.erase(id);
    }
    for (const auto& [other, expected] : model) {
      RC_ASSERT(rig.read(other, 0, expected.size()).value() == expected);
      RC_ASSERT(rig.store().find(other)->size == Length(expected.size()));
    }
  }
  std::set<StripeId> live;
  for (const auto& [id, bytes] : model) {
    const auto layout = rig.store().layout(id).value();
    for (const PlacedExtent& placed : layout) live.insert(placed.place.stripe);
  }
  RC_ASSERT(rig.stripes() == live);
}

// The whole of it on directories and SQLite.
TEST(ObjectStoreOnDisk, survives_restarts_and_a_lost_directory) {
  const auto scratch = TemporaryDirectory::create("sluice-store").value();
  const auto path_of = [&](uint32_t id) { return scratch.path() / ("t" + std::to_string(id)); };
  auto open = [&] {
    std::vector<std::unique_ptr<Target>> targets;
    for (uint32_t id = 0; id < 3; ++id)
      targets.push_back(open_file_target(path_of(id), 9, TargetId(id)).value());
    return ObjectStore::open({}, std::move(targets),
                             open_sqlite_metastore(scratch.path() / "meta.db").value())
        .value();
  };
  for (uint32_t id = 0; id < 3; ++id) ASSERT_TRUE(format_file_target(path_of(id), 9, TargetId(id)));
  auto store = open();
  ContainerAttributes attributes;
  attributes.path = "/a";
  const ContainerId id = store->create(attributes).value().id;
  const Bytes data = pattern(300'000, 1);
  const std::span<const std::byte> whole(data);
  const StripeId stripe = store->place(id, std::span(&whole, 1)).value();
  Publication step;
  step.to = Epoch(1);
  step.size = Length(data.size());
  step.extents.push_back({{Offset(0), Offset(data.size())}, {stripe, 0}});
  ASSERT_TRUE(store->publish(id, step));
  store.reset();

  std::filesystem::remove_all(path_of(1));
  store = open();
  EXPECT_EQ(store->collect_orphans({}).value(), 0u);
  Bytes out(data.size());
  const ReadReport report = store->read(id, {Offset(0), Offset(data.size())}, out).value();
  EXPECT_EQ(out, data);
  EXPECT_EQ(store->target_status()[1].state, "missing");
  EXPECT_THAT(store->target_status()[1].why, testing::HasSubstr(path_of(1).string() + " is not there"));
  EXPECT_FALSE(std::filesystem::exists(path_of(1))) << "never made again on the quiet";

  // A new directory, formatted as the lost target, is filled again by a scrub.
  ASSERT_TRUE(format_file_target(path_of(1), 9, TargetId(1)));
  const ScrubReport scrub = store->scrub().value();
  EXPECT_GT(scrub.bad_blocks, 0u);
  EXPECT_EQ(scrub.repaired_blocks, scrub.bad_blocks);
  EXPECT_GE(scrub.bad_blocks, report.degraded_blocks);
  store.reset();
  std::filesystem::remove_all(path_of(0));
  store = open();
  ASSERT_TRUE(store->read(id, {Offset(0), Offset(data.size())}, out));
  EXPECT_EQ(out, data);
}

}  // namespace
}  // namespace sluice::storage
