#include "client/lock_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/os.h"

namespace sluice::client {
namespace {

using testing::HasSubstr;

LockStats some_stats() {
  LockStats stats;
  stats.path = "/ckpt";
  stats.settings = settle_lock_mode("lockahead", 0, AccessMode::kReadWrite, 0).value();
  stats.counts.acquires = 100;
  stats.counts.grants = 98;
  stats.counts.ahead_extents = 97;
  stats.counts.ahead_dropped = 3;
  stats.counts.revokes = 2;
  stats.waited = 4;
  stats.wait_us = 1234;
  return stats;
}

TEST(LockStats, the_line_and_the_json_say_the_same) {
  const std::string line = stats_line(some_stats());
  for (const char* part : {"/ckpt", "lockahead", "100 accesses", "4 waited 1234 us", "98 locks granted",
                           "2 revoked", "97 asked ahead", "3 dropped"})
    EXPECT_THAT(line, HasSubstr(part));
  const auto json = nlohmann::json::parse(stats_json(some_stats(), 7));
  EXPECT_EQ(json["file"], "/ckpt");
  EXPECT_EQ(json["pid"], 7);
  EXPECT_EQ(json["wait_us"], 1234);
  EXPECT_EQ(json["dropped_ahead"], 3);
}

TEST(LockStats, a_file_gets_a_line_for_each_close_and_one_that_cannot_be_written_is_named) {
  const auto directory = TemporaryDirectory::create("lock_stats").value();
  const std::string path = (directory.path() / "stats").string();
  ASSERT_TRUE(tell_stats(path, some_stats()));
  ASSERT_TRUE(tell_stats(path, some_stats()));
  std::ifstream in(path);
  std::string text;
  size_t lines = 0;
  while (std::getline(in, text)) lines += nlohmann::json::parse(text)["accesses"] == 100 ? 1 : 0;
  EXPECT_EQ(lines, 2u);
  EXPECT_TRUE(tell_stats("", some_stats()));
  EXPECT_THAT(tell_stats((directory.path() / "no" / "where").string(), some_stats()).error().message,
              HasSubstr("SLUICE_STATS"));
}

}  // namespace
}  // namespace sluice::client
