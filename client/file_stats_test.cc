#include "client/file_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/os.h"

namespace sluice::client {
namespace {

using testing::HasSubstr;
using testing::Not;

class FileStatsTest : public testing::Test {
 protected:
  FileStatsTest() {
    counters_.writes.add(3);
    counters_.written_slab.add(4096);
    counters_.written_inline.add(100);
    counters_.reads.add(2);
    counters_.read_told.add(50);
    counters_.read_remote.add(7000);
    counters_.messages.add(9);
    counters_.for_answers.count.add(5);
    counters_.for_answers.us.add(321);
    counters_.for_room.count.add();
    counters_.for_room.us.add(17);
    counters_.direct.add(4);
    counters_.two_phase.add(6);
    counters_.exchanged_bytes.add(8888);
  }
  FileStats stats(bool locks = true) const {
    FileStats stats{
        "/ckpt", settle_lock_mode("lockahead", 0, AccessMode::kReadWrite, 0).value(), counters_, {}};
    if (!locks) return stats;
    stats.locks.emplace();
    stats.locks->counts.acquires = 100;
    stats.locks->counts.grants = 98;
    stats.locks->counts.ahead_extents = 97;
    stats.locks->counts.ahead_dropped = 3;
    stats.locks->counts.revokes = 2;
    stats.locks->waited = 4;
    stats.locks->wait_us = 1234;
    return stats;
  }
  FileCounters counters_;
};

TEST_F(FileStatsTest, the_line_and_the_json_say_the_same) {
  const std::string line = stats_line(stats());
  for (const char* part :
       {"/ckpt", "wrote 4196 bytes in 3 accesses (1 slab, 1 inline)",
        "read 7050 bytes in 2 accesses (1 told before, 1 remote)",
        "planned 4 direct, 6 two-phase, 8888 bytes to other ranks", "9 messages",
        "waited 5 times 321 us for answers, 1 times 17 us for room", "lockahead", "100 accesses under locks",
        "4 waited 1234 us", "98 locks granted", "2 revoked", "97 asked ahead", "3 dropped"})
    EXPECT_THAT(line, HasSubstr(part));
  const auto json = nlohmann::json::parse(stats_json(stats(), 7));
  EXPECT_EQ(json["file"], "/ckpt");
  EXPECT_EQ(json["pid"], 7);
  EXPECT_EQ(json["written"]["accesses"], 3);
  EXPECT_EQ(json["written"]["bytes"], 4196);
  EXPECT_EQ(json["written"]["slab"], (nlohmann::json{{"requests", 1}, {"bytes", 4096}}));
  EXPECT_EQ(json["written"]["remote"]["requests"], 0);
  EXPECT_EQ(json["read"]["told"]["bytes"], 50);
  EXPECT_EQ(json["planned"]["two_phase"], 6);
  EXPECT_EQ(json["planned"]["exchanged_bytes"], 8888);
  EXPECT_EQ(json["waited"]["answers"], (nlohmann::json{{"count", 5}, {"us", 321}}));
  EXPECT_EQ(json["waited"]["room"]["us"], 17);
  EXPECT_EQ(json["messages"], 9);
  EXPECT_EQ(json["locks"]["wait_us"], 1234);
  EXPECT_EQ(json["locks"]["dropped_ahead"], 3);
}

TEST_F(FileStatsTest, locks_are_left_out_where_another_handle_still_has_them) {
  EXPECT_THAT(stats_line(stats(false)), Not(HasSubstr("under locks")));
  EXPECT_FALSE(nlohmann::json::parse(stats_json(stats(false), 7)).contains("locks"));
}

TEST_F(FileStatsTest, a_wait_is_counted_with_its_time) {
  WaitTally waits;
  {
    const WaitTimer timer(waits);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) {
    }
  }
  EXPECT_EQ(waits.count.get(), 1u);
  EXPECT_GE(waits.us.get(), 1900u);
}

TEST_F(FileStatsTest, a_file_gets_a_line_for_each_close_and_one_that_cannot_be_written_is_named) {
  const auto directory = TemporaryDirectory::create("file_stats").value();
  const std::string path = (directory.path() / "stats").string();
  ASSERT_TRUE(tell_stats(path, stats()));
  ASSERT_TRUE(tell_stats(path, stats()));
  std::ifstream in(path);
  std::string text;
  size_t lines = 0;
  while (std::getline(in, text)) lines += nlohmann::json::parse(text)["messages"] == 9 ? 1 : 0;
  EXPECT_EQ(lines, 2u);
  EXPECT_TRUE(tell_stats("", stats()));
  EXPECT_THAT(tell_stats((directory.path() / "no" / "where").string(), stats()).error().message,
              HasSubstr("SLUICE_STATS"));
}

}  // namespace
}  // namespace sluice::client
