#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/lock_modes/options.h"
#include "bench/lock_modes/plot.h"
#include "bench/lock_modes/report.h"
#include "bench/lock_modes/simulation.h"

namespace sluice::bench::lock_modes {
namespace {

using testing::HasSubstr;

Load small_load(uint64_t delay_us) {
  return {.aggregators = 4, .servers = 2, .transfer_bytes = 64 << 10, .writes = 64, .delay_us = delay_us};
}

TEST(LockModes, every_mode_writes_all_bytes_and_none_costs_two_messages_a_write) {
  for (const Scheme scheme : kSchemes) {
    for (const bool through : {false, true}) {
      SCOPED_TRACE(to_string(scheme));
      Model model;
      model.write_through = through;
      const Outcome outcome = simulate(model, small_load(20), scheme);
      EXPECT_EQ(outcome.writes, 4u * 64u);
      EXPECT_EQ(outcome.bytes, 4u * 64u * (64 << 10));
      EXPECT_GT(outcome.seconds, 0);
      EXPECT_GE(outcome.messages, 2 * outcome.writes);
      if (scheme == Scheme::kNone) {
        EXPECT_EQ(outcome.messages, 2 * outcome.writes);
      }
    }
  }
}

TEST(LockModes, the_same_run_has_the_same_outcome) {
  const Outcome a = simulate({}, small_load(50), Scheme::kStandard);
  const Outcome b = simulate({}, small_load(50), Scheme::kStandard);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.messages, b.messages);
}

// With one aggregator, one server and write-through the time can be told by hand: a round trip, four times
// the processor of a message, and the slower of link and intake, for each write.
TEST(LockModes, a_write_takes_what_the_model_says) {
  Model model;
  model.write_through = true;
  model.message_us = 3;
  model.server_bytes_per_s = 1e9;
  model.link_bytes_per_s = 2e9;
  const Load load{.aggregators = 1, .servers = 1, .transfer_bytes = 1 << 20, .writes = 10, .delay_us = 100};
  const Outcome outcome = simulate(model, load, Scheme::kNone);
  const double one_us = 2 * 100 + 4 * 3 + (1 << 20) / 1e9 * 1e6;
  EXPECT_NEAR(outcome.seconds * 1e6, 10 * one_us, 10 * 2);
}

TEST(LockModes, lockahead_needs_fewer_lock_messages_and_waits_than_standard) {
  const Outcome ahead = simulate({}, small_load(100), Scheme::kLockahead);
  const Outcome standard = simulate({}, small_load(100), Scheme::kStandard);
  EXPECT_LT(ahead.lock_messages, standard.lock_messages / 2);
  EXPECT_LT(ahead.waits, standard.waits / 2);
  EXPECT_LT(ahead.seconds, standard.seconds);
}

TEST(LockModesOptions, what_makes_no_sense_is_refused) {
  const auto code = [](std::vector<const char*> words) {
    words.insert(words.begin(), "lock_modes");
    return parse_options(static_cast<int>(words.size()), words.data()).exit_code;
  };
  EXPECT_EQ(code({}), std::nullopt);
  EXPECT_EQ(code({"--sizes", "64q"}), 2);
  EXPECT_EQ(code({"--sizes", ""}), 2);
  EXPECT_EQ(code({"--delays", "1x"}), 2);
  EXPECT_EQ(code({"--modes", "fast"}), 2);
  EXPECT_EQ(code({"--aggregators", "100001"}), 2);
  EXPECT_EQ(code({"--check", "--aggregators", "9"}), 2);
  EXPECT_EQ(code({"--check", "--modes", "standard"}), 2);
  EXPECT_EQ(parse_size("64k"), uint64_t{64} << 10);
  EXPECT_EQ(parse_size("3"), 3u);
}

TEST(LockModesReport, table_json_and_plot_have_every_mode_and_floors_are_judged_by_their_ratio) {
  Options options;
  options.delays_us = {200};
  options.sizes_bytes = {64 << 10, 1 << 20};
  std::vector<Row> rows;
  for (const uint64_t size : options.sizes_bytes) {
    for (const Scheme scheme : kSchemes) {
      Outcome outcome;
      outcome.bytes = scheme == Scheme::kStandard ? 250 : 1000;
      outcome.seconds = 1;
      outcome.writes = 10;
      rows.push_back({200, size, scheme, outcome});
    }
  }
  for (const Scheme scheme : kSchemes) {
    EXPECT_THAT(table_text(rows), HasSubstr(std::string(to_string(scheme))));
    EXPECT_THAT(svg_text(options, rows), HasSubstr(std::string(to_string(scheme))));
  }
  const auto json = nlohmann::json::parse(json_text(options, rows));
  EXPECT_EQ(json["rows"].size(), rows.size());
  EXPECT_EQ(json["rows"][0]["of_file_per_process"], 0.25);
  auto floors = judge(rows);
  ASSERT_EQ(floors.size(), 4u);
  for (const Floor& floor : floors) EXPECT_TRUE(floor.held());
  for (Row& row : rows) row.outcome.seconds = row.scheme == Scheme::kLockahead ? 1.2 : 1;
  floors = judge(rows);
  EXPECT_TRUE(floors[0].held());
  EXPECT_FALSE(floors[2].held());
  rows.clear();
  for (const Floor& floor : judge(rows)) EXPECT_FALSE(floor.held());
}

}  // namespace
}  // namespace sluice::bench::lock_modes
