#include "lockmgr/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::lockmgr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr SessionId kA(10);
constexpr SessionId kB(20);
constexpr ContainerId kFile(1);
constexpr ContainerId kOther(2);
constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}
constexpr uint32_t kExact = kBlocking | kNoExpand;

class ManualClock final : public Clock {
 public:
  uint64_t now_ms() const override { return now; }
  uint64_t now = 1'000;
};

// Writes down what the server says, as words in the order said.
class Record final : public LockOutbox {
 public:
  void send_grant(SessionId session, RequestId request, ContainerId,
                  const std::vector<ExtentAnswer>& answers) override {
    last = answers;
    std::string line = "grant " + std::to_string(session.value) + " #" + std::to_string(request.value);
    for (const ExtentAnswer& a : answers) line += " " + std::string(to_string(a.answer));
    said.push_back(line);
  }
  void send_error(SessionId session, RequestId request, const Error& error) override {
    last_error = error;
    said.push_back("error " + std::to_string(session.value) + " #" + std::to_string(request.value));
  }
  void send_revoke(SessionId session, ContainerId, LockHandle handle, Extent) override {
    revoked.push_back(handle);
    said.push_back("revoke " + std::to_string(session.value));
  }
  void session_evicted(SessionId session) override {
    said.push_back("evicted " + std::to_string(session.value));
    if (on_evicted) on_evicted();
  }
  std::vector<std::string> take() { return std::exchange(said, {}); }

  std::vector<std::string> said;
  std::vector<ExtentAnswer> last;
  std::vector<LockHandle> revoked;
  Error last_error;
  std::function<void()> on_evicted;
};

class LockServerTest : public testing::Test {
 protected:
  LockServerTest() {
    EXPECT_TRUE(server_.open_session(kA));
    EXPECT_TRUE(server_.open_session(kB));
  }
  void ask(SessionId session, Extent extent, uint32_t flags = kExact, LockMode mode = LockMode::kPw,
           ContainerId container = kFile) {
    EXPECT_TRUE(
        server_.request(session, {RequestId(++request_), container, mode, GroupId(0), flags, {extent}}));
  }
  LockHandle take(SessionId session, Extent extent, LockMode mode = LockMode::kPw,
                  ContainerId container = kFile) {
    ask(session, extent, kExact, mode, container);
    EXPECT_EQ(out_.last.at(0).answer, LockAnswer::kGranted);
    out_.said.clear();
    return out_.last.at(0).handle;
  }
  void release(SessionId session, LockHandle handle, ContainerId container = kFile) {
    EXPECT_TRUE(server_.release(session, container, {&handle, 1}));
  }
  ErrorCode check(SessionId session, LockHandle handle, Extent extent, LockMode access = LockMode::kPw) {
    const auto ok = server_.check(session, kFile, handle, extent, access);
    return ok ? ErrorCode(0) : ok.error().code;
  }

  ManualClock clock_;
  Record out_;
  LockServer server_{clock_, out_, {.lease_ms = 100, .first_generation = 1}};
  uint64_t request_ = 0;
};

TEST_F(LockServerTest, answers_now_or_when_the_holder_gave_back) {
  ask(kA, ext(0, 100));
  EXPECT_THAT(out_.take(), ElementsAre("grant 10 #1 granted"));
  const LockHandle held = out_.last[0].handle;
  ask(kB, ext(50, 60));
  EXPECT_THAT(out_.take(), ElementsAre("revoke 10"));
  EXPECT_THAT(out_.revoked, ElementsAre(held));
  release(kA, held);
  EXPECT_THAT(out_.take(), ElementsAre("grant 20 #2 granted"));
}

TEST_F(LockServerTest, containers_do_not_concern_each_other) {
  take(kA, ext(0, 100));
  take(kB, ext(0, 100), LockMode::kPw, kOther);
  EXPECT_THAT(server_.containers(), ElementsAre(kFile, kOther));
}

TEST_F(LockServerTest, a_bad_request_is_answered_with_an_error) {
  ask(kA, ext(5, 5));
  EXPECT_THAT(out_.take(), ElementsAre("error 10 #1"));
  EXPECT_THAT(out_.last_error.message, HasSubstr("'extents[0]'"));
  EXPECT_THAT(server_.containers(), IsEmpty());
}

TEST_F(LockServerTest, one_id_does_not_name_two_waiting_requests) {
  take(kA, ext(0, 100));
  const LockAsk twice{RequestId(77), kFile, LockMode::kPw, GroupId(0), kBlocking, {ext(0, 10)}};
  EXPECT_TRUE(server_.request(kB, twice));
  EXPECT_TRUE(server_.request(kB, twice));
  EXPECT_THAT(out_.take(), ElementsAre("revoke 10", "error 20 #77"));
  EXPECT_EQ(out_.last_error.code, ErrorCode::kProtocol);
}

TEST_F(LockServerTest, a_silent_session_is_fenced_before_others_get_its_locks) {
  const LockHandle held = take(kA, ext(0, 100));
  ask(kB, ext(0, 100));
  out_.take();
  clock_.now += 99;
  EXPECT_TRUE(server_.renew(kB));
  server_.expire();
  EXPECT_THAT(out_.take(), IsEmpty());
  EXPECT_EQ(check(kA, held, ext(0, 1)), ErrorCode(0));
  clock_.now += 1;
  ErrorCode when_told{};
  out_.on_evicted = [&] { when_told = check(kA, held, ext(0, 1)); };
  server_.expire();
  EXPECT_THAT(out_.take(), ElementsAre("evicted 10", "grant 20 #2 granted"));
  EXPECT_EQ(when_told, ErrorCode::kFenced);
  EXPECT_EQ(check(kA, held, ext(0, 1)), ErrorCode::kFenced);
  const auto talk =
      server_.request(kA, {RequestId(9), kFile, LockMode::kPw, GroupId(0), kBlocking, {ext(0, 1)}});
  ASSERT_FALSE(talk);
  EXPECT_EQ(talk.error().code, ErrorCode::kFenced);
}

TEST_F(LockServerTest, whatever_a_session_says_renews_its_lease) {
  clock_.now += 60;
  ask(kA, ext(0, 10));
  ASSERT_TRUE(server_.release(kB, kFile, {}));
  clock_.now += 60;
  server_.expire();
  EXPECT_EQ(server_.session_count(), 2u);
  EXPECT_EQ(server_.next_deadline_ms(), clock_.now + 40);
}

TEST_F(LockServerTest, without_a_lease_nobody_is_evicted_by_time) {
  LockServer lasting(clock_, out_, {.lease_ms = 0, .first_generation = 1});
  ASSERT_TRUE(lasting.open_session(kA));
  clock_.now += 1'000'000;
  lasting.expire();
  EXPECT_EQ(lasting.session_count(), 1u);
  EXPECT_EQ(lasting.next_deadline_ms(), std::nullopt);
  lasting.evict(kA);
  EXPECT_THAT(out_.take(), ElementsAre("evicted 10"));
}

TEST_F(LockServerTest, a_goodbye_frees_everything_and_evicts_nobody) {
  take(kA, ext(0, 100));
  take(kA, ext(0, 100), LockMode::kPw, kOther);
  ask(kB, ext(0, 100));
  out_.take();
  server_.close_session(kA);
  EXPECT_THAT(out_.take(), ElementsAre("grant 20 #3 granted"));
  EXPECT_THAT(server_.containers(), ElementsAre(kFile));
  server_.close_session(kA);
  server_.close_session(SessionId(99));
}

TEST_F(LockServerTest, a_write_needs_a_lock_that_is_held_reaches_and_is_for_writing) {
  const LockHandle writing = take(kA, ext(0, 100));
  const LockHandle reading = take(kA, ext(200, 300), LockMode::kPr);
  EXPECT_EQ(check(kA, writing, ext(10, 100)), ErrorCode(0));
  EXPECT_EQ(check(kA, writing, ext(10, 101)), ErrorCode::kConflict);
  EXPECT_EQ(check(kA, reading, ext(200, 300), LockMode::kPr), ErrorCode(0));
  EXPECT_EQ(check(kA, reading, ext(200, 300)), ErrorCode::kConflict);
  EXPECT_EQ(check(kB, writing, ext(10, 20)), ErrorCode::kConflict) << "somebody else's token";
  EXPECT_FALSE(server_.check(kA, kOther, writing, ext(10, 20), LockMode::kPw)) << "another file's token";
  release(kA, writing);
  EXPECT_EQ(check(kA, writing, ext(10, 20)), ErrorCode::kConflict);
  take(kA, ext(0, 100));
  EXPECT_EQ(check(kA, writing, ext(10, 20)), ErrorCode::kConflict) << "a handle names one lock for ever";
}

TEST_F(LockServerTest, without_a_token_only_the_session_is_checked) {
  EXPECT_EQ(check(kA, kNoLock, ext(0, 10)), ErrorCode(0));
  server_.evict(kA);
  EXPECT_EQ(check(kA, kNoLock, ext(0, 10)), ErrorCode::kFenced);
}

TEST_F(LockServerTest, a_handle_is_not_reused_after_a_file_had_no_locks) {
  const LockHandle first = take(kA, ext(0, 100));
  release(kA, first);
  ASSERT_THAT(server_.containers(), IsEmpty());
  const LockHandle second = take(kA, ext(0, 100));
  EXPECT_NE(first, second);
  release(kA, first);
  EXPECT_EQ(check(kA, second, ext(0, 100)), ErrorCode(0))
      << "a late release of the old lock took the new one";
}

TEST_F(LockServerTest, withdrawing_lets_the_next_one_in) {
  const LockHandle held = take(kA, ext(0, 100), LockMode::kPr);
  ask(kB, ext(0, 100));
  const RequestId waiting(request_);
  ASSERT_TRUE(server_.withdraw(kB, waiting));
  ASSERT_TRUE(server_.withdraw(kB, waiting)) << "twice is fine: the grant may cross the withdrawal";
  out_.take();
  release(kA, held);
  EXPECT_THAT(out_.take(), IsEmpty());
  EXPECT_THAT(server_.containers(), IsEmpty());
}

TEST_F(LockServerTest, a_removed_file_frees_its_locks_and_answers_who_waits) {
  take(kA, ext(0, 100));
  ask(kB, ext(0, 100));
  out_.take();
  server_.remove_container(kFile);
  EXPECT_THAT(out_.take(), ElementsAre("error 20 #2"));
  EXPECT_EQ(out_.last_error.code, ErrorCode::kNotFound);
  EXPECT_EQ(server_.lock_count(kA), 0u);
  server_.close_session(kB);
  server_.remove_container(kFile);
}

TEST_F(LockServerTest, too_many_waiting_requests_of_one_session_are_refused) {
  take(kA, ext(0, 100));
  for (size_t i = 0; i < LockServer::kMaxWaitingPerSession; ++i) ask(kB, ext(0, 100));
  EXPECT_THAT(out_.take(), ElementsAre("revoke 10"));
  ask(kB, ext(0, 100));
  EXPECT_THAT(out_.take(), SizeIs(1));
  EXPECT_EQ(out_.last_error.code, ErrorCode::kBusy);
  EXPECT_TRUE(out_.last_error.retryable);
  server_.close_session(kB);
  EXPECT_EQ(server_.table(kFile)->waiting_count(), 0u);
}

TEST_F(LockServerTest, at_the_limit_of_locks_asking_ahead_drops_and_ordinary_requests_go_on) {
  std::vector<Extent> batch(kMaxExtentsPerRequest);
  uint64_t next = 0;
  const auto ask_batch = [&](uint32_t flags) {
    for (Extent& e : batch) e = ext(next, next + 1), next += 2;
    ASSERT_TRUE(server_.request(kA, {RequestId(++request_), kFile, LockMode::kPw, GroupId(0), flags, batch}));
  };
  for (size_t i = 0; i < LockServer::kMaxLocksPerSession / batch.size(); ++i) ask_batch(kSpeculative);
  ASSERT_EQ(server_.lock_count(kA), LockServer::kMaxLocksPerSession);
  ask_batch(kSpeculative);
  EXPECT_EQ(out_.last[0].answer, LockAnswer::kDropped);
  EXPECT_EQ(out_.last[0].blocker, LockBlocker::kLimit);
  EXPECT_THAT(out_.revoked, IsEmpty());
  ask_batch(kExact);
  EXPECT_EQ(out_.last[0].answer, LockAnswer::kGranted);
  EXPECT_THAT(out_.revoked, SizeIs(LockServer::kReclaimBatch));
  for (size_t i = 0; i < LockServer::kLockHeadroom / batch.size(); ++i) ask_batch(kExact);
  EXPECT_EQ(out_.last_error.code, ErrorCode::kBusy);
  EXPECT_EQ(server_.lock_count(kA), LockServer::kMaxLocksPerSession + LockServer::kLockHeadroom);
  // What comes back makes room again.
  ASSERT_TRUE(server_.release(kA, kFile, out_.revoked));
  ask_batch(kExact);
  EXPECT_EQ(out_.last[0].answer, LockAnswer::kGranted);
}

TEST_F(LockServerTest, reclaiming_takes_what_was_asked_ahead_first) {
  const LockHandle ordinary = take(kA, ext(0, 10));
  ask(kA, ext(20, 30), kSpeculative);
  const LockHandle ahead = out_.last[0].handle;
  EXPECT_EQ(server_.reclaim(kFile, 1), 1u);
  EXPECT_THAT(out_.revoked, ElementsAre(ahead));
  EXPECT_EQ(server_.reclaim(kFile, 5), 1u);
  EXPECT_THAT(out_.revoked, ElementsAre(ahead, ordinary));
}

TEST_F(LockServerTest, session_ids_are_checked) {
  EXPECT_EQ(server_.open_session(kA).error().code, ErrorCode::kExists);
  EXPECT_EQ(server_.open_session(SessionId(0)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(server_.renew(SessionId(5)).error().code, ErrorCode::kFenced);
  EXPECT_EQ(server_.release(SessionId(5), kFile, {}).error().code, ErrorCode::kFenced);
  EXPECT_EQ(server_.withdraw(SessionId(5), RequestId(1)).error().code, ErrorCode::kFenced);
  EXPECT_EQ(server_.finish_replay(SessionId(5)).error().code, ErrorCode::kFenced);
}

TEST_F(LockServerTest, it_counts_for_each_container_what_its_locks_did) {
  ask(kA, ext(0, 10), kBlocking);
  ask(kB, ext(20, 30), kSpeculative | kNoExpand);
  ask(kB, ext(20, 30));
  clock_.now += 7;
  release(kA, out_.revoked.at(0));
  const LockServerCounts& counts = server_.counts().at(kFile);
  EXPECT_EQ(counts.grants, 2u);
  EXPECT_EQ(counts.expansions, 1u);
  EXPECT_EQ(counts.revokes, 1u);
  EXPECT_EQ(counts.ahead_extents, 1u);
  EXPECT_EQ(counts.ahead_dropped, 1u);
  EXPECT_EQ(counts.waits, 1u);
  EXPECT_EQ(counts.wait_ms, 7u);
  for (uint64_t i = 0; i < 2 * LockServer::kMaxCounted; ++i) {
    const ContainerId other(100 + i);
    release(kA, take(kA, ext(0, 10), LockMode::kPw, other), other);
  }
  EXPECT_LE(server_.counts().size(), LockServer::kMaxCounted);
  EXPECT_TRUE(server_.counts().contains(kFile)) << "it has locks";
}

TEST_F(LockServerTest, short_of_memory_it_asks_for_locks_back_and_takes_nothing_ahead_until_there_is_room) {
  LockServer small{clock_, out_, {.lease_ms = 0, .memory_limit_bytes = 64 << 10}};
  ASSERT_TRUE(small.open_session(kA));
  std::vector<Extent> window;
  for (uint64_t i = 0; i < 1000; ++i) window.push_back(ext(i * 10, i * 10 + 5));
  const auto ahead = [&](std::vector<Extent> extents) {
    return small.request(kA,
                         {RequestId(++request_), kFile, LockMode::kPw, GroupId(0), kSpeculative, extents});
  };
  ASSERT_TRUE(ahead(window));
  ASSERT_GT(small.used_bytes(), size_t{64} << 10);
  out_.revoked.clear();
  small.expire();
  EXPECT_THAT(out_.revoked, testing::Not(IsEmpty()));
  ASSERT_TRUE(ahead({ext(100'000, 100'001)}));
  EXPECT_EQ(out_.last.at(0).answer, LockAnswer::kDropped);
  EXPECT_EQ(out_.last.at(0).blocker, LockBlocker::kLimit);
  ASSERT_TRUE(small.request(
      kA, {RequestId(++request_), kFile, LockMode::kPw, GroupId(0), kExact, {ext(200'000, 200'001)}}));
  EXPECT_EQ(out_.last.at(0).answer, LockAnswer::kGranted) << "what is needed now is granted all the same";
  for (int i = 0; i < 100 && small.used_bytes() > (size_t{64} << 10); ++i) {
    ASSERT_TRUE(small.release(kA, kFile, std::exchange(out_.revoked, {})));
    small.expire();
  }
  ASSERT_TRUE(ahead({ext(100'000, 100'001)}));
  EXPECT_EQ(out_.last.at(0).answer, LockAnswer::kGranted);
}

class RecoveryTest : public LockServerTest {
 protected:
  LockHandle replay(SessionId session, Extent extent, LockMode mode = LockMode::kPw) {
    const HeldLock held{LockHandle(5), mode, GroupId(0), extent, true};
    const auto handles = server_.replay(session, kFile, {&held, 1});
    EXPECT_TRUE(handles) << (handles ? "" : handles.error().message);
    return handles ? handles->at(0) : kNoLock;
  }
};

TEST_F(RecoveryTest, nothing_new_is_granted_until_all_have_replayed) {
  server_.begin_recovery(clock_.now + 50, {kA, kB});
  ask(kB, ext(50, 60));
  ask(kB, ext(500, 600));
  ask(kB, ext(700, 800), kSpeculative);
  EXPECT_THAT(out_.take(), ElementsAre("grant 20 #3 dropped"));
  EXPECT_EQ(out_.last[0].blocker, LockBlocker::kRecovery);
  const LockHandle again = replay(kA, ext(0, 100));
  EXPECT_EQ(check(kA, again, ext(0, 100)), ErrorCode(0));
  ASSERT_TRUE(server_.finish_replay(kA));
  EXPECT_TRUE(server_.recovering());
  EXPECT_THAT(out_.take(), IsEmpty());
  ASSERT_TRUE(server_.finish_replay(kB));
  EXPECT_FALSE(server_.recovering());
  EXPECT_THAT(out_.take(), ElementsAre("revoke 10", "grant 20 #2 granted"));
  release(kA, again);
  EXPECT_THAT(out_.take(), ElementsAre("grant 20 #1 granted"));
}

TEST_F(RecoveryTest, who_does_not_come_back_in_time_is_evicted) {
  server_.begin_recovery(clock_.now + 50, {kA, kB, SessionId(30)});
  EXPECT_EQ(server_.next_deadline_ms(), clock_.now + 50);
  replay(kA, ext(0, 100));
  ASSERT_TRUE(server_.finish_replay(kA));
  replay(kB, ext(200, 300));
  ask(kA, ext(200, 300));
  clock_.now += 50;
  server_.expire();
  EXPECT_FALSE(server_.recovering());
  EXPECT_THAT(out_.take(), ElementsAre("evicted 20", "grant 10 #1 granted"));
}

TEST_F(RecoveryTest, it_ends_before_its_time_when_somebody_knows_that_all_came) {
  server_.begin_recovery(clock_.now + 50, {});
  ask(kB, ext(0, 10));
  EXPECT_THAT(out_.take(), IsEmpty());
  server_.stop_recovery();
  EXPECT_FALSE(server_.recovering());
  EXPECT_THAT(out_.take(), ElementsAre("grant 20 #1 granted"));
  server_.stop_recovery();
}

TEST_F(RecoveryTest, the_second_of_two_conflicting_replays_is_lost_and_said_so) {
  server_.begin_recovery(clock_.now + 50, {});
  EXPECT_NE(replay(kA, ext(0, 100)), kNoLock);
  EXPECT_EQ(replay(kB, ext(50, 150)), kNoLock);
  EXPECT_NE(replay(kB, ext(100, 150)), kNoLock);
  EXPECT_EQ(server_.lock_count(kB), 1u);
}

TEST_F(RecoveryTest, replaying_is_refused_outside_the_window_and_when_it_makes_no_sense) {
  const HeldLock good{LockHandle(5), LockMode::kPw, GroupId(0), ext(0, 10), true};
  EXPECT_EQ(server_.replay(kA, kFile, {&good, 1}).error().code, ErrorCode::kConflict);
  server_.begin_recovery(clock_.now + 50, {});
  const HeldLock bad{LockHandle(5), LockMode::kPw, GroupId(0), ext(10, 10), true};
  const std::vector<HeldLock> both = {good, bad};
  EXPECT_EQ(server_.replay(kA, kFile, both).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(server_.lock_count(kA), 0u) << "all or nothing";
  EXPECT_THAT(server_.containers(), IsEmpty());
  ASSERT_TRUE(server_.finish_replay(kA));
  EXPECT_EQ(server_.replay(kA, kFile, {&good, 1}).error().code, ErrorCode::kConflict);
}

TEST_F(RecoveryTest, requests_kept_back_are_checked_withdrawn_and_forgotten_like_others) {
  server_.begin_recovery(clock_.now + 50, {});
  ask(kA, ext(0, 10));
  EXPECT_TRUE(server_.request(kA, {RequestId(1), kFile, LockMode::kPw, GroupId(0), kBlocking, {ext(0, 10)}}));
  EXPECT_THAT(out_.take(), ElementsAre("error 10 #1")) << "the id is taken";
  ask(kA, ext(20, 30));
  ask(kB, ext(40, 50));
  ASSERT_TRUE(server_.withdraw(kA, RequestId(2)));
  server_.close_session(kB);
  clock_.now += 50;
  ASSERT_TRUE(server_.renew(kA));
  server_.expire();
  EXPECT_THAT(out_.take(), ElementsAre("grant 10 #1 granted"));
}

}  // namespace
}  // namespace sluice::lockmgr
