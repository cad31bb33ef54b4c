#include "lockmgr/lock_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::lockmgr {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr OwnerId kA(1);
constexpr OwnerId kB(2);
constexpr OwnerId kC(3);
constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}
constexpr Extent kWholeFile = ext(0, kMaxFileBytes);
constexpr uint32_t kExact = kBlocking | kNoExpand;

class LockTableTest : public testing::Test {
 protected:
  LockReply ask(OwnerId owner, LockMode mode, std::vector<Extent> extents, uint32_t flags = kExact,
                GroupId group = GroupId(0)) {
    LockReply reply;
    events_ = {};
    const auto ok = table_.request({owner, mode, group, flags, extents}, reply, events_);
    EXPECT_TRUE(ok) << (ok ? "" : ok.error().message);
    table_.check();
    return reply;
  }
  LockHandle take(OwnerId owner, LockMode mode, Extent extent, uint32_t flags = kExact,
                  GroupId group = GroupId(0)) {
    const LockReply reply = ask(owner, mode, {extent}, flags, group);
    EXPECT_FALSE(reply.waiting);
    EXPECT_EQ(reply.extents.at(0).answer, LockAnswer::kGranted);
    return reply.extents.at(0).handle;
  }
  void cancel(OwnerId owner, LockHandle handle) {
    events_ = {};
    EXPECT_TRUE(table_.cancel(owner, handle, events_));
    table_.check();
  }
  std::string refusal(const LockRequest& request) {
    LockReply reply;
    const auto ok = table_.request(request, reply, events_);
    EXPECT_FALSE(ok);
    if (!ok) {
      EXPECT_EQ(ok.error().code, ErrorCode::kInvalidArgument);
    }
    EXPECT_TRUE(table_.idle());
    return ok ? "" : ok.error().message;
  }

  LockTable table_;
  LockEvents events_;
};

TEST_F(LockTableTest, readers_share_and_writers_do_not) {
  take(kA, LockMode::kPr, ext(0, 100));
  take(kB, LockMode::kPr, ext(50, 150));
  EXPECT_TRUE(ask(kC, LockMode::kPw, {ext(90, 110)}).waiting);
  EXPECT_THAT(events_.revokes, SizeIs(2));
}

TEST_F(LockTableTest, neighbours_do_not_conflict) {
  take(kA, LockMode::kPw, ext(0, 100));
  take(kB, LockMode::kPw, ext(100, 200));
}

TEST_F(LockTableTest, a_cancel_grants_those_that_waited_in_the_order_they_came) {
  const LockHandle held = take(kA, LockMode::kPw, ext(0, 100));
  const Ticket first = ask(kB, LockMode::kPw, {ext(0, 10)}).ticket;
  const Ticket second = ask(kC, LockMode::kPw, {ext(50, 60)}).ticket;
  cancel(kA, held);
  ASSERT_THAT(events_.grants, SizeIs(2));
  EXPECT_EQ(events_.grants[0].ticket, first);
  EXPECT_EQ(events_.grants[1].ticket, second);
}

TEST_F(LockTableTest, a_reader_does_not_overtake_a_waiting_writer) {
  const LockHandle held = take(kA, LockMode::kPr, ext(0, 100));
  EXPECT_TRUE(ask(kB, LockMode::kPw, {ext(0, 100)}).waiting);
  EXPECT_TRUE(ask(kC, LockMode::kPr, {ext(0, 100)}).waiting);
  cancel(kA, held);
  ASSERT_THAT(events_.grants, SizeIs(1));
  EXPECT_EQ(events_.grants[0].owner, kB);
  // The writer is told at once that somebody waits behind it.
  ASSERT_THAT(events_.revokes, SizeIs(1));
  EXPECT_EQ(events_.revokes[0].handle, events_.grants[0].extents[0].handle);
}

TEST_F(LockTableTest, a_request_elsewhere_passes_those_that_wait) {
  take(kA, LockMode::kPw, ext(0, 100));
  EXPECT_TRUE(ask(kB, LockMode::kPw, {ext(0, 100)}).waiting);
  take(kC, LockMode::kPw, ext(100, 200));
}

TEST_F(LockTableTest, a_lock_is_revoked_once_however_many_wait) {
  take(kA, LockMode::kPw, ext(0, 100));
  EXPECT_TRUE(ask(kB, LockMode::kPw, {ext(0, 10)}).waiting);
  EXPECT_THAT(events_.revokes, SizeIs(1));
  EXPECT_TRUE(ask(kC, LockMode::kPw, {ext(10, 20)}).waiting);
  EXPECT_THAT(events_.revokes, IsEmpty());
}

TEST_F(LockTableTest, a_revoked_lock_no_longer_covers) {
  take(kA, LockMode::kPw, ext(0, 100));
  EXPECT_TRUE(ask(kB, LockMode::kPw, {ext(0, 10)}).waiting);
  const LockReply elsewhere = ask(kA, LockMode::kPw, {ext(50, 60)});
  EXPECT_EQ(elsewhere.extents.at(0).answer, LockAnswer::kGranted);
  EXPECT_TRUE(ask(kA, LockMode::kPw, {ext(0, 10)}).waiting) << "the owner overtook the one that waits for it";
}

TEST_F(LockTableTest, a_batch_that_waits_holds_nothing) {
  const LockHandle held = take(kA, LockMode::kPw, ext(0, 10));
  EXPECT_TRUE(ask(kB, LockMode::kPw, {ext(0, 10), ext(20, 30)}).waiting);
  EXPECT_EQ(table_.granted_count(kB), 0u);
  // It keeps its turn on both extents all the same.
  EXPECT_TRUE(ask(kC, LockMode::kPw, {ext(20, 30)}).waiting);
  cancel(kA, held);
  ASSERT_THAT(events_.grants, SizeIs(1));
  EXPECT_THAT(events_.grants[0].extents, SizeIs(2));
}

TEST_F(LockTableTest, crossing_batches_do_not_wait_for_each_other) {
  const LockHandle held = take(kC, LockMode::kPw, ext(0, 100));
  EXPECT_TRUE(ask(kA, LockMode::kPw, {ext(0, 10), ext(20, 30)}).waiting);
  EXPECT_TRUE(ask(kB, LockMode::kPw, {ext(20, 30), ext(0, 10)}).waiting);
  cancel(kC, held);
  ASSERT_THAT(events_.grants, SizeIs(1));
  EXPECT_EQ(events_.grants[0].owner, kA);
  const auto of_a = events_.grants[0].extents;
  cancel(kA, of_a[0].handle);
  EXPECT_THAT(events_.grants, IsEmpty());
  cancel(kA, of_a[1].handle);
  ASSERT_THAT(events_.grants, SizeIs(1));
  EXPECT_EQ(events_.grants[0].owner, kB);
}

TEST_F(LockTableTest, withdrawing_lets_those_behind_go_on) {
  take(kA, LockMode::kPr, ext(0, 100));
  const Ticket writer = ask(kB, LockMode::kPw, {ext(0, 100)}).ticket;
  EXPECT_TRUE(ask(kC, LockMode::kPr, {ext(0, 100)}).waiting);
  events_ = {};
  EXPECT_FALSE(table_.withdraw(kC, writer, events_)) << "not its request";
  EXPECT_TRUE(table_.withdraw(kB, writer, events_));
  ASSERT_THAT(events_.grants, SizeIs(1));
  EXPECT_EQ(events_.grants[0].owner, kC);
  EXPECT_FALSE(table_.withdraw(kB, writer, events_));
}

TEST_F(LockTableTest, evicting_frees_locks_and_waiting_requests) {
  take(kA, LockMode::kPw, ext(0, 100));
  take(kA, LockMode::kPr, ext(200, 300));
  take(kB, LockMode::kPw, ext(100, 200));
  EXPECT_TRUE(ask(kA, LockMode::kPw, {ext(100, 150)}).waiting);
  EXPECT_TRUE(ask(kC, LockMode::kPw, {ext(0, 50)}).waiting);
  events_ = {};
  EXPECT_EQ(table_.evict(kA, events_), 2u);
  table_.check();
  ASSERT_THAT(events_.grants, SizeIs(1));
  EXPECT_EQ(events_.grants[0].owner, kC);
  EXPECT_EQ(table_.waiting_count(), 0u);
  EXPECT_EQ(table_.granted_count(kA), 0u);
  EXPECT_EQ(table_.evict(kA, events_), 0u);
}

TEST_F(LockTableTest, only_its_owner_cancels_a_lock_and_only_once) {
  const LockHandle held = take(kA, LockMode::kPw, ext(0, 100));
  const auto not_mine = table_.cancel(kB, held, events_);
  ASSERT_FALSE(not_mine);
  EXPECT_EQ(not_mine.error().code, ErrorCode::kNotFound);
  cancel(kA, held);
  EXPECT_FALSE(table_.cancel(kA, held, events_));
  EXPECT_FALSE(table_.cancel(kA, LockHandle(0), events_));
  EXPECT_FALSE(table_.cancel(kA, LockHandle(UINT64_MAX), events_));
}

TEST_F(LockTableTest, a_handle_is_not_reused_for_the_next_lock_in_its_place) {
  const LockHandle held = take(kA, LockMode::kPw, ext(0, 100));
  cancel(kA, held);
  const LockHandle next = take(kA, LockMode::kPw, ext(0, 100));
  EXPECT_NE(held, next);
  EXPECT_FALSE(table_.find(held));
  LockTable successor(table_.next_generation());
  LockReply reply;
  const Extent extent = ext(0, 1);
  ASSERT_TRUE(successor.request({kA, LockMode::kPw, GroupId(0), kExact, {&extent, 1}}, reply, events_));
  EXPECT_NE(reply.extents[0].handle, held);
  EXPECT_NE(reply.extents[0].handle, next);
}

TEST_F(LockTableTest, an_ordinary_lock_grows_up_to_the_others_locks) {
  take(kB, LockMode::kPw, ext(0, 100));
  take(kB, LockMode::kPw, ext(1000, 1100));
  const LockReply reply = ask(kA, LockMode::kPw, {ext(500, 600)}, kBlocking);
  EXPECT_EQ(reply.extents.at(0).extent, ext(100, 1000));
}

TEST_F(LockTableTest, growth_ignores_own_locks_and_respects_those_that_wait) {
  take(kA, LockMode::kPw, ext(1000, 1100));
  const LockHandle far = take(kC, LockMode::kPw, ext(5000, 5100));
  EXPECT_TRUE(ask(kB, LockMode::kPw, {ext(4000, 5050)}).waiting);
  const LockReply reply = ask(kA, LockMode::kPw, {ext(500, 600)}, kBlocking);
  EXPECT_EQ(reply.extents.at(0).extent, ext(0, 4000));
  cancel(kC, far);
  EXPECT_THAT(events_.grants, SizeIs(1));
}

TEST_F(LockTableTest, readers_grow_over_readers) {
  take(kB, LockMode::kPr, ext(0, 100));
  EXPECT_EQ(ask(kA, LockMode::kPr, {ext(500, 600)}, kBlocking).extents.at(0).extent, kWholeFile);
}

TEST_F(LockTableTest, what_must_not_grow_does_not) {
  EXPECT_EQ(ask(kA, LockMode::kPw, {ext(0, 10)}, kBlocking | kNoExpand).extents.at(0).extent, ext(0, 10));
  EXPECT_EQ(ask(kA, LockMode::kPw, {ext(20, 30)}, kSpeculative).extents.at(0).extent, ext(20, 30));
  EXPECT_EQ(ask(kA, LockMode::kPw, {ext(40, 50), ext(60, 70)}, kBlocking).extents.at(1).extent, ext(60, 70));
  EXPECT_EQ(ask(kA, LockMode::kGroup, {ext(80, 90)}, kBlocking, GroupId(3)).extents.at(0).extent,
            ext(80, 90));
}

// Two writers that interleave finely: each conflict raises the score until locks stop growing, and the
// conflicts with it; undisturbed grants bring growth back.
TEST_F(LockTableTest, contention_limits_growth_and_wears_off) {
  constexpr uint64_t kStep = 1 << 20;
  std::map<OwnerId, std::vector<LockHandle>> held;
  uint64_t waits = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const OwnerId owner = i % 2 == 0 ? kA : kB;
    const OwnerId other = i % 2 == 0 ? kB : kA;
    const LockReply reply = ask(owner, LockMode::kPw, {ext(i * kStep, (i + 1) * kStep)}, kBlocking);
    if (!reply.waiting) {
      held[owner].push_back(reply.extents[0].handle);
      continue;
    }
    ++waits;
    const auto revokes = events_.revokes;
    for (const LockRevoke& revoke : revokes) {
      EXPECT_EQ(revoke.owner, other);
      cancel(other, revoke.handle);
    }
    ASSERT_THAT(events_.grants, SizeIs(1));
    held[owner].push_back(events_.grants[0].extents[0].handle);
  }
  EXPECT_GE(table_.contention(), kContendedScore);
  EXPECT_LT(waits, 60u) << "without the limit every request but the first would wait";
  table_.evict(kA, events_);
  table_.evict(kB, events_);
  uint32_t needed = 0;
  for (; table_.contention() >= kContendedScore; ++needed) {
    ASSERT_LT(needed, kContentionMax);
    cancel(kC, take(kC, LockMode::kPw, ext(0, 1)));
  }
  EXPECT_EQ(ask(kC, LockMode::kPw, {ext(0, 10)}, kBlocking).extents.at(0).extent, kWholeFile);
}

TEST_F(LockTableTest, a_reclaimed_lock_is_asked_back_once_and_costs_one_request) {
  const LockHandle held = take(kA, LockMode::kPw, ext(0, 100));
  events_ = {};
  EXPECT_TRUE(table_.reclaim(held, events_));
  EXPECT_THAT(events_.revokes, SizeIs(1));
  EXPECT_FALSE(table_.reclaim(held, events_));
  cancel(kA, held);
  take(kA, LockMode::kPw, ext(0, 100));
}

TEST_F(LockTableTest, adopting_puts_back_exactly_what_was_held) {
  const auto adopt = [&](OwnerId owner, LockMode mode, Extent extent) {
    return table_.adopt({owner, mode, GroupId(0), kBlocking, {&extent, 1}});
  };
  ASSERT_TRUE(adopt(kA, LockMode::kPw, ext(0, 100)));
  const auto inside = adopt(kA, LockMode::kPw, ext(10, 20));
  ASSERT_TRUE(inside) << "an own lock around it does not stand for it";
  EXPECT_EQ(table_.find(*inside)->extent, ext(10, 20));
  const auto clash = adopt(kB, LockMode::kPr, ext(50, 60));
  ASSERT_FALSE(clash);
  EXPECT_EQ(clash.error().code, ErrorCode::kConflict);
  EXPECT_FALSE(adopt(kB, LockMode::kPr, ext(60, 60)));
  table_.check();
}

TEST_F(LockTableTest, an_own_cached_lock_makes_way_for_the_own_group_lock) {
  take(kA, LockMode::kPw, ext(0, 100));
  EXPECT_TRUE(ask(kA, LockMode::kGroup, {ext(0, 100)}, kExact, GroupId(5)).waiting);
  ASSERT_THAT(events_.revokes, SizeIs(1));
  const LockHandle asked_back = events_.revokes[0].handle;
  cancel(kA, asked_back);
  EXPECT_THAT(events_.grants, SizeIs(1));
}

TEST_F(LockTableTest, a_bad_request_is_refused_by_the_name_of_its_field) {
  const std::vector<Extent> good = {ext(0, 10)};
  const auto with = [&](auto change) {
    LockRequest r{kA, LockMode::kPw, GroupId(0), kBlocking, good};
    change(r);
    return refusal(r);
  };
  EXPECT_THAT(with([](auto& r) { r.owner = OwnerId(0); }), HasSubstr("'owner'"));
  EXPECT_THAT(with([](auto& r) { r.mode = static_cast<LockMode>(0); }), HasSubstr("'mode'"));
  EXPECT_THAT(with([](auto& r) { r.mode = static_cast<LockMode>(77); }), HasSubstr("unknown mode 77"));
  EXPECT_THAT(with([](auto& r) { r.mode = LockMode::kGroup; }), HasSubstr("'group'"));
  EXPECT_THAT(with([](auto& r) { r.group = GroupId(1); }), HasSubstr("'group'"));
  EXPECT_THAT(with([](auto& r) { r.flags = 0; }), HasSubstr("'flags'"));
  EXPECT_THAT(with([](auto& r) { r.flags = kBlocking | kSpeculative; }), HasSubstr("'flags'"));
  EXPECT_THAT(with([](auto& r) { r.flags = kBlocking | 64; }), HasSubstr("unknown bits 64"));
  EXPECT_THAT(with([](auto& r) { r.extents = {}; }), HasSubstr("'extents'"));
  const std::vector<Extent> many(kMaxExtentsPerRequest + 1, ext(0, 1));
  EXPECT_THAT(with([&](auto& r) { r.extents = many; }), HasSubstr("the limit is 1024"));
  for (const Extent bad : {ext(5, 5), ext(6, 5), ext(0, kMaxFileBytes + 1)}) {
    const std::vector<Extent> extents = {ext(0, 10), bad};
    EXPECT_THAT(with([&](auto& r) { r.extents = extents; }), HasSubstr("'extents[1]'"));
  }
}

TEST_F(LockTableTest, as_many_extents_as_the_limit_are_accepted) {
  std::vector<Extent> extents;
  for (uint64_t i = 0; i < kMaxExtentsPerRequest; ++i) extents.push_back(ext(i * 10, i * 10 + 5));
  EXPECT_THAT(ask(kA, LockMode::kPw, extents, kSpeculative).extents, SizeIs(kMaxExtentsPerRequest));
}

TEST_F(LockTableTest, a_granted_extent_costs_at_most_128_bytes) {
  constexpr uint64_t kExtents = 50'000;
  for (uint64_t i = 0; i < kExtents; ++i) {
    // A stride that visits every place once in scattered order.
    const uint64_t place = i * 7919 % kExtents;
    const Extent extent = ext(place * 100, place * 100 + 50);
    LockReply reply;
    ASSERT_TRUE(table_.request(
        {OwnerId(1 + place % 16), LockMode::kPw, GroupId(0), kSpeculative, {&extent, 1}}, reply, events_));
  }
  ASSERT_EQ(table_.granted_count(), kExtents);
  EXPECT_LE(table_.memory_bytes() / kExtents, 128u);
}

}  // namespace
}  // namespace sluice::lockmgr
