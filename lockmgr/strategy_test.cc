#include "lockmgr/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockmgr/lock_net.h"

namespace sluice::lockmgr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ContainerId kFile(1);
constexpr Extent at(uint64_t begin, uint64_t bytes) {
  return {Offset(begin), Offset(begin + bytes)};
}
LockPlan write(LockStrategy& strategy, uint64_t begin, uint64_t bytes = 10) {
  return strategy.plan(at(begin, bytes), LockMode::kPw, false);
}

TEST(LockaheadStrategy, every_lock_is_exactly_the_access) {
  LockaheadStrategy strategy;
  const LockPlan first = write(strategy, 0);
  EXPECT_EQ(first.extent, at(0, 10));
  EXPECT_FALSE(first.expand);
  EXPECT_THAT(first.ahead, IsEmpty());
  const LockPlan read = strategy.plan(at(5, 100), LockMode::kPr, false);
  EXPECT_EQ(read.extent, at(5, 100));
  EXPECT_FALSE(read.expand);
  EXPECT_THAT(read.ahead, IsEmpty()) << "reads take no part in the window";
}

TEST(LockaheadStrategy, the_window_grows_to_its_size_and_is_refilled_before_it_is_used_up) {
  LockaheadStrategy strategy(16);
  std::vector<size_t> asked;
  size_t ahead = 0;  // expected and not written yet
  for (uint64_t i = 0; i < 100; ++i) {
    const LockPlan plan = write(strategy, i * 100);
    if (i >= 2) {
      ASSERT_GT(ahead, 0u) << "write " << i << " met an empty window";
      --ahead;
    }
    if (!plan.ahead.empty()) {
      EXPECT_EQ(plan.ahead.front(), at((i + 1) * 100, 10));
      asked.push_back(plan.ahead.size());
      ahead = plan.ahead.size();
    }
    EXPECT_THAT(plan.unwanted, IsEmpty());
  }
  ASSERT_GE(asked.size(), 3u);
  EXPECT_EQ(asked[0], 4u);
  EXPECT_EQ(asked[1], 16u);
  EXPECT_EQ(asked.back(), 16u);
  EXPECT_LE(asked.size(), 2 + 1 + 100 / 8);
}

TEST(LockaheadStrategy, a_broken_pattern_gives_the_window_back_and_starts_small_again) {
  LockaheadStrategy strategy(64);
  for (uint64_t i = 0; i < 20; ++i) write(strategy, i * 100);
  const LockPlan elsewhere = write(strategy, 1'000'000);
  EXPECT_THAT(elsewhere.unwanted, testing::Not(IsEmpty()));
  EXPECT_THAT(elsewhere.ahead, IsEmpty());
  write(strategy, 2'000'000);
  EXPECT_THAT(write(strategy, 3'000'000).ahead, SizeIs(4));
}

TEST(LockaheadStrategy, writes_that_skip_some_of_the_window_go_on_in_it) {
  LockaheadStrategy strategy(4);
  write(strategy, 0);
  ASSERT_THAT(write(strategy, 100).ahead, ElementsAre(at(200, 10), at(300, 10), at(400, 10), at(500, 10)));
  EXPECT_THAT(write(strategy, 300).unwanted, IsEmpty());
}

TEST(LockaheadStrategy, what_it_is_told_is_asked_for_at_once_and_followed_by_the_pattern) {
  LockaheadStrategy strategy(4);
  std::vector<Extent> domain;
  for (uint64_t i = 0; i < 6; ++i) domain.push_back(at(i * 100, 10));
  EXPECT_THAT(strategy.expect(domain), ElementsAre(domain[0], domain[1], domain[2], domain[3]));
  EXPECT_THAT(write(strategy, 0).ahead, IsEmpty());
  EXPECT_THAT(write(strategy, 100).ahead, ElementsAre(domain[2], domain[3], domain[4], domain[5]));
  EXPECT_THAT(write(strategy, 7777).unwanted, IsEmpty()) << "what was told stays";
  for (uint64_t i = 2; i < 4; ++i) write(strategy, i * 100);
  EXPECT_THAT(write(strategy, 400).ahead, testing::AnyOf(IsEmpty(), testing::Contains(domain[5])));
  LockPlan plan = write(strategy, 500);
  for (uint64_t i = 6; plan.ahead.empty() && i < 10; ++i) plan = write(strategy, i * 100);
  EXPECT_THAT(plan.ahead, SizeIs(4));
}

TEST(AutoStrategy, it_locks_ahead_while_there_is_a_pattern_and_says_so) {
  AutoStrategy strategy;
  EXPECT_TRUE(write(strategy, 0).expand);
  EXPECT_THAT(strategy.explain(), HasSubstr("standard"));
  EXPECT_FALSE(write(strategy, 100).expand);
  EXPECT_THAT(strategy.explain(), HasSubstr("lockahead"));
  EXPECT_TRUE(write(strategy, 7).expand);
}

TEST(LockPolicy, names_are_the_modes_and_others_are_refused_with_them) {
  for (const LockPolicy policy : {LockPolicy::kAuto, LockPolicy::kStandard, LockPolicy::kGroup,
                                  LockPolicy::kLockahead, LockPolicy::kNone}) {
    EXPECT_EQ(parse_lock_policy(to_string(policy)), policy);
    EXPECT_FALSE(make_strategy(policy, GroupId(7), 8)->explain().empty());
  }
  EXPECT_THAT(parse_lock_policy("Lockahead").error().message, HasSubstr("auto, standard, group, lockahead"));
}

// --- with a table, a server and caches ---

class Striding : public testing::Test {
 protected:
  LockNet::Client& add(size_t extents) {
    LockNet::Client& client = net_.add_client({});
    client.cache().use_strategy(kFile, std::make_unique<LockaheadStrategy>(extents));
    return client;
  }
  bool write(LockNet::Client& client, Extent extent) {
    bool done = false;
    client.cache().acquire(kFile, extent, LockMode::kPw, [&](Result<LockUse> use) {
      ASSERT_TRUE(use);
      done = true;
    });
    const bool at_once = done;
    net_.run();
    EXPECT_TRUE(done);
    return at_once;
  }
  LockNet net_{{.lease_ms = 0, .first_generation = 1}};
};

TEST_F(Striding, aggregators_that_interleave_wait_for_their_first_writes_only) {
  std::vector<LockNet::Client*> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(&add(16));
  size_t waited = 0;
  for (uint64_t round = 0; round < 200; ++round) {
    for (uint64_t who = 0; who < 4; ++who)
      waited += write(*clients[who], at((round * 4 + who) * 100, 100)) ? 0 : 1;
  }
  EXPECT_EQ(waited, 8u) << "the first two writes of each show the pattern";
  for (LockNet::Client* client : clients) {
    const LockCounts counts = client->cache().counts(kFile);
    EXPECT_EQ(counts.revokes, 0u);
    EXPECT_LT(counts.messages(), 40u) << "for 200 writes";
    EXPECT_EQ(counts.ahead_dropped, 0u);
  }
}

TEST_F(Striding, aggregators_that_tell_their_file_domains_wait_for_no_write_at_all) {
  std::vector<LockNet::Client*> clients;
  for (uint64_t who = 0; who < 4; ++who) {
    clients.push_back(&add(16));
    std::vector<Extent> domain;
    for (uint64_t round = 0; round < 200; ++round) domain.push_back(at((round * 4 + who) * 100, 100));
    clients.back()->cache().expect(kFile, domain);
  }
  net_.run();
  for (uint64_t round = 0; round < 200; ++round) {
    for (uint64_t who = 0; who < 4; ++who)
      EXPECT_TRUE(write(*clients[who], at((round * 4 + who) * 100, 100))) << round;
  }
  for (LockNet::Client* client : clients) EXPECT_EQ(client->cache().counts(kFile).asked, 0u);
}

TEST_F(Striding, an_extent_that_was_dropped_is_asked_for_again_when_the_window_is_filled) {
  LockNet::Client& other = net_.add_client({});
  LockNet::Client& mine = add(8);
  // Somebody else has an extent of the window in use for a while.
  std::optional<LockUse> hold;
  other.cache().use_strategy(kFile, std::make_unique<LockaheadStrategy>(1));
  other.cache().acquire(kFile, at(500, 100), LockMode::kPw,
                        [&](Result<LockUse> use) { hold = std::move(*use); });
  net_.run();
  write(mine, at(0, 100));
  write(mine, at(100, 100));
  EXPECT_GT(mine.cache().counts(kFile).ahead_dropped, 0u);
  hold.reset();
  other.cache().drop(kFile);
  net_.run();
  for (uint64_t i = 2; i < 50; ++i) EXPECT_TRUE(write(mine, at(i * 100, 100))) << i;
}

TEST_F(Striding, a_write_inside_an_unanswered_window_waits_for_that_answer_and_asks_nothing_more) {
  LockNet::Client& mine = add(8);
  write(mine, at(0, 100));
  size_t done = 0;
  const auto count = [&](Result<LockUse> use) { done += use ? 1 : 0; };
  mine.cache().acquire(kFile, at(100, 100), LockMode::kPw, count);
  mine.cache().acquire(kFile, at(200, 100), LockMode::kPw, count);
  mine.cache().acquire(kFile, at(300, 100), LockMode::kPw, count);
  const uint64_t blocking = mine.cache().counts(kFile).asked;
  EXPECT_EQ(blocking, 2u);
  net_.run();
  EXPECT_EQ(done, 3u);
  EXPECT_EQ(mine.cache().counts(kFile).asked, blocking);
}

TEST_F(Striding, a_write_whose_extent_ahead_was_dropped_takes_it_and_the_window_lives_on) {
  LockNet::Client& other = net_.add_client({});
  std::optional<LockUse> hold;
  other.cache().use_strategy(kFile, std::make_unique<LockaheadStrategy>(1));
  other.cache().acquire(kFile, at(300, 100), LockMode::kPw,
                        [&](Result<LockUse> use) { hold = std::move(*use); });
  net_.run();
  LockNet::Client& mine = add(8);
  write(mine, at(0, 100));
  bool third = false;
  mine.cache().acquire(kFile, at(100, 100), LockMode::kPw, [](Result<LockUse>) {});
  mine.cache().acquire(kFile, at(300, 100), LockMode::kPw,
                       [&](Result<LockUse> use) { third = use.has_value(); });
  net_.run();
  EXPECT_FALSE(third) << "it waits for the other to finish, as any write does";
  hold.reset();
  net_.run();
  EXPECT_TRUE(third);
  for (uint64_t i = 4; i < 40; ++i) write(mine, at(i * 100, 100));
  EXPECT_TRUE(write(mine, at(4000, 100)));
}

TEST_F(Striding, what_a_broken_pattern_leaves_behind_is_given_back_unasked) {
  LockNet::Client& mine = add(16);
  for (uint64_t i = 0; i < 20; ++i) write(mine, at(i * 100, 100));
  write(mine, at(1'000'000, 100));
  const auto held = net_.server().table(kFile)->locks();
  for (const LockInfo& lock : held)
    EXPECT_TRUE(lock.extent.end.value <= 2000 || lock.extent.begin.value == 1'000'000);
  EXPECT_THAT(held, SizeIs(21));
}

}  // namespace
}  // namespace sluice::lockmgr
