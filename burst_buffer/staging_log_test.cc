#include "burst_buffer/staging_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/rng.h"
#include "burst_buffer/hot_recovery.h"
#include "burst_buffer/part_table.h"
#include "burst_buffer/sim_domain.h"

namespace sluice::burst_buffer {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kPoolBytes = 256 * 1024;

LogRecord begin_record(uint64_t txn) {
  return BeginRecord{TxnId(txn), ContainerId(1), SessionId(2), 0, {}, Length(0)};
}

std::vector<LogRecord> one_of_each() {
  const Extent extent{Offset(4096), Offset(4106)};
  return {
      BeginRecord{TxnId(1), ContainerId(2), SessionId(3), 4, Length(5), Length(6)},
      WriteRecord{TxnId(1), ContainerId(2), Epoch(0), 9, {512, Length(10)}, {0xDEADBEEF}, {{extent, 0}}},
      TruncateRecord{TxnId(1), 10, Length(77)},
      CommitRecord{TxnId(1), ContainerId(2), Epoch(3), Length(99), false},
      CommitRecord{TxnId(8), ContainerId(2), Epoch(3), Length(99), true},
      AbortRecord{TxnId(6)},
      PlacedRecord{ContainerId(2), TxnId(1), {{extent, 9, StripeId(11), 12}}},
      PlacedRecord{ContainerId(2), std::nullopt, {}},
      DrainedRecord{ContainerId(2), {Epoch(3), Length(99)}},
      ForgetRecord{ContainerId(2)},
      ContainerRecord{ContainerId(2),
                      {Epoch(1), Length(7)},
                      Epoch(3),
                      Length(8),
                      {{Epoch(2), Length(4)}, {Epoch(3), Length(5)}}},
      LostRecord{40, 50},
      StripeRecord{ContainerId(2), std::nullopt, Epoch(3), {{extent, 9, StripeId(11), 12}}},
      TableRecord{ContainerId(2), TxnId(1), Epoch(0), StripeId(11), {512, Length(9)}, 5, 70, false, {}, {}},
      TableRecord{
          ContainerId(2), std::nullopt, Epoch(3), StripeId(11), {512, Length(9)}, 5, 70, true, Length(6), {}},
  };
}

std::vector<std::byte> encoded(const LogRecord& record) {
  std::vector<std::byte> bytes;
  encode_record(record, {7, 100, 99}, bytes);
  return bytes;
}

LogContents contents_of(SimDomain& domain) {
  auto read = read_staging_log(domain.memory());
  EXPECT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read && *read);
  return read && *read ? **read : LogContents{};
}

TEST(LogRecord, every_kind_is_read_back_as_it_was_written) {
  for (const LogRecord& record : one_of_each()) {
    const auto bytes = encoded(record);
    EXPECT_EQ(bytes.size(), encoded_bytes(record));
    const auto read = decode_record(bytes);
    ASSERT_TRUE(read) << describe(record) << ": " << read.error().message;
    EXPECT_EQ(describe(read->record), describe(record));
    EXPECT_EQ(read->record.index(), record.index());
    EXPECT_EQ(encoded(read->record), bytes);
    EXPECT_EQ(read->stamp.generation, 7u);
    EXPECT_EQ(read->stamp.sequence, 100u);
    EXPECT_EQ(read->stamp.durable, 99u);
    EXPECT_EQ(read->bytes, bytes.size());
  }
}

TEST(LogRecord, any_changed_bit_and_any_missing_byte_is_noticed) {
  for (const LogRecord& record : one_of_each()) {
    auto bytes = encoded(record);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= std::byte(1 << bit % 8);
      EXPECT_FALSE(decode_record(bytes)) << describe(record) << " bit " << bit;
      bytes[bit / 8] ^= std::byte(1 << bit % 8);
    }
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decode_record(std::span(bytes).first(length)));
    }
  }
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

TEST(StagingLog, the_examples_of_the_format_are_what_is_written) {
  SimDomain domain(kMinPoolBytes);
  ASSERT_TRUE(StagingLog::format(domain));
  EXPECT_EQ(hex(domain.memory().first(80)),
            "534c554345484f540200000000100000"
            "00000200000000000040000000000000"
            "00900000000000000070010000000000"
            "0002000000000000"
            "0000000078b66f51"
            "02000000466800f7010000007fe12295");
  const std::string text = "sluice-log";
  std::vector<std::byte> record;
  encode_record(WriteRecord{TxnId(5),
                            ContainerId(7),
                            Epoch(0),
                            12,
                            {512, Length(10)},
                            block_checksums(std::as_bytes(std::span(text))),
                            {{{Offset(4096), Offset(4106)}, 0}}},
                {3, 12, 11}, record);
  EXPECT_EQ(hex(record),
            "8c2ee2dd780000000200ce5103000000"
            "0c000000000000000b00000000000000"
            "05000000000000000700000000000000"
            "00000000000000000c00000000000000"
            "00020000000000000a00000000000000"
            "0100000001000000b3cdaa4c00000000"
            "00100000000000000a10000000000000"
            "0000000000000000");
}

TEST(StagingLog, what_was_appended_is_read_in_order) {
  SimDomain domain(kPoolBytes);
  auto log = StagingLog::format(domain);
  ASSERT_TRUE(log);
  for (uint64_t txn = 1; txn <= 5; ++txn) log->append(begin_record(txn));
  const LogContents contents = contents_of(domain);
  ASSERT_EQ(contents.records.size(), 5u);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(contents.records[i].stamp.sequence, i + 1);
    EXPECT_EQ(std::get<BeginRecord>(contents.records[i].record).txn, TxnId(i + 1));
  }
  EXPECT_EQ(contents.next_sequence, 6u);
}

TEST(StagingLog, a_fresh_pool_and_half_a_formatting_are_no_log) {
  SimDomain domain(kPoolBytes);
  EXPECT_FALSE(*read_staging_log(domain.memory()));
  // A power loss at any flush of the formatting.
  SimDomain forming(kPoolBytes);
  int seen = 0;
  forming.on_persist([&] {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto crashed = forming.after_power_loss(seed);
      const auto read = read_staging_log(crashed->memory());
      ASSERT_TRUE(read) << read.error().message;
      if (!*read) {
        ASSERT_TRUE(StagingLog::format(*crashed));
      }
      ASSERT_TRUE(contents_of(*crashed).records.empty());
      ++seen;
    }
  });
  ASSERT_TRUE(StagingLog::format(forming));
  EXPECT_GT(seen, 100);
}

TEST(StagingLog, a_torn_record_ends_the_log_and_the_next_checkpoint_continues_it) {
  SimDomain domain(kPoolBytes);
  auto log = StagingLog::format(domain);
  ASSERT_TRUE(log);
  log->append(begin_record(1));
  ASSERT_TRUE(log->persist());
  log->append(begin_record(2));
  log->append(begin_record(3));
  bool torn = false;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    const auto crashed = domain.after_power_loss(seed);
    const LogContents contents = contents_of(*crashed);
    ASSERT_GE(contents.records.size(), 1u);
    torn = torn || contents.records.size() < 3;
    StagingLog again(*crashed, contents);
    std::vector<LogRecord> live;
    for (const auto& record : contents.records) live.push_back(record.record);
    ASSERT_TRUE(again.checkpoint(live));
    again.append(begin_record(9));
    const LogContents after = contents_of(*crashed);
    ASSERT_EQ(after.records.size(), live.size() + 1);
    EXPECT_EQ(std::get<BeginRecord>(after.records.back().record).txn, TxnId(9));
  }
  EXPECT_TRUE(torn);
}

TEST(StagingLog, damage_behind_what_was_durable_is_an_error_and_no_short_log) {
  SimDomain domain(kPoolBytes);
  auto log = StagingLog::format(domain);
  ASSERT_TRUE(log);
  const uint64_t first_at = LogLayout::of(kPoolBytes)->half_offset(0) + log->used_bytes();
  log->append(begin_record(1));
  log->append(begin_record(2));
  ASSERT_TRUE(log->persist());
  log->append(begin_record(3));  // says that 1 and 2 were durable
  domain.memory()[first_at + 40] ^= std::byte{1};
  const auto read = read_staging_log(domain.memory());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(read.error().data_loss);
  EXPECT_THAT(read.error().message, HasSubstr("was durable and is damaged"));
}

TEST(StagingLog, damage_of_heads_and_checkpoints_is_an_error) {
  SimDomain domain(kPoolBytes);
  auto log = StagingLog::format(domain);
  ASSERT_TRUE(log);
  const std::vector<LogRecord> live{begin_record(1), begin_record(2)};
  ASSERT_TRUE(log->checkpoint(live));
  const uint64_t half = LogLayout::of(kPoolBytes)->half_offset(contents_of(domain).half);
  for (const size_t at :
       {size_t{0}, size_t{9}, size_t{20}, size_t{60}, size_t{64}, size_t{70}, size_t{half + 3},
        size_t{half + 30}, size_t{half + 64 + 5}, size_t{half + log->used_bytes() - 1}}) {
    domain.memory()[at] ^= std::byte{4};
    const auto read = read_staging_log(domain.memory());
    EXPECT_FALSE(read) << at;
    EXPECT_THAT(dump_staging_log(domain.memory()), StartsWith("error: "));
    domain.memory()[at] ^= std::byte{4};
  }
  // A head of zeros does not make a pool fresh whose halves are not.
  std::memset(domain.memory().data(), 0, 4096);
  EXPECT_FALSE(read_staging_log(domain.memory()));
}

TEST(StagingLog, the_example_of_a_table_in_the_format_is_what_is_written) {
  std::vector<StripePart> parts;
  for (uint64_t i = 0; i < 300; ++i)
    parts.push_back({Extent::at(Offset(4096 + i * 8), Length(2)), 12, StripeId(42), i * 2});
  parts.push_back({Extent::at(Offset(4000), Length(5)), 11, StripeId(42), 600});
  EXPECT_EQ(hex(encode_part_table(parts)), "804002ac02061800f32605010100");
}

// A crash between the two words that differ leaves the one of the other version.
TEST(StagingLog, a_pool_of_version_1_is_read_and_becomes_one_of_this_version) {
  SimDomain domain(kPoolBytes);
  auto log = StagingLog::format(domain);
  ASSERT_TRUE(log);
  const std::vector<std::byte> head(domain.memory().begin(), domain.memory().begin() + 64);
  log->append(begin_record(5));
  for (const bool old_version : {true, false}) {
    for (const bool old_checksum : {true, false}) {
      uint32_t version = 1;
      std::memcpy(domain.memory().data() + 8, &version, 4);
      const uint32_t sum = crc32c(domain.memory().first(60));
      std::memcpy(domain.memory().data(), head.data(), 64);
      if (old_version) std::memcpy(domain.memory().data() + 8, &version, 4);
      if (old_checksum) std::memcpy(domain.memory().data() + 60, &sum, 4);
      const LogContents contents = contents_of(domain);
      ASSERT_EQ(contents.records.size(), 1u);
      StagingLog next(domain, contents);
      ASSERT_TRUE(next.checkpoint(std::vector<LogRecord>{begin_record(5)}));
      EXPECT_TRUE(std::ranges::equal(domain.memory().first(64), head));
    }
  }
}

TEST(StagingLog, another_version_is_refused_in_words) {
  SimDomain domain(kPoolBytes);
  ASSERT_TRUE(StagingLog::format(domain));
  domain.memory()[8] = std::byte{9};
  const auto read = read_staging_log(domain.memory());
  ASSERT_FALSE(read);  // its own checksum does not match: damaged, not another version
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
}

TEST(StagingLog, whatever_is_admitted_fits_in_a_checkpoint) {
  SimDomain domain(kPoolBytes);
  auto log = StagingLog::format(domain);
  ASSERT_TRUE(log);
  HotState state(log->layout().data_bytes);
  const auto add = [&](const LogRecord& record, StagingLog::Room room) {
    if (!log->admits(encoded_bytes(record), room)) return false;
    log->append(record);
    EXPECT_TRUE(state.apply(record));
    return true;
  };
  ASSERT_TRUE(add(ContainerRecord{ContainerId(1), {}, Epoch(0), Length(0), {}}, StagingLog::Room::kGrowing));
  ASSERT_TRUE(add(begin_record(1), StagingLog::Room::kGrowing));
  // One large write, and lists of single bytes that cut it into as many parts as they can.
  const uint64_t whole = 100'000;
  WriteRecord large{TxnId(1),
                    ContainerId(1),
                    Epoch(0),
                    log->next_sequence(),
                    {0, Length(whole)},
                    {1, 2},
                    {{{Offset(0), Offset(whole)}, 0}}};
  ASSERT_TRUE(add(large, StagingLog::Room::kGrowing));
  for (uint64_t at = 1;; at += 200) {
    WriteRecord list{
        TxnId(1), ContainerId(1), Epoch(0), log->next_sequence(), {whole / 512 * 512 + 512, Length(100)}, {1},
        {}};
    for (uint64_t i = 0; i < 100; ++i)
      list.parts.push_back({{Offset(at + 2 * i), Offset(at + 2 * i + 1)}, i});
    if (!add(list, StagingLog::Room::kGrowing)) break;
  }
  EXPECT_GT(log->used_bytes(), log->capacity_bytes() / 4);
  const auto live = state.live_records();
  EXPECT_TRUE(log->fits(live));
  ASSERT_TRUE(log->checkpoint(live));
  EXPECT_EQ(contents_of(domain).records.size(), live.size());
}

TEST(StagingLog, the_dump_has_a_line_for_each_record) {
  SimDomain domain(kPoolBytes);
  EXPECT_EQ(dump_staging_log(domain.memory()), "the pool is not formatted\n");
  auto log = StagingLog::format(domain);
  ASSERT_TRUE(log);
  for (const LogRecord& record : one_of_each()) {
    if (!std::holds_alternative<TableRecord>(record)) log->append(record);
  }
  const auto table = encode_part_table(std::vector<StripePart>{{{Offset(5), Offset(6)}, 9, StripeId(11), 0}});
  std::ranges::copy(table, domain.memory().begin() + static_cast<ptrdiff_t>(log->layout().data_offset + 512));
  log->append(TableRecord{ContainerId(2),
                          TxnId(1),
                          Epoch(0),
                          StripeId(11),
                          {512, Length(table.size())},
                          crc32c(table),
                          1,
                          false,
                          {},
                          {}});
  const std::string text = dump_staging_log(domain.memory());
  for (const char* line :
       {"begin txn 1 container 2 session 3", "slab 512+10 [4096, 4106) at +0 crc deadbeef",
        "truncate txn 1 record 10 size 77", "commit txn 1 container 2 epoch 3 size 99", "abort txn 6",
        "in stripe 11+12", "placed table container 2 txn 1 epoch 0 stripe 11 parts 1 in slab 512+5",
        "drained container 2 epoch 3", "forget container 2", "cut 5 at epoch 3"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(LogLayout, halves_and_data_lie_behind_each_other_and_inside) {
  for (uint64_t bytes = kMinPoolBytes; bytes < uint64_t{1} << 36; bytes = bytes * 3 / 2 + 4097) {
    const auto layout = LogLayout::of(bytes);
    ASSERT_TRUE(layout);
    EXPECT_GE(layout->half_offset(0), 80u);
    EXPECT_EQ(layout->half_offset(1), layout->half_offset(0) + layout->half_bytes);
    EXPECT_EQ(layout->data_offset, layout->half_offset(1) + layout->half_bytes);
    EXPECT_LE(layout->data_offset + layout->data_bytes, bytes);
    EXPECT_GT(layout->data_bytes, bytes / 2);
  }
  EXPECT_FALSE(LogLayout::of(kMinPoolBytes - 1));
}

// Recovery of hostile bytes: from a pool that is good but for some bytes, checksums put right or not, it ends
// in a state or an error.
RC_GTEST_PROP(StagingLogProperty, hostile_bytes_end_in_an_error_or_a_state, (uint64_t seed)) {
  SeededRng rng(seed);
  SimDomain domain(kMinPoolBytes);
  auto log = StagingLog::format(domain);
  RC_ASSERT(log.has_value());
  std::vector<LogRecord> records = one_of_each();
  for (uint64_t i = 0; i < 20; ++i) {
    const LogRecord& record = records[rng.below(records.size())];
    if (log->admits(encoded_bytes(record), StagingLog::Room::kEnding)) log->append(record);
  }
  for (uint64_t i = rng.below(4); i > 0; --i) {
    domain.memory()[rng.below(log->layout().data_offset)] = static_cast<std::byte>(rng.next());
  }
  const auto checked = check_pool(domain.memory());
  if (!checked) RC_ASSERT(!checked.error().message.empty());
}

}  // namespace
}  // namespace sluice::burst_buffer
