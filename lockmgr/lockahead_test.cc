#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockmgr/lock_net.h"

// The behaviours that lockahead must have, one test each, with a real table, server and client caches. The
// number in a test's name is the behaviour's.
namespace sluice::lockmgr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ContainerId kFile(1);
constexpr uint64_t kMiB = 1 << 20;
constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

// What an aggregator asks for: exactly its I/O, never more.
class ExactStrategy : public LockStrategy {
 public:
  LockPlan plan(const Extent& access, LockMode mode, bool) override {
    LockPlan plan;
    plan.mode = mode;
    plan.extent = access;
    plan.expand = false;
    return plan;
  }
  std::string explain() const override { return "exact"; }
};

class Lockahead : public testing::Test {
 protected:
  using Answers = std::vector<ExtentAnswer>;

  Answers ahead(LockNet::Client& client, std::vector<Extent> extents, LockMode mode = LockMode::kPw) {
    Answers heard;
    client.cache().ask_ahead(kFile, mode, extents, [&](const auto& answers) {
      EXPECT_TRUE(answers);
      if (answers) heard = *answers;
    });
    net_.run();
    return heard;
  }
  // The same request past the client's cache, as a client that keeps no record of its own would send it.
  Answers raw(LockNet::Client& client, std::vector<Extent> extents) {
    Answers heard;
    const RequestId id(1'000'000);
    net_.on_grant = [&](RequestId request, const Answers& answers) {
      if (request == id) heard = answers;
    };
    EXPECT_TRUE(net_.server().request(client.session(), {id, kFile, LockMode::kPw, GroupId(0),
                                                         kSpeculative | kNoExpand, std::move(extents)}));
    net_.run();
    net_.on_grant = nullptr;
    return heard;
  }
  // Empty while the access waits.
  std::optional<LockUse> use(LockNet::Client& client, Extent extent, LockMode access = LockMode::kPw) {
    std::optional<LockUse> got;
    auto slot = std::make_shared<std::optional<LockUse>*>(&got);
    client.cache().acquire(kFile, extent, access, [this, slot](Result<LockUse> use) {
      EXPECT_TRUE(use) << (use ? "" : use.error().message);
      if (!use) return;
      if (*slot != nullptr) {
        **slot = std::move(*use);
      } else {
        late_.push_back(std::move(*use));
      }
    });
    net_.run();
    *slot = nullptr;
    return got;
  }
  std::vector<Extent> held(const LockNet::Client& client) {
    std::vector<Extent> extents;
    const LockTable* table = net_.server().table(kFile);
    if (table == nullptr) return extents;
    for (const LockInfo& lock : table->locks()) {
      if (lock.owner.value == client.session().value) extents.push_back(lock.extent);
    }
    return extents;
  }
  static std::vector<LockAnswer> kinds(const Answers& answers) {
    std::vector<LockAnswer> all;
    for (const ExtentAnswer& a : answers) all.push_back(a.answer);
    return all;
  }
  void exact(LockNet::Client& client) {
    client.cache().use_strategy(kFile, std::make_unique<ExactStrategy>());
  }

  LockNet net_{LockServer::Options{}};
  LockNet::Client& a_ = net_.add_client({});
  LockNet::Client& b_ = net_.add_client({});
  LockNet::Client& c_ = net_.add_client({});
  std::vector<LockUse> late_;  // granted after use() returned
};

TEST_F(Lockahead, 01_the_same_request_many_times_leaves_one_lock) {
  for (int i = 0; i < 100; ++i) ahead(a_, {ext(0, kMiB)});
  EXPECT_THAT(held(a_), ElementsAre(ext(0, kMiB)));
  EXPECT_THAT(a_.asked, SizeIs(1)) << "what is held need not be asked again";
  for (int i = 0; i < 100; ++i) raw(a_, {ext(0, kMiB), ext(0, kMiB)});
  EXPECT_THAT(held(a_), ElementsAre(ext(0, kMiB)));
}

TEST_F(Lockahead, 02_a_request_inside_a_held_lock_is_covered_and_adds_none) {
  ahead(a_, {ext(0, kMiB)});
  const Answers inside = raw(a_, {ext(0, 10), ext(100, 200), ext(kMiB - 1, kMiB)});
  EXPECT_THAT(kinds(inside), ElementsAre(LockAnswer::kCovered, LockAnswer::kCovered, LockAnswer::kCovered));
  EXPECT_EQ(inside[0].extent, ext(0, kMiB));
  EXPECT_THAT(held(a_), SizeIs(1));
  EXPECT_TRUE(use(a_, ext(5, 50)));
  EXPECT_THAT(a_.asked, SizeIs(1));
}

TEST_F(Lockahead, 03_an_exact_repeat_is_the_same) {
  const Answers first = ahead(a_, {ext(0, kMiB), ext(2 * kMiB, 3 * kMiB)});
  const Answers again = raw(a_, {ext(2 * kMiB, 3 * kMiB), ext(0, kMiB)});
  EXPECT_THAT(kinds(again), ElementsAre(LockAnswer::kSame, LockAnswer::kSame));
  EXPECT_EQ(again[0].handle, first[1].handle);
  EXPECT_EQ(again[1].handle, first[0].handle);
}

TEST_F(Lockahead, 04_growing_forward_gives_a_lock_for_each_extent) {
  std::vector<Extent> all;
  for (uint64_t i = 0; i < 20; ++i) {
    all.push_back(ext(i * kMiB, (i + 1) * kMiB));
    EXPECT_THAT(kinds(ahead(a_, {all.back()})), ElementsAre(LockAnswer::kGranted));
  }
  EXPECT_EQ(held(a_), all);
}

TEST_F(Lockahead, 05_growing_backward_gives_a_lock_for_each_extent) {
  std::vector<Extent> all;
  for (uint64_t i = 20; i-- > 0;) {
    all.insert(all.begin(), ext(i * kMiB, (i + 1) * kMiB));
    EXPECT_THAT(kinds(ahead(a_, {all.front()})), ElementsAre(LockAnswer::kGranted));
  }
  EXPECT_EQ(held(a_), all);
}

TEST_F(Lockahead, 06_overlapping_requests_leave_no_two_conflicting_locks) {
  for (LockNet::Client* client : {&a_, &b_, &c_}) exact(*client);
  for (uint64_t i = 0; i < 50; ++i) {
    LockNet::Client& client = i % 3 == 0 ? a_ : i % 3 == 1 ? b_ : c_;
    ahead(client, {ext(i * 400, i * 400 + 450)}, i % 4 == 0 ? LockMode::kPr : LockMode::kPw);
    if (i % 5 == 0) use(client, ext(i * 400, i * 400 + 850));
    net_.server().table(kFile)->check();
  }
  const std::vector<LockInfo> locks = net_.server().table(kFile)->locks();
  ASSERT_GT(locks.size(), 5u);
  for (const LockInfo& x : locks) {
    for (const LockInfo& y : locks) {
      const bool conflict = x.owner != y.owner && (x.mode == LockMode::kPw || y.mode == LockMode::kPw);
      EXPECT_FALSE(conflict && x.extent.overlaps(y.extent))
          << to_string(x.extent) << " " << to_string(y.extent);
    }
  }
}

TEST_F(Lockahead, 07_a_write_larger_than_its_lock_takes_its_own_extent_and_cancels_once) {
  exact(a_);
  ahead(a_, {ext(0, kMiB)});
  ahead(b_, {ext(kMiB, 2 * kMiB), ext(5 * kMiB, 6 * kMiB)});
  const auto larger = use(a_, ext(0, 2 * kMiB));
  ASSERT_TRUE(larger);
  EXPECT_THAT(held(a_), ElementsAre(ext(0, 2 * kMiB))) << "its smaller lock is needless now";
  EXPECT_EQ(b_.revokes_heard, 1u);
  EXPECT_THAT(held(b_), ElementsAre(ext(5 * kMiB, 6 * kMiB)));
  const size_t asked = a_.asked.size();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(use(a_, ext(0, 2 * kMiB)));
  EXPECT_EQ(a_.asked.size(), asked);
  EXPECT_EQ(b_.revokes_heard, 1u);
}

TEST_F(Lockahead, 08_an_ordinary_lock_may_grow_to_the_whole_file_and_noexpand_keeps_it_exact) {
  EXPECT_TRUE(use(a_, ext(kMiB, 2 * kMiB)));
  EXPECT_THAT(held(a_), ElementsAre(ext(0, kMaxFileBytes)));
  a_.cache().drop(kFile);
  net_.run();
  ASSERT_THAT(held(a_), IsEmpty());
  exact(a_);
  std::vector<Extent> all;
  for (uint64_t i = 0; i < 8; ++i) {
    all.push_back(ext(3 * i * kMiB, (3 * i + 1) * kMiB));
    EXPECT_TRUE(use(a_, all.back()));
  }
  EXPECT_EQ(held(a_), all);
}

TEST_F(Lockahead, 09_under_an_expanded_lock_a_speculative_request_is_covered_or_dropped_and_never_waits) {
  const auto busy = use(a_, ext(0, kMiB));
  ASSERT_TRUE(busy);
  ASSERT_THAT(held(a_), ElementsAre(ext(0, kMaxFileBytes)));
  EXPECT_THAT(kinds(raw(a_, {ext(5 * kMiB, 6 * kMiB)})), ElementsAre(LockAnswer::kCovered));
  EXPECT_THAT(kinds(ahead(b_, {ext(5 * kMiB, 6 * kMiB)})), ElementsAre(LockAnswer::kDropped));
  EXPECT_EQ(b_.cache().pending_count(), 0u);
  EXPECT_EQ(net_.server().table(kFile)->waiting_count(), 0u);
  EXPECT_EQ(a_.revokes_heard, 0u) << "asking ahead takes nothing from anybody";
}

TEST_F(Lockahead, 10_a_conflict_drops_that_extent_only_and_says_which_kind) {
  exact(a_);
  exact(b_);
  const auto busy = use(a_, ext(0, kMiB));
  ASSERT_TRUE(busy);
  EXPECT_FALSE(use(b_, ext(kMiB / 2, 2 * kMiB))) << "waits for a";
  LockNet::Client& d = net_.add_client({});
  const Answers answers = ahead(d, {ext(0, 10), ext(2 * kMiB - 1, 3 * kMiB), ext(3 * kMiB, 4 * kMiB)});
  EXPECT_THAT(kinds(answers), ElementsAre(LockAnswer::kDropped, LockAnswer::kDropped, LockAnswer::kGranted));
  EXPECT_EQ(answers[0].blocker, LockBlocker::kGrantedLock);
  EXPECT_EQ(answers[1].blocker, LockBlocker::kWaitingRequest);
  EXPECT_THAT(held(d), ElementsAre(ext(3 * kMiB, 4 * kMiB)));
}

TEST_F(Lockahead, 10_a_group_lock_drops_it_too) {
  a_.cache().use_strategy(kFile, std::make_unique<GroupStrategy>(GroupId(9)));
  const auto member = use(a_, ext(0, 10));
  ASSERT_TRUE(member);
  const Answers answers = ahead(b_, {ext(kMiB, 2 * kMiB)});
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].answer, LockAnswer::kDropped);
  EXPECT_EQ(answers[0].blocker, LockBlocker::kGroupLock);
}

TEST_F(Lockahead, 11_a_blocking_request_cancels_unused_locks_and_waits_only_for_real_users) {
  exact(a_);
  exact(b_);
  ahead(a_, {ext(0, kMiB), ext(kMiB, 2 * kMiB), ext(2 * kMiB, 3 * kMiB)});
  EXPECT_TRUE(use(b_, ext(0, 2 * kMiB))) << "nobody used them";
  EXPECT_EQ(a_.flushes, 0u);
  EXPECT_THAT(held(a_), ElementsAre(ext(2 * kMiB, 3 * kMiB)));
  auto busy = use(a_, ext(2 * kMiB, 3 * kMiB));
  ASSERT_TRUE(busy);
  EXPECT_FALSE(use(b_, ext(2 * kMiB, 3 * kMiB)));
  EXPECT_THAT(late_, IsEmpty());
  busy->end();
  net_.run();
  EXPECT_THAT(late_, SizeIs(1));
  EXPECT_EQ(a_.flushes, 1u) << "what the user wrote is flushed first";
}

TEST_F(Lockahead, 12_a_request_that_makes_no_sense_is_refused_by_its_field) {
  const auto refusal = [&](LockMode mode, uint32_t flags, std::vector<Extent> extents) {
    static uint64_t id = 1000;
    std::string message;
    struct Ear final : LockOutbox {
      std::string& heard;
      explicit Ear(std::string& to) : heard(to) {}
      void send_grant(SessionId, RequestId, ContainerId, const Answers&) override { heard = "granted"; }
      void send_error(SessionId, RequestId, const Error& error) override { heard = error.message; }
      void send_revoke(SessionId, ContainerId, LockHandle, Extent) override {}
      void session_evicted(SessionId) override {}
    } ear(message);
    LockServer server(net_.clock(), ear, {});
    EXPECT_TRUE(server.open_session(SessionId(1)));
    EXPECT_TRUE(server.request(SessionId(1), {RequestId(++id), kFile, mode, GroupId(0), flags, extents}));
    EXPECT_EQ(server.table(kFile), nullptr) << "nothing may be left behind";
    return message;
  };
  EXPECT_THAT(refusal(LockMode::kPw, kBlocking | kSpeculative, {ext(0, 1)}), HasSubstr("'flags'"));
  EXPECT_THAT(refusal(LockMode::kPw, kSpeculative | 0x80, {ext(0, 1)}), HasSubstr("'flags'"));
  EXPECT_THAT(refusal(static_cast<LockMode>(9), kSpeculative, {ext(0, 1)}), HasSubstr("'mode'"));
  EXPECT_THAT(refusal(LockMode::kPw, kSpeculative, {ext(0, 1), ext(7, 7)}), HasSubstr("'extents[1]'"));
  EXPECT_THAT(refusal(LockMode::kPw, kSpeculative, {ext(8, 7)}), HasSubstr("'extents[0]'"));
  EXPECT_THAT(refusal(LockMode::kPw, kSpeculative, std::vector<Extent>(kMaxExtentsPerRequest + 1, ext(0, 1))),
              HasSubstr("'extents'"));
}

TEST_F(Lockahead, 14_a_reclaimed_lock_costs_one_request_and_never_an_error) {
  exact(a_);
  std::vector<Extent> window;
  for (uint64_t i = 0; i < 16; ++i) window.push_back(ext(i * kMiB, (i + 1) * kMiB));
  ahead(a_, window);
  auto busy = use(a_, window[3]);
  ASSERT_TRUE(busy);
  EXPECT_EQ(net_.server().reclaim(kFile, 1000), 16u);
  net_.run();
  EXPECT_THAT(held(a_), ElementsAre(window[3])) << "the one in use stays until its user is done";
  busy->end();
  net_.run();
  EXPECT_THAT(held(a_), IsEmpty());
  const size_t asked = a_.asked.size();
  for (const Extent& e : window) EXPECT_TRUE(use(a_, e));
  EXPECT_EQ(a_.asked.size(), asked + window.size());
  EXPECT_EQ(net_.server().reclaim(ContainerId(99), 5), 0u);
}

TEST_F(Lockahead, 15_one_group_shares_and_others_wait_their_turn) {
  a_.cache().use_strategy(kFile, std::make_unique<GroupStrategy>(GroupId(1)));
  b_.cache().use_strategy(kFile, std::make_unique<GroupStrategy>(GroupId(1)));
  c_.cache().use_strategy(kFile, std::make_unique<GroupStrategy>(GroupId(2)));
  LockNet::Client& d = net_.add_client({});
  auto first = use(a_, ext(0, 10));
  auto second = use(b_, ext(5, 15));
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(use(c_, ext(100, 110))) << "another group";
  EXPECT_FALSE(use(d, ext(200, 210))) << "no group";
  first->end();
  net_.run();
  EXPECT_THAT(late_, IsEmpty()) << "b is still in the group";
  second->end();
  net_.run();
  ASSERT_THAT(late_, SizeIs(1)) << "c came before d";
  EXPECT_EQ(net_.server().table(kFile)->locks().front().group, GroupId(2));
  late_.clear();
  net_.run();
  ASSERT_THAT(late_, SizeIs(1));
  EXPECT_EQ(net_.server().table(kFile)->locks().front().mode, LockMode::kPw);
}

// A window that refills itself: at each access asks for the next few extents of its stride.
class WindowStrategy final : public LockStrategy {
 public:
  std::string explain() const override { return "for a test"; }
  WindowStrategy(uint64_t stride, uint64_t depth) : stride_(stride), depth_(depth) {}
  LockPlan plan(const Extent& access, LockMode mode, bool) override {
    LockPlan plan;
    plan.mode = mode;
    plan.extent = access;
    plan.expand = false;
    for (uint64_t i = 1; i <= depth_; ++i) {
      plan.ahead.push_back(Extent::at(access.begin + Length(i * stride_), access.length()));
    }
    return plan;
  }

 private:
  uint64_t stride_;
  uint64_t depth_;
};

TEST_F(Lockahead, 16_losing_one_extent_leaves_the_window_and_later_growth_alone) {
  a_.cache().use_strategy(kFile, std::make_unique<WindowStrategy>(2 * kMiB, 8));
  EXPECT_TRUE(use(a_, ext(0, kMiB)));
  ASSERT_THAT(held(a_), SizeIs(9));
  exact(b_);
  EXPECT_TRUE(use(b_, ext(6 * kMiB, 7 * kMiB))) << "takes the fourth extent";
  EXPECT_EQ(a_.revokes_heard, 1u);
  EXPECT_THAT(held(a_), SizeIs(8));
  // The rest of the window goes on being used and refilled; the extent that was lost is asked for when it is
  // needed.
  for (uint64_t i = 1; i < 20; ++i) {
    const size_t blocking_before = static_cast<size_t>(std::count_if(
        a_.asked.begin(), a_.asked.end(), [](const LockAsk& x) { return (x.flags & kBlocking) != 0; }));
    EXPECT_TRUE(use(a_, ext(2 * i * kMiB, (2 * i + 1) * kMiB)));
    const size_t blocking_after = static_cast<size_t>(std::count_if(
        a_.asked.begin(), a_.asked.end(), [](const LockAsk& x) { return (x.flags & kBlocking) != 0; }));
    EXPECT_EQ(blocking_after - blocking_before, i == 3 ? 1u : 0u) << "access " << i;
  }
  EXPECT_GE(held(a_).size(), 20u);
  a_.cache().drop(kFile);
  b_.cache().drop(kFile);
  net_.run();
  EXPECT_TRUE(use(c_, ext(0, 10)));
  EXPECT_THAT(held(c_), ElementsAre(ext(0, kMaxFileBytes))) << "ordinary locks grow as before";
}

}  // namespace
}  // namespace sluice::lockmgr
