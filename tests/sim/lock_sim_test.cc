#include <gtest/gtest.h>

#include "tests/sim/lock_world.h"

namespace sluice::sim {
namespace {

TEST(LockProtocol, no_schedule_breaks_a_promise) {
  Met met;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const std::string breach = run_schedule(schedule_of(seed), met);
    ASSERT_EQ(breach, "") << "replay with lock_sim --seed " << seed;
  }
  // What a set of schedules must have met, or it shows less than it says.
  EXPECT_GT(met.uses, 10'000u);
  EXPECT_GT(met.applied, 5'000u);
  EXPECT_GT(met.reads, 1'000u);
  EXPECT_GT(met.waits, 1'000u);
  EXPECT_GT(met.revokes, 1'000u);
  EXPECT_GT(met.dropped, 10u);
  EXPECT_GT(met.syncs, 100u);
  EXPECT_GT(met.deaths, 20u);
  EXPECT_GT(met.evictions, 20u);
  EXPECT_GT(met.restarts, 20u);
  EXPECT_GT(met.partitions, 50u);
  EXPECT_GT(met.reconnects, 50u);
  EXPECT_GT(met.replayed, 100u);
}

// Requests before the first welcome, answers lost with a server, hellos that come late, a client that ends
// while it reads, one that reads under a lock it is giving back when it learns that its session is gone.
TEST(LockProtocol, schedules_that_once_failed_do_not_fail_again) {
  Met met;
  for (const uint64_t seed : {1ul, 23ul, 672ul, 1700ul, 13221ul, 53033848841333ul})
    EXPECT_EQ(run_schedule(schedule_of(seed), met), "") << seed;
}

TEST(LockProtocol, a_thousand_clients_keep_to_it_too) {
  Met met;
  Schedule schedule;
  schedule.seed = 5;
  schedule.clients = 1'000;
  schedule.busy_ms = 400;
  EXPECT_EQ(run_schedule(schedule, met), "");
  EXPECT_GT(met.uses, 1'000u);
}

TEST(LockProtocol, the_same_seed_is_the_same_schedule) {
  Met one;
  Met two;
  (void)run_schedule(schedule_of(11), one);
  (void)run_schedule(schedule_of(11), two);
  EXPECT_EQ(one.uses, two.uses);
  EXPECT_EQ(one.applied, two.applied);
  EXPECT_EQ(one.revokes, two.revokes);
}

}  // namespace
}  // namespace sluice::sim
