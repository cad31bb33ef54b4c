#include "server/status.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace sluice::server {
namespace {

using testing::HasSubstr;

StatusSnapshot sample() {
  StatusSnapshot snapshot;
  snapshot.version = "0.1.0";
  snapshot.pool = "/p";
  snapshot.object_class = "EC_2P1";
  snapshot.address = "tcp://127.0.0.1:4000";
  snapshot.pid = 4711;
  snapshot.uptime_s = 12;
  snapshot.targets = {{TargetId(0), "/p/targets/t0", "up", 10, 20}, {TargetId(1), "/p/t\"1", "up", 30, 40}};
  snapshot.hot_medium = "disk";
  snapshot.hot_survives = "power loss";
  snapshot.hot = {100, 50, 30, 25};
  snapshot.files = 3;
  snapshot.drain = {"idle", 0, 77, {}};
  snapshot.counters.bytes_written = 5;
  return snapshot;
}

TEST(Status, TheJsonHasTheNamesThatScriptsUse) {
  const auto status = nlohmann::json::parse(status_json(sample()));
  EXPECT_EQ(status["pool"], "/p");
  EXPECT_EQ(status["class"], "EC_2P1");
  EXPECT_EQ(status["state"], "ok");
  ASSERT_EQ(status["servers"].size(), 1u);
  EXPECT_EQ(status["servers"][0]["id"], 0);
  EXPECT_EQ(status["servers"][0]["address"], "tcp://127.0.0.1:4000");
  EXPECT_EQ(status["servers"][0]["pid"], 4711);
  EXPECT_EQ(status["servers"][0]["state"], "up");
  ASSERT_EQ(status["targets"].size(), 2u);
  EXPECT_EQ(status["targets"][1]["id"], 1);
  EXPECT_EQ(status["targets"][1]["bytes_used"], 30);
  EXPECT_EQ(status["targets"][1]["bytes_free"], 40);
  EXPECT_EQ(status["hot"]["medium"], "disk");
  EXPECT_EQ(status["hot"]["survives"], "power loss");
  EXPECT_EQ(status["hot"]["bytes_total"], 100);
  EXPECT_EQ(status["hot"]["bytes_used"], 50);
  EXPECT_EQ(status["hot"]["bytes_clean"], 30);
  EXPECT_EQ(status["hot"]["bytes_undrained"], 25);
  EXPECT_EQ(status["files"], 3);
  EXPECT_EQ(status["drain"]["state"], "idle");
  EXPECT_EQ(status["drain"]["bytes_left"], 0);
}

TEST(Status, APathThatIsNotUtf8StillMakesJson) {
  auto snapshot = sample();
  snapshot.pool = "/p\xff";
  EXPECT_TRUE(nlohmann::json::accept(status_json(snapshot)));
}

TEST(Status, TheLocksOfEachFileAreCounted) {
  auto snapshot = sample();
  engine::LockCounters locks;
  locks.path = "/a";
  locks.grants = 7;
  locks.ahead_dropped = 2;
  locks.wait_ms = 1500;
  snapshot.counters.locks.push_back(locks);
  const auto told = nlohmann::json::parse(status_json(snapshot))["locks"];
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0]["file"], "/a");
  EXPECT_EQ(told[0]["grants"], 7);
  EXPECT_EQ(told[0]["dropped_ahead"], 2);
  EXPECT_EQ(told[0]["wait_s"], 1.5);
}

TEST(Status, ShardsToBePutBackAreDegraded) {
  auto snapshot = sample();
  snapshot.missing_shards = 3;
  EXPECT_EQ(service_state(snapshot), "degraded: 3 shards are to be put back on their targets");
  EXPECT_EQ(nlohmann::json::parse(status_json(snapshot))["missing_shards"], 3);
  EXPECT_THAT(metrics_text(snapshot), HasSubstr("sluice_missing_shards 3\n"));
}

TEST(Status, ShardsBeyondRebuildingAreToldApart) {
  auto snapshot = sample();
  snapshot.missing_shards = 3;
  snapshot.lost_shards = 2;
  EXPECT_THAT(service_state(snapshot), HasSubstr("1 shards are to be put back"));
  EXPECT_THAT(service_state(snapshot), HasSubstr("2 shards cannot be rebuilt"));
  EXPECT_EQ(nlohmann::json::parse(status_json(snapshot))["lost_shards"], 2);
}

TEST(Status, MoreMissingTargetsThanTheClassBearsIsSaid) {
  auto snapshot = sample();
  snapshot.targets.push_back({TargetId(2), "/p/t2", "missing", 0, 0});
  EXPECT_THAT(service_state(snapshot), testing::Not(HasSubstr("cannot be read")));
  snapshot.targets[0].state = "missing";
  EXPECT_THAT(service_state(snapshot), HasSubstr("class EC_2P1 cannot be read before 1 of them are back"));
}

TEST(Status, AMissingTargetOrABlockedDrainIsDegraded) {
  auto snapshot = sample();
  snapshot.targets[1].state = "missing";
  snapshot.drain.state = "blocked: no target is left";
  EXPECT_THAT(service_state(snapshot), HasSubstr("degraded: target 1 (/p/t\"1) is missing"));
  snapshot.targets[1].why = "target 1 cannot be used: it is target 2";
  EXPECT_THAT(service_state(snapshot), HasSubstr("degraded: target 1 cannot be used: it is target 2"));
  EXPECT_THAT(service_state(snapshot), HasSubstr("blocked: no target is left"));
  EXPECT_THAT(metrics_text(snapshot), HasSubstr("\nsluice_degraded 1\n"));
}

TEST(Status, EveryMetricHasATypeAndLabelsAreEscaped) {
  const std::string text = metrics_text(sample());
  EXPECT_THAT(text, HasSubstr("sluice_written_bytes_total 5\n"));
  EXPECT_THAT(text, HasSubstr("sluice_target_up{target=\"1\",path=\"/p/t\\\"1\"} 1\n"));
  std::istringstream lines(text);
  std::string line, type;
  while (std::getline(lines, line)) {
    ASSERT_FALSE(line.empty());
    if (line.starts_with("# TYPE ")) type = line.substr(7, line.find(' ', 7) - 7);
    if (line[0] != '#') {
      EXPECT_EQ(line.substr(0, line.find_first_of(" {")), type) << line;
    }
  }
}

}  // namespace
}  // namespace sluice::server
