#include "lockmgr/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace sluice::lockmgr {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ContainerId kFile(1);
constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}
constexpr Extent kWhole = ext(0, kMaxFileBytes);

class ManualClock final : public Clock {
 public:
  uint64_t now_ms() const override { return now; }
  uint64_t now = 1'000;
};

class Wire final : public LockRequester {
 public:
  void send_request(const LockAsk& ask) override { asked.push_back(ask); }
  void send_release(ContainerId, const std::vector<LockHandle>& handles) override {
    released.insert(released.end(), handles.begin(), handles.end());
  }
  std::vector<LockAsk> asked;
  std::vector<LockHandle> released;
};

class Flusher final : public LockFlusher {
 public:
  void flush(ContainerId, Extent extent, std::function<void()> done) override {
    extents.push_back(extent);
    if (at_once) return done();
    pending.push_back(std::move(done));
  }
  void finish() {
    for (auto& done : std::exchange(pending, {})) done();
  }
  bool at_once = false;
  std::vector<Extent> extents;
  std::vector<std::function<void()>> pending;
};

class LockCacheTest : public testing::Test {
 protected:
  // What an acquire came to.
  struct Got {
    std::optional<Result<LockUse>> result;
    bool ok() const { return result && result->has_value(); }
    void end() { (*result)->end(); }
    LockToken token() const { return (*result)->token(); }
  };
  std::shared_ptr<Got> acquire(Extent extent, LockMode access = LockMode::kPw) {
    auto got = std::make_shared<Got>();
    cache_.acquire(kFile, extent, access,
                   [got](Result<LockUse> use) { got->result.emplace(std::move(use)); });
    return got;
  }
  std::shared_ptr<Got> take_hold(Extent extent, LockMode access = LockMode::kPw) {
    auto got = std::make_shared<Got>();
    cache_.hold(kFile, extent, access, [got](Result<LockUse> use) { got->result.emplace(std::move(use)); });
    return got;
  }
  void grant(Extent extent, uint64_t handle, LockAnswer answer = LockAnswer::kGranted) {
    const LockAsk ask = wire_.asked.back();
    cache_.on_answer(ask.id, kFile, {{answer, LockBlocker::kNone, LockHandle(handle), extent, ask.mode}});
  }
  // Holds a lock without users.
  void hold(Extent extent, uint64_t handle, LockMode access = LockMode::kPw) {
    const auto got = acquire(extent, access);
    grant(extent, handle);
    ASSERT_TRUE(got->ok());
    got->end();
  }

  ManualClock clock_;
  Wire wire_;
  Flusher flusher_;
  LockCache cache_{clock_, wire_, flusher_, {.max_idle_locks = 4, .max_idle_ms = 100}};
};

TEST_F(LockCacheTest, asks_once_and_answers_from_the_cache_afterwards) {
  const auto first = acquire(ext(0, 10));
  ASSERT_THAT(wire_.asked, SizeIs(1));
  EXPECT_EQ(wire_.asked[0].flags, kBlocking);
  EXPECT_FALSE(first->result);
  grant(kWhole, 7);
  ASSERT_TRUE(first->ok());
  EXPECT_EQ(first->token().handle, LockHandle(7));
  EXPECT_TRUE(acquire(ext(1000, 2000))->ok());
  EXPECT_TRUE(acquire(ext(0, 10), LockMode::kPr)->ok()) << "who may write may read";
  EXPECT_THAT(wire_.asked, SizeIs(1));
}

TEST_F(LockCacheTest, a_read_lock_is_not_enough_for_writing) {
  hold(ext(0, 10), 7, LockMode::kPr);
  EXPECT_FALSE(acquire(ext(0, 10))->result);
  EXPECT_THAT(wire_.asked, SizeIs(2));
  cache_.session_lost();
}

TEST_F(LockCacheTest, mode_none_answers_at_once_with_the_null_token) {
  cache_.use_strategy(kFile, std::make_unique<NoneStrategy>());
  const auto got = acquire(ext(0, 10));
  ASSERT_TRUE(got->ok());
  EXPECT_EQ(got->token().handle, kNoLock);
  EXPECT_EQ(got->token().container, kFile);
  EXPECT_THAT(wire_.asked, IsEmpty());
}

TEST_F(LockCacheTest, a_hold_asks_for_a_lock_under_mode_none_and_beside_a_groups_lock) {
  cache_.use_strategy(kFile, std::make_unique<NoneStrategy>());
  const auto alone = take_hold(ext(0, 10));
  EXPECT_FALSE(alone->result);
  ASSERT_THAT(wire_.asked, SizeIs(1));
  EXPECT_EQ(wire_.asked[0].mode, LockMode::kPw);
  grant(ext(0, 10), 7);
  ASSERT_TRUE(alone->ok());

  cache_.use_strategy(kFile, std::make_unique<GroupStrategy>(GroupId(5)));
  const auto member = acquire(ext(20, 30));
  grant(kWhole, 8);
  ASSERT_TRUE(member->ok());
  const auto held = take_hold(ext(20, 30), LockMode::kPr);
  EXPECT_FALSE(held->result) << "the group's lock lets its other members in";
  EXPECT_EQ(wire_.asked.back().mode, LockMode::kPr);
  EXPECT_EQ(wire_.asked.back().group, GroupId(0));
  grant(ext(20, 30), 9);
  ASSERT_TRUE(held->ok());
  EXPECT_EQ(held->token().handle, LockHandle(9));
}

TEST_F(LockCacheTest, accesses_inside_a_hold_go_on_under_it_when_it_is_asked_back) {
  const auto held = take_hold(ext(0, 100));
  grant(ext(0, 100), 7);
  ASSERT_TRUE(held->ok());
  cache_.on_revoke(kFile, LockHandle(7));
  const auto inside = acquire(ext(10, 20));
  ASSERT_TRUE(inside->ok()) << "it would wait for who waits for this very lock";
  EXPECT_EQ(inside->token().handle, LockHandle(7));
  const auto next = take_hold(ext(0, 100));
  EXPECT_FALSE(next->result) << "another hold begins behind who waits";
  held->end();
  EXPECT_FALSE(acquire(ext(10, 20))->result) << "no new use after the hold";
  EXPECT_THAT(wire_.released, IsEmpty());
  inside->end();
  flusher_.finish();
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(7)));
  cache_.session_lost();
}

TEST_F(LockCacheTest, accesses_inside_a_pending_request_share_its_answer) {
  const auto outer = acquire(ext(0, 100));
  const auto inner = acquire(ext(10, 20));
  const auto reader = acquire(ext(10, 20), LockMode::kPr);
  const auto beyond = acquire(ext(90, 110));
  ASSERT_THAT(wire_.asked, SizeIs(2));
  const LockAsk first = wire_.asked[0];
  cache_.on_answer(first.id, kFile,
                   {{LockAnswer::kGranted, LockBlocker::kNone, LockHandle(7), ext(0, 100), first.mode}});
  EXPECT_TRUE(outer->ok() && inner->ok() && reader->ok());
  EXPECT_FALSE(beyond->result);
  cache_.session_lost();
}

TEST_F(LockCacheTest, a_revoked_lock_is_released_when_its_last_user_is_done_and_flushed) {
  const auto a = acquire(ext(0, 10));
  grant(kWhole, 7);
  const auto b = acquire(ext(20, 30));
  cache_.on_revoke(kFile, LockHandle(7));
  EXPECT_FALSE(acquire(ext(0, 10))->result) << "no new users";
  a->end();
  EXPECT_THAT(flusher_.extents, IsEmpty());
  b->end();
  EXPECT_THAT(flusher_.extents, ElementsAre(kWhole));
  EXPECT_THAT(wire_.released, IsEmpty()) << "not before it is flushed";
  flusher_.finish();
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(7)));
  cache_.on_revoke(kFile, LockHandle(7));
  cache_.on_revoke(kFile, LockHandle(99));
  EXPECT_THAT(wire_.released, SizeIs(1));
  cache_.session_lost();
}

TEST_F(LockCacheTest, a_lock_nothing_was_written_under_is_released_without_a_flush) {
  hold(ext(0, 10), 7, LockMode::kPr);
  cache_.on_revoke(kFile, LockHandle(7));
  EXPECT_THAT(flusher_.extents, IsEmpty());
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(7)));
}

TEST_F(LockCacheTest, the_least_recently_used_goes_first_and_old_ones_go_by_age) {
  flusher_.at_once = true;
  for (uint64_t i = 0; i < 4; ++i) hold(ext(i * 10, i * 10 + 10), i + 1);
  acquire(ext(0, 10))->end();
  hold(ext(100, 110), 5);
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(2)));
  clock_.now += 60;
  acquire(ext(100, 110))->end();
  clock_.now += 40;
  cache_.tick();
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(2), LockHandle(3), LockHandle(4), LockHandle(1)));
  EXPECT_EQ(cache_.lock_count(), 1u);
}

TEST_F(LockCacheTest, a_new_user_brings_back_a_lock_that_is_being_given_up) {
  hold(ext(0, 10), 7);
  clock_.now += 100;
  cache_.tick();
  ASSERT_THAT(flusher_.pending, SizeIs(1));
  const auto again = acquire(ext(0, 5));
  ASSERT_TRUE(again->ok());
  flusher_.finish();
  EXPECT_THAT(wire_.released, IsEmpty());
  again->end();
  cache_.drop(kFile);
  EXPECT_THAT(flusher_.extents, SizeIs(2)) << "what was written since is flushed too";
  flusher_.finish();
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(7)));
}

TEST_F(LockCacheTest, a_larger_lock_makes_smaller_ones_needless_and_takes_over_what_they_wrote) {
  hold(ext(0, 10), 1);
  hold(ext(20, 30), 2, LockMode::kPr);
  const auto busy = acquire(ext(0, 10));
  const auto large = acquire(ext(0, 50), LockMode::kPw);
  grant(ext(0, 50), 3);
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(2))) << "the other one is in use";
  busy->end();
  large->end();
  const auto larger = acquire(ext(0, 80), LockMode::kPr);
  grant(ext(0, 80), 4);
  EXPECT_THAT(wire_.released, SizeIs(1)) << "a read lock does not stand for a write lock";
  larger->end();
  const auto largest = acquire(ext(0, 100));
  grant(ext(0, 100), 5);
  EXPECT_THAT(wire_.released,
              testing::UnorderedElementsAre(LockHandle(2), LockHandle(1), LockHandle(3), LockHandle(4)));
  EXPECT_THAT(flusher_.extents, IsEmpty());
  largest->end();
  cache_.on_revoke(kFile, LockHandle(5));
  EXPECT_THAT(flusher_.extents, ElementsAre(ext(0, 100)));
  flusher_.finish();
}

TEST_F(LockCacheTest, bytes_written_under_an_absorbed_lock_are_flushed_though_the_large_one_only_reads) {
  hold(ext(0, 10), 1);
  const auto reader = acquire(ext(0, 50), LockMode::kPr);
  const LockAsk ask = wire_.asked.back();
  ASSERT_EQ(ask.mode, LockMode::kPr);
  grant(ext(0, 50), 2);
  EXPECT_THAT(wire_.released, IsEmpty());
  reader->end();
  cache_.on_revoke(kFile, LockHandle(1));
  EXPECT_THAT(flusher_.extents, ElementsAre(ext(0, 10)));
  flusher_.finish();
}

// Takes write locks even for reading.
class EagerStrategy final : public LockStrategy {
 public:
  std::string explain() const override { return "for a test"; }
  LockPlan plan(const Extent& access, LockMode, bool) override {
    LockPlan plan;
    plan.extent = access;
    return plan;
  }
};

TEST_F(LockCacheTest, a_lock_that_absorbs_a_written_one_is_flushed_though_nothing_was_written_under_it) {
  hold(ext(0, 10), 1);
  cache_.use_strategy(kFile, std::make_unique<EagerStrategy>());
  const auto reader = acquire(ext(0, 50), LockMode::kPr);
  grant(ext(0, 50), 2);
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(1)));
  EXPECT_THAT(flusher_.extents, IsEmpty());
  reader->end();
  cache_.on_revoke(kFile, LockHandle(2));
  EXPECT_THAT(flusher_.extents, ElementsAre(ext(0, 50)));
  flusher_.finish();
}

TEST_F(LockCacheTest, covered_by_a_lock_that_was_given_back_meanwhile_asks_again) {
  const auto got = acquire(ext(0, 10));
  grant(ext(0, 10), 42, LockAnswer::kCovered);
  EXPECT_FALSE(got->result);
  ASSERT_THAT(wire_.asked, SizeIs(2));
  grant(ext(0, 10), 43);
  EXPECT_TRUE(got->ok());
}

TEST_F(LockCacheTest, covered_by_a_lock_that_came_meanwhile_uses_it) {
  const auto first = acquire(ext(0, 10));
  const auto second = acquire(ext(20, 30));
  const LockAsk a = wire_.asked[0];
  cache_.on_answer(a.id, kFile, {{LockAnswer::kGranted, LockBlocker::kNone, LockHandle(7), kWhole, a.mode}});
  grant(kWhole, 7, LockAnswer::kCovered);
  ASSERT_TRUE(second->ok());
  EXPECT_EQ(second->token().handle, LockHandle(7));
  EXPECT_EQ(cache_.lock_count(), 1u);
}

TEST_F(LockCacheTest, an_answer_that_does_not_fit_is_an_error_and_grants_nothing) {
  const auto rejects = [&](const std::vector<ExtentAnswer>& answers) {
    const auto got = acquire(ext(0, 10));
    cache_.on_answer(wire_.asked.back().id, kFile, answers);
    EXPECT_TRUE(got->result && !*got->result);
    EXPECT_EQ(got->result->error().code, ErrorCode::kProtocol);
    EXPECT_EQ(cache_.lock_count(), 0u);
  };
  rejects({});
  rejects({{LockAnswer::kGranted, LockBlocker::kNone, LockHandle(7), ext(0, 5), LockMode::kPw}});
  rejects({{LockAnswer::kGranted, LockBlocker::kNone, kNoLock, ext(0, 10), LockMode::kPw}});
  rejects({{LockAnswer::kGranted, LockBlocker::kNone, LockHandle(7), ext(0, 10), LockMode::kPr}});
  rejects({{LockAnswer::kDropped, LockBlocker::kGrantedLock, kNoLock, ext(0, 10), LockMode::kPw}});
  rejects({{LockAnswer::kGranted, LockBlocker::kNone, LockHandle(7), ext(0, UINT64_MAX), LockMode::kPw}});
}

TEST_F(LockCacheTest, a_grant_nobody_waits_for_is_given_back) {
  cache_.on_answer(RequestId(999), kFile,
                   {{LockAnswer::kGranted, LockBlocker::kNone, LockHandle(7), kWhole, LockMode::kPw},
                    {LockAnswer::kCovered, LockBlocker::kNone, LockHandle(8), kWhole, LockMode::kPw}});
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(7)));
  cache_.on_error(RequestId(999), Error(ErrorCode::kBusy, "x"));
}

TEST_F(LockCacheTest, an_error_reaches_all_that_wait_for_the_request) {
  const auto a = acquire(ext(0, 10));
  const auto b = acquire(ext(2, 5));
  cache_.on_error(wire_.asked.back().id, Error(ErrorCode::kBusy, "full"));
  EXPECT_EQ(a->result->error().code, ErrorCode::kBusy);
  EXPECT_EQ(b->result->error().code, ErrorCode::kBusy);
  EXPECT_EQ(cache_.pending_count(), 0u);
}

TEST_F(LockCacheTest, asking_ahead_skips_what_is_held_or_asked_already) {
  hold(ext(0, 10), 1);
  std::vector<ExtentAnswer> heard;
  const std::vector<Extent> window = {ext(0, 10), ext(10, 20), ext(20, 30)};
  cache_.ask_ahead(kFile, LockMode::kPw, window, [&](const auto& answers) { heard = *answers; });
  ASSERT_THAT(wire_.asked, SizeIs(2));
  EXPECT_THAT(wire_.asked[1].extents, ElementsAre(ext(10, 20), ext(20, 30)));
  EXPECT_EQ(wire_.asked[1].flags, kSpeculative | kNoExpand);
  bool nothing_new = false;
  cache_.ask_ahead(kFile, LockMode::kPw, window,
                   [&](const auto& answers) { nothing_new = answers->empty(); });
  EXPECT_TRUE(nothing_new);
  EXPECT_THAT(wire_.asked, SizeIs(2));
  cache_.on_answer(wire_.asked[1].id, kFile,
                   {{LockAnswer::kDropped, LockBlocker::kGrantedLock, kNoLock, ext(10, 20), LockMode::kPw},
                    {LockAnswer::kGranted, LockBlocker::kNone, LockHandle(2), ext(20, 30), LockMode::kPw}});
  EXPECT_THAT(heard, SizeIs(2));
  EXPECT_TRUE(acquire(ext(20, 30))->ok());
  cache_.ask_ahead(kFile, LockMode::kPw, window, {});
  EXPECT_THAT(wire_.asked[2].extents, ElementsAre(ext(10, 20))) << "a dropped extent may be asked for again";
  cache_.session_lost();
}

TEST_F(LockCacheTest, more_extents_than_a_request_holds_are_asked_in_several_and_heard_of_together) {
  std::vector<Extent> window;
  for (uint64_t i = 0; i < kMaxExtentsPerRequest + 5; ++i) window.push_back(ext(i * 10, i * 10 + 10));
  size_t calls = 0;
  std::vector<ExtentAnswer> heard;
  cache_.ask_ahead(kFile, LockMode::kPw, window, [&](const auto& answers) {
    ++calls;
    heard = *answers;
  });
  ASSERT_THAT(wire_.asked, SizeIs(2));
  for (const LockAsk& ask : std::vector<LockAsk>(wire_.asked)) {
    std::vector<ExtentAnswer> answers;
    for (const Extent& e : ask.extents) {
      answers.push_back({LockAnswer::kDropped, LockBlocker::kGrantedLock, kNoLock, e, LockMode::kPw});
    }
    cache_.on_answer(ask.id, kFile, answers);
  }
  EXPECT_EQ(calls, 1u);
  ASSERT_EQ(heard.size(), window.size());
  EXPECT_EQ(heard.back().extent, window.back());
}

TEST_F(LockCacheTest, dropping_a_file_gives_back_idle_locks_now_and_used_ones_at_their_end) {
  flusher_.at_once = true;
  hold(ext(0, 10), 1);
  const auto busy = acquire(ext(50, 60));
  grant(ext(50, 60), 2);
  cache_.drop(kFile);
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(1)));
  busy->end();
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(1), LockHandle(2)));
  cache_.drop(kFile);
  cache_.drop(ContainerId(99));
}

TEST_F(LockCacheTest, a_grant_for_a_dropped_file_does_not_linger) {
  flusher_.at_once = true;
  cache_.ask_ahead(kFile, LockMode::kPw, std::vector<Extent>{ext(0, 10)}, {});
  const auto late = acquire(ext(20, 30));
  cache_.drop(kFile);
  grant(ext(20, 30), 2);
  ASSERT_TRUE(late->ok());
  late->end();
  const LockAsk ahead = wire_.asked[0];
  cache_.on_answer(ahead.id, kFile,
                   {{LockAnswer::kGranted, LockBlocker::kNone, LockHandle(1), ext(0, 10), ahead.mode}});
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(2), LockHandle(1)));
  EXPECT_EQ(cache_.lock_count(), 0u);
}

TEST_F(LockCacheTest, a_lost_session_fails_who_waits_and_leaves_users_a_stale_token) {
  const auto busy = acquire(ext(0, 10));
  grant(ext(0, 10), 7);
  hold(ext(20, 30), 8);
  const auto waiting = acquire(ext(40, 50));
  cache_.session_lost();
  ASSERT_TRUE(waiting->result && !*waiting->result);
  EXPECT_EQ(waiting->result->error().code, ErrorCode::kFenced);
  EXPECT_EQ(busy->token().handle, LockHandle(7));
  EXPECT_EQ(cache_.lock_count(), 0u);
  const auto again = acquire(ext(0, 10));
  EXPECT_FALSE(again->result) << "nothing is answered from the old session's locks";
  busy->end();
  EXPECT_THAT(wire_.released, IsEmpty());
  grant(ext(0, 10), 9);
  EXPECT_TRUE(again->ok());
}

TEST_F(LockCacheTest, after_a_restart_locks_get_new_names_and_requests_are_sent_again) {
  flusher_.at_once = true;
  const auto busy = acquire(ext(0, 10));
  grant(ext(0, 10), 7);
  hold(ext(20, 30), 8);
  hold(ext(40, 50), 9);
  hold(ext(60, 70), 10);
  const auto waiting = acquire(ext(80, 90));
  cache_.suspend();
  const auto held = cache_.held();
  const std::vector<HeldLock> locks = held.at(kFile);
  ASSERT_THAT(locks, SizeIs(4));
  const auto meanwhile = acquire(ext(100, 110));
  const size_t sent = wire_.asked.size();
  cache_.on_revoke(kFile, LockHandle(10));
  wire_.released.clear();
  // New handles that look like others' old ones, one lost, one for a lock that was given back on the way.
  std::vector<LockHandle> handles;
  for (const HeldLock& lock : locks) {
    handles.push_back(lock.handle == LockHandle(7)   ? LockHandle(8)
                      : lock.handle == LockHandle(8) ? LockHandle(7)
                      : lock.handle == LockHandle(9) ? kNoLock
                                                     : LockHandle(55));
  }
  cache_.replayed(kFile, locks, handles);
  EXPECT_EQ(busy->token().handle, LockHandle(8));
  EXPECT_THAT(wire_.released, ElementsAre(LockHandle(55)));
  EXPECT_EQ(cache_.lock_count(), 2u);
  EXPECT_EQ(wire_.asked.size(), sent);
  cache_.resend();
  ASSERT_EQ(wire_.asked.size(), sent + 2);
  EXPECT_THAT(wire_.asked[sent].extents, ElementsAre(ext(80, 90)));
  EXPECT_THAT(wire_.asked[sent + 1].extents, ElementsAre(ext(100, 110)));
  EXPECT_FALSE(acquire(ext(40, 50))->result) << "it was lost";
  cache_.session_lost();
}

TEST_F(LockCacheTest, a_use_can_be_moved_and_ended_early) {
  const auto got = acquire(ext(0, 10));
  grant(ext(0, 10), 7);
  LockUse use = std::move(**got->result);
  got->end();
  EXPECT_EQ(cache_.idle_count(), 0u);
  use.end();
  use.end();
  EXPECT_EQ(cache_.idle_count(), 1u);
  EXPECT_EQ(use.token().handle, kNoLock);
}

}  // namespace
}  // namespace sluice::lockmgr
