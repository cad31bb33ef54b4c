#include "storage/stripe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "base/checksum.h"
#include "storage/shard_format.h"
#include "storage/testing/store_rig.h"

namespace sluice::storage {
namespace {

using testing::HasSubstr;

// Targets in memory and a StripeIo over them.
class StripePool {
 public:
  explicit StripePool(size_t count, size_t threads = 0) : plan_(std::make_shared<FaultPlan>()) {
    for (uint32_t id = 0; id < count; ++id) {
      auto target = std::make_unique<FaultTarget>(make_memory_target(TargetId(id), 1 << 28), plan_);
      faults.push_back(target.get());
      targets_.push_back(std::move(target));
    }
    io = std::make_unique<StripeIo>(targets_, threads);
  }

  // Shard i on target i; the rest are spares.
  Placement straight(const StripeShape& shape) const {
    Placement placement;
    placement.promised.assign(shape.width(), kNoTarget);
    for (uint32_t i = 0; i < shape.width(); ++i)
      placement.shards.push_back(i < faults.size() ? TargetId(i) : kNoTarget);
    for (uint32_t i = shape.width(); i < faults.size(); ++i) placement.spares.emplace_back(i);
    return placement;
  }
  Result<StripeRecord> write(uint32_t k, uint32_t m, const Bytes& data, uint64_t id = 1) {
    const StripeShape shape = shape_of(k, m, Length(data.size()));
    const std::span<const std::byte> whole(data);
    return io->write(StripeId(id), ContainerId(5), shape, std::span(&whole, 1), straight(shape));
  }
  Result<Bytes> read(const StripeRecord& stripe, uint64_t offset, uint64_t length,
                     ReadReport* report = nullptr) {
    Bytes out(length, std::byte{0xee});
    auto got = io->read(stripe, offset, out);
    if (!got) return fail(got.error());
    if (report != nullptr) *report = *got;
    return out;
  }

  std::vector<FaultTarget*> faults;
  std::unique_ptr<StripeIo> io;

 private:
  std::shared_ptr<FaultPlan> plan_;
  std::vector<std::unique_ptr<Target>> targets_;
};

Bytes part(const Bytes& bytes, uint64_t offset, uint64_t length) {
  return {bytes.begin() + static_cast<ptrdiff_t>(offset),
          bytes.begin() + static_cast<ptrdiff_t>(offset + length)};
}

struct Shape {
  uint32_t k;
  uint32_t m;
};
constexpr Shape kShapes[] = {{1, 0}, {3, 0}, {1, 1}, {1, 2}, {2, 1}, {4, 1}, {4, 2}, {8, 2}};

// Any cut into pieces, any range, any set of at most m lost targets: the same bytes.
RC_GTEST_PROP(StripeProperty, gives_back_every_range_whatever_the_pieces_and_losses, ()) {
  const auto [k, m] = kShapes[*rc::gen::inRange<size_t>(0, std::size(kShapes))];
  const auto size =
      *rc::gen::oneOf(rc::gen::inRange<uint64_t>(1, 2000), rc::gen::inRange<uint64_t>(1, 700'000),
                      rc::gen::just<uint64_t>(k * 3 * kChecksumBlockBytes));
  const Bytes data = pattern(size, *rc::gen::arbitrary<uint32_t>());
  const auto typical = *rc::gen::element<uint64_t>(1, 100, 5000, 70'000, size);
  std::vector<std::span<const std::byte>> pieces;
  for (uint64_t at = 0; at < size;) {
    const uint64_t length = std::min(size - at, 1 + (typical * (1 + at % 3)) / 2);
    pieces.push_back(std::span(data).subspan(at, length));
    at += length;
  }
  StripePool pool(k + m);
  const StripeShape shape = shape_of(k, m, Length(size));
  const auto record = pool.io->write(StripeId(1), ContainerId(5), shape, pieces, pool.straight(shape));
  RC_ASSERT(record.has_value());

  std::set<size_t> lost;
  for (uint32_t i = 0; i < m; ++i) {
    if (*rc::gen::arbitrary<bool>()) lost.insert(*rc::gen::inRange<size_t>(0, k + m));
  }
  for (const size_t target : lost) pool.faults[target]->set_missing(true);
  for (int reads = 0; reads < 4; ++reads) {
    const auto offset = *rc::gen::inRange<uint64_t>(0, size);
    const auto length = *rc::gen::inRange<uint64_t>(0, size - offset + 1);
    RC_ASSERT(pool.read(*record, offset, length).value() == part(data, offset, length));
  }
  ReadReport report;
  RC_ASSERT(pool.read(*record, 0, size, &report).value() == data);
  bool data_lost = false;
  for (const size_t target : lost) data_lost = data_lost || target * shape.shard.value < size;
  RC_ASSERT((report.degraded_blocks > 0) == (data_lost && *lost.begin() < k));
}

// What lies on the targets is what FORMAT.md says: data shards are the data, blocks have their checksums.
TEST(Stripe, shards_lie_on_the_targets_as_documented) {
  StripePool pool(3);
  const Bytes data = pattern(200'000, 1);
  const StripeRecord record = pool.write(2, 1, data).value();
  Bytes all;
  for (uint32_t shard = 0; shard < 3; ++shard) {
    Bytes file(kShardHeaderBytes + record.shape.shard.value);
    const std::span<std::byte> whole(file);
    ASSERT_TRUE(pool.faults[shard]->get({StripeId(1), ShardIndex(shard)}, 0, std::span(&whole, 1)));
    const auto header = decode_shard_header(file);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->container, ContainerId(5));
    EXPECT_EQ(header->shard, ShardIndex(shard));
    EXPECT_EQ(header->shape, record.shape);
    const auto payload = std::span(file).subspan(kShardHeaderBytes);
    EXPECT_EQ(header->block_crc, block_checksums(payload));
    if (shard < 2) all.insert(all.end(), payload.begin(), payload.end());
  }
  EXPECT_EQ(part(all, 0, data.size()), data);
  EXPECT_EQ(part(all, data.size(), all.size() - data.size()), Bytes(all.size() - data.size()));
}

TEST(Stripe, a_bad_bit_anywhere_is_rebuilt_and_rewritten) {
  const Bytes data = pattern(3 * 150'000, 2);
  const uint64_t file_bytes = kShardHeaderBytes + shape_of(3, 1, Length(data.size())).shard.value;
  for (const uint64_t byte : {uint64_t{0}, uint64_t{80}, uint64_t{4092}, kShardHeaderBytes,
                              kShardHeaderBytes + 70'000, file_bytes - 100}) {
    for (const uint32_t shard : {0u, 1u, 2u}) {
      StripePool pool(4);
      const StripeRecord record = pool.write(3, 1, data).value();
      ASSERT_TRUE(pool.faults[shard]->flip_bit({StripeId(1), ShardIndex(shard)}, byte, file_bytes));
      ReadReport report;
      EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data) << byte;
      const uint64_t bad = byte < kShardHeaderBytes ? block_count(record.shape.shard) : 1;
      EXPECT_EQ(report.degraded_blocks, bad) << byte;
      EXPECT_EQ(report.repaired_blocks, bad) << byte;
      EXPECT_EQ(pool.io->degraded_blocks(), bad);
      EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data);
      EXPECT_EQ(report.degraded_blocks, 0u) << "it was rewritten";
      EXPECT_EQ(pool.io->scrub(record).bad_blocks, 0u) << "whole, header too";
    }
  }
}

// m blocks of each row may be bad, in different shards from row to row.
TEST(Stripe, rows_are_rebuilt_one_by_one) {
  StripePool pool(5);
  const Bytes data = pattern(4 * 3 * kChecksumBlockBytes, 3);
  const StripeRecord record = pool.write(4, 1, data).value();
  const uint64_t file_bytes = kShardHeaderBytes + record.shape.shard.value;
  for (uint32_t row = 0; row < 3; ++row) {
    ASSERT_TRUE(pool.faults[row]->flip_bit({StripeId(1), ShardIndex(row)},
                                           kShardHeaderBytes + row * kChecksumBlockBytes + 17, file_bytes));
  }
  ReadReport report;
  EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data);
  EXPECT_EQ(report.degraded_blocks, 3u);
  EXPECT_EQ(report.repaired_blocks, 3u);
  EXPECT_EQ(pool.io->scrub(record).bad_blocks, 0u);
}

TEST(Stripe, a_small_read_of_a_bad_block_touches_that_block_only) {
  StripePool pool(3);
  const Bytes data = pattern(2 * 10 * kChecksumBlockBytes, 4);
  const StripeRecord record = pool.write(2, 1, data).value();
  pool.faults[1]->set_missing(true);
  ReadReport report;
  const uint64_t offset = record.shape.shard.value + 3 * kChecksumBlockBytes + 5;
  EXPECT_EQ(pool.read(record, offset, 10, &report).value(), part(data, offset, 10));
  EXPECT_EQ(report.degraded_blocks, 1u);
  EXPECT_EQ(report.repaired_blocks, 0u);
}

TEST(Stripe, more_than_m_losses_are_told_and_no_byte_is_given) {
  StripePool pool(6);
  const Bytes data = pattern(400'000, 5);
  const StripeRecord record = pool.write(4, 2, data).value();
  for (const size_t target : {0, 2, 5}) pool.faults[target]->set_missing(true);
  const auto lost = pool.read(record, 0, data.size());
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kIo);
  EXPECT_TRUE(lost.error().data_loss);
  for (const char* named : {"stripe 1", "container 5", "target 0", "target 2", "target 5", "3 of the 4"}) {
    EXPECT_THAT(lost.error().message, HasSubstr(named));
  }
  const Bytes good = pool.read(record, 150'000, 1000).value();
  EXPECT_EQ(good, part(data, 150'000, 1000)) << "shard 1 is still there";

  pool.faults[5]->set_missing(false);
  ASSERT_TRUE(
      pool.faults[1]->flip_bit({StripeId(1), ShardIndex(1)}, kShardHeaderBytes, kShardHeaderBytes + 1000));
  EXPECT_FALSE(pool.read(record, 0, data.size())) << "the flip cut the shard short";
}

TEST(Stripe, bad_checksums_beyond_the_code_are_corruption) {
  StripePool pool(3);
  const Bytes data = pattern(100'000, 6);
  const StripeRecord record = pool.write(2, 1, data).value();
  const uint64_t file_bytes = kShardHeaderBytes + record.shape.shard.value;
  for (const uint32_t shard : {0u, 2u}) {
    ASSERT_TRUE(
        pool.faults[shard]->flip_bit({StripeId(1), ShardIndex(shard)}, kShardHeaderBytes + 9, file_bytes));
  }
  const auto lost = pool.read(record, 0, 10);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(lost.error().data_loss);
  EXPECT_THAT(lost.error().message, HasSubstr("fails its checksum"));
}

TEST(Stripe, torn_and_lost_writes_are_found_and_put_right) {
  for (const uint64_t kept : {uint64_t{0}, uint64_t{100}, kShardHeaderBytes, kShardHeaderBytes + 30'000}) {
    StripePool pool(3);
    const Bytes data = pattern(100'000, 7);
    pool.faults[1]->tear_puts_at(kept);
    const StripeRecord record = pool.write(2, 1, data).value();
    pool.faults[1]->tear_puts_at(std::nullopt);
    ReadReport report;
    EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data) << kept;
    EXPECT_GT(report.degraded_blocks, 0u) << kept;
    EXPECT_EQ(report.repaired_blocks, report.degraded_blocks) << kept;
    EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data);
    EXPECT_EQ(report.degraded_blocks, 0u) << kept;
  }
}

TEST(Stripe, another_stripes_shard_in_its_place_is_not_believed) {
  StripePool pool(3);
  const Bytes data = pattern(100'000, 8);
  const StripeRecord record = pool.write(2, 1, data, 1).value();
  ASSERT_TRUE(pool.write(2, 1, pattern(100'000, 9), 2));
  Bytes file(kShardHeaderBytes + record.shape.shard.value);
  const std::span<std::byte> out(file);
  ASSERT_TRUE(pool.faults[0]->get({StripeId(2), ShardIndex(0)}, 0, std::span(&out, 1)));
  const std::span<const std::byte> in(file);
  ASSERT_TRUE(pool.faults[0]->put({StripeId(1), ShardIndex(0)}, std::span(&in, 1)));
  ReadReport report;
  EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data);
  EXPECT_EQ(report.repaired_blocks, 1u);
}

TEST(Stripe, up_to_m_failed_puts_give_a_degraded_stripe_that_reads_right_and_heals) {
  StripePool pool(6);
  const Bytes data = pattern(300'000, 10);
  pool.faults[1]->set_put_error(ErrorCode::kIo);
  pool.faults[4]->set_put_error(ErrorCode::kNoSpace);
  const StripeRecord record = pool.write(4, 2, data).value();
  EXPECT_EQ(record.targets[1], TargetId(1)) << "where it will be repaired";
  ReadReport report;
  EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data);
  EXPECT_GT(report.degraded_blocks, 0u);
  EXPECT_EQ(report.repaired_blocks, 0u) << "the target still fails";
  pool.faults[1]->set_put_error(std::nullopt);
  pool.faults[4]->set_put_error(std::nullopt);
  const StripeScrub scrub = pool.io->scrub(record);
  EXPECT_EQ(scrub.bad_blocks, 2 * block_count(record.shape.shard));
  EXPECT_EQ(scrub.repaired_blocks, scrub.bad_blocks);
  EXPECT_EQ(pool.io->scrub(record).bad_blocks, 0u);
}

TEST(Stripe, a_failed_put_goes_to_a_spare) {
  StripePool pool(5);
  const Bytes data = pattern(100'000, 11);
  pool.faults[1]->set_put_error(ErrorCode::kIo);
  pool.faults[3]->set_put_error(ErrorCode::kIo);
  const StripeRecord record = pool.write(2, 1, data).value();
  EXPECT_EQ(record.targets, (std::vector{TargetId(0), TargetId(4), TargetId(2)}));
  ReadReport report;
  EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data);
  EXPECT_EQ(report.degraded_blocks, 0u);
}

TEST(Stripe, more_than_m_failed_puts_are_an_error_and_leave_nothing) {
  StripePool pool(6);
  for (const size_t target : {0, 3, 5}) pool.faults[target]->set_put_error(ErrorCode::kNoSpace);
  const auto failed = pool.write(4, 2, pattern(300'000, 12));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNoSpace);
  EXPECT_THAT(failed.error().message, HasSubstr("3 failed and 2 may"));
  for (FaultTarget* target : pool.faults) EXPECT_TRUE(target->list()->empty());
}

TEST(Stripe, with_too_few_targets_parity_is_left_out_first) {
  StripePool pool(5);
  const Bytes data = pattern(300'000, 13);
  const StripeRecord record = pool.write(4, 2, data).value();
  EXPECT_EQ(record.targets[5], kNoTarget);
  ReadReport report;
  EXPECT_EQ(pool.read(record, 0, data.size(), &report).value(), data);
  EXPECT_EQ(report.degraded_blocks, 0u);
  StripePool small(3);
  EXPECT_EQ(small.write(4, 2, data).error().code, ErrorCode::kUnavailable);
}

TEST(Stripe, is_located_by_its_number_alone) {
  StripePool pool(6);
  const Bytes data = pattern(300'000, 14);
  const StripeRecord record = pool.write(4, 2, data).value();
  EXPECT_EQ(pool.io->locate(StripeId(1)).value(), record);
  pool.faults[2]->set_missing(true);
  const StripeRecord partial = pool.io->locate(StripeId(1)).value();
  EXPECT_EQ(partial.targets[2], kNoTarget);
  EXPECT_EQ(pool.read(partial, 0, data.size()).value(), data);
  EXPECT_EQ(pool.io->locate(StripeId(2)).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(pool.io->remove(record));
  EXPECT_EQ(pool.io->locate(StripeId(1)).error().code, ErrorCode::kNotFound);
}

TEST(Stripe, helping_threads_change_nothing) {
  StripePool pool(10, 3);
  const Bytes data = pattern(8 * 4 * kChecksumBlockBytes, 15);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint64_t thread = 1; thread <= 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < 5; ++i) {
        const StripeRecord record = pool.write(8, 2, data, thread * 100 + i).value();
        if (pool.read(record, 0, data.size()).value() != data) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace sluice::storage
