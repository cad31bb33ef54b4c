#include "burst_buffer/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>

#include "base/checksum.h"
#include "burst_buffer/fake_sink.h"
#include "burst_buffer/hot_tier.h"
#include "burst_buffer/sim_domain.h"

namespace sluice::burst_buffer {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr size_t kPoolBytes = 1024 * 1024;
constexpr uint64_t kStripeBytes = 4000;
const ContainerId kFile(7);
constexpr auto kPatience = std::chrono::seconds(20);

class DrainTest : public ::testing::Test {
 protected:
  DrainTest() {
    HotTier::Options options{"test.pool", kPoolBytes, [this](ContainerId c) { return sink_.find(c); }};
    auto opened = HotTier::open(options, domain_);
    EXPECT_TRUE(opened) << opened.error().message;
    hot_ = std::move(*opened);
    options_.retry_ms = 1;
    options_.poll_ms = 1;
    options_.on_progress = [this](Result<> outcome) {
      const std::lock_guard lock(mutex_);
      progress_.push_back(std::move(outcome));
      changed_.notify_all();
    };
    sink_.on_step([this](const std::string& step) {
      std::unique_lock lock(mutex_);
      steps_.push_back(step);
      changed_.notify_all();
      return fail_step_ ? fail_step_(step) : Result<>();
    });
  }
  void create() { drain_ = Drain::create(*hot_, sink_, options_); }

  void put(uint64_t txn, uint64_t at, const std::string& text) {
    auto slab = hot_->reserve(Length(text.size()));
    ASSERT_TRUE(slab) << slab.error().message;
    std::memcpy(hot_->bytes(*slab).data(), text.data(), text.size());
    const Extent extent = Extent::at(Offset(at), Length(text.size()));
    ASSERT_TRUE(hot_->write(TxnId(txn), std::span(&extent, 1), *slab, block_checksums(hot_->bytes(*slab))));
  }
  void begin(uint64_t txn) { ASSERT_TRUE(hot_->begin(TxnId(txn), kFile, SessionId(1))); }
  void commit(uint64_t txn) { ASSERT_TRUE(hot_->commit(TxnId(txn))); }
  void write_and_commit(uint64_t txn, uint64_t at, const std::string& text) {
    begin(txn);
    put(txn, at, text);
    commit(txn);
  }
  // As the engine does it.
  void remove_file() {
    sink_.remove(kFile);
    const auto dead = hot_->forget(kFile);
    ASSERT_TRUE(dead) << dead.error().message;
    for (const StripeId stripe : *dead) sink_.discard(stripe);
  }
  // Fails this step the first `times` times.
  void fail_next(const std::string& step, int times, const Error& error) {
    const std::lock_guard lock(mutex_);
    fail_step_ = [step, error, left = times](const std::string& now) mutable -> Result<> {
      if (now != step || left-- <= 0) return {};
      return fail(error);
    };
  }
  template <class F>
  void await(F&& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    std::unique_lock lock(mutex_);
    while (true) {
      lock.unlock();
      const bool holds = condition();
      lock.lock();
      if (holds) return;
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "it never happened";
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
  }
  size_t progress_count() {
    const std::lock_guard lock(mutex_);
    return progress_.size();
  }
  size_t step_count() {
    const std::lock_guard lock(mutex_);
    return steps_.size();
  }

  FakeSink sink_{kStripeBytes};
  std::shared_ptr<SimDomain> domain_ = std::make_shared<SimDomain>(kPoolBytes);
  std::unique_ptr<HotTier> hot_;
  Drain::Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Result<>> progress_;
  std::vector<std::string> steps_;
  std::function<Result<>(const std::string&)> fail_step_;
  std::unique_ptr<Drain> drain_;
};

TEST_F(DrainTest, committed_bytes_arrive_and_the_tier_is_empty) {
  create();
  write_and_commit(1, 0, std::string(10000, 'a'));
  write_and_commit(2, 1000, "bbb");
  EXPECT_EQ(drain_->status().bytes_left, 10000u);
  ASSERT_TRUE(drain_->run_once(false));
  EXPECT_EQ(sink_.contents(kFile), std::string(1000, 'a') + "bbb" + std::string(8997, 'a'));
  EXPECT_EQ(sink_.published(kFile).epoch, Epoch(2));
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  EXPECT_EQ(drain_->status().bytes_left, 0u);
  EXPECT_EQ(drain_->status().bytes_drained, 10000u);
  EXPECT_EQ(sink_.stripes().size(), 3u);  // two full ones and the rest
}

TEST_F(DrainTest, a_truncation_alone_is_published) {
  create();
  write_and_commit(1, 0, "abcdef");
  ASSERT_TRUE(drain_->run_once(false));
  begin(2);
  ASSERT_TRUE(hot_->truncate(TxnId(2), Length(2)));
  ASSERT_TRUE(hot_->truncate(TxnId(2), Length(4)));
  commit(2);
  EXPECT_EQ(drain_->status().bytes_left, 1u);
  ASSERT_TRUE(drain_->run_once(false));
  EXPECT_EQ(sink_.contents(kFile), "ab00");
}

TEST_F(DrainTest, open_transactions_are_placed_but_not_published) {
  create();
  begin(1);
  put(1, 0, std::string(12000, 'a'));
  ASSERT_TRUE(drain_->run_once(true));
  EXPECT_EQ(sink_.contents(kFile), "");
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  put(1, 10, "xyz");
  commit(1);
  ASSERT_TRUE(drain_->run_once(false));
  EXPECT_EQ(sink_.contents(kFile), std::string(10, 'a') + "xyz" + std::string(11987, 'a'));
}

TEST_F(DrainTest, the_rest_of_an_open_transaction_stays_until_full_stripes_give_nothing) {
  create();
  begin(1);
  put(1, 0, std::string(6000, 'a'));
  ASSERT_TRUE(drain_->run_once(true));
  EXPECT_EQ(sink_.stripes().size(), 1u);
  ASSERT_TRUE(drain_->run_once(true));
  EXPECT_EQ(sink_.stripes().size(), 2u);
}

TEST_F(DrainTest, stripes_of_an_aborted_transaction_are_discarded) {
  create();
  begin(1);
  put(1, 0, std::string(12000, 'a'));
  ASSERT_TRUE(drain_->run_once(true));
  EXPECT_EQ(sink_.stripes().size(), 3u);
  ASSERT_TRUE(hot_->abort(TxnId(1)));
  ASSERT_TRUE(drain_->run_once(false));
  EXPECT_THAT(sink_.stripes(), IsEmpty());
}

TEST_F(DrainTest, what_a_failed_placement_left_behind_is_taken_up_by_the_next_round) {
  create();
  write_and_commit(1, 0, std::string(14000, 'a'));
  int places = 0;
  {
    const std::lock_guard lock(mutex_);
    fail_step_ = [&](const std::string& step) -> Result<> {
      if (step == "place" && ++places == 3) return fail(ErrorCode::kUnavailable, "no target is up");
      return {};
    };
  }
  EXPECT_EQ(drain_->run_once(false).error().message, "no target is up");
  EXPECT_EQ(sink_.contents(kFile), "");
  ASSERT_TRUE(drain_->run_once(false));
  EXPECT_EQ(sink_.contents(kFile), std::string(14000, 'a'));
  EXPECT_EQ(sink_.stripes().size(), 4u);  // the first two were not placed again
}

TEST_F(DrainTest, a_publication_of_unknown_outcome_is_looked_up) {
  create();
  write_and_commit(1, 0, "abc");
  fail_next("published", 1, Error(ErrorCode::kTimedOut, "no answer"));
  ASSERT_TRUE(drain_->run_once(false));  // it had happened
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  write_and_commit(2, 0, "xyz");
  fail_next("publish", 1, Error(ErrorCode::kTimedOut, "no answer"));
  EXPECT_EQ(drain_->run_once(false).error().code, ErrorCode::kTimedOut);  // it had not
  ASSERT_TRUE(drain_->run_once(false));
  EXPECT_EQ(sink_.contents(kFile), "xyz");
}

TEST_F(DrainTest, a_version_published_by_somebody_else_blocks_with_the_reason) {
  create();
  write_and_commit(1, 0, "abc");
  ASSERT_TRUE(sink_.publish(kFile, Epoch(0), Epoch(9), {}, Length(0), {}));
  const auto outcome = drain_->run_once(false);
  EXPECT_EQ(outcome.error().code, ErrorCode::kConflict);
  EXPECT_THAT(outcome.error().message, HasSubstr("not by this hot tier"));
  EXPECT_EQ(hot_->unpublished_bytes(), 3u);  // nothing is lost
}

TEST_F(DrainTest, a_damaged_byte_does_not_leave_the_tier_and_others_go_on) {
  create();
  write_and_commit(1, 0, "abc");
  ASSERT_TRUE(hot_->begin(TxnId(2), ContainerId(8), SessionId(1)));
  put(2, 0, "other");
  commit(2);
  {
    const DrainWork work = hot_->drain_work(kFile, false);
    const_cast<std::byte&>(work.pieces[0].bytes[1]) ^= std::byte{1};
  }
  EXPECT_EQ(drain_->run_once(false).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(sink_.contents(kFile), "");
  EXPECT_EQ(sink_.contents(ContainerId(8)), "other");
}

TEST_F(DrainTest, a_container_forgotten_in_the_middle_of_its_round_is_no_error) {
  create();
  write_and_commit(1, 0, "abc");
  {
    const std::lock_guard lock(mutex_);
    fail_step_ = [this](const std::string& step) -> Result<> {
      if (step != "publish") return {};
      remove_file();
      return {};
    };
  }
  EXPECT_TRUE(drain_->run_once(false));
  EXPECT_THAT(sink_.stripes(), IsEmpty());
}

TEST_F(DrainTest, a_container_removed_while_a_stripe_is_placed_leaves_no_stripe) {
  create();
  write_and_commit(1, 0, std::string(14000, 'a'));
  int places = 0;
  {
    const std::lock_guard lock(mutex_);
    fail_step_ = [&](const std::string& step) -> Result<> {
      if (step == "place" && ++places == 3) remove_file();
      return {};
    };
  }
  EXPECT_TRUE(drain_->run_once(false));
  EXPECT_THAT(sink_.stripes(), IsEmpty());
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
}

TEST_F(DrainTest, stripes_that_a_failed_round_placed_go_with_their_removed_container_under_every_policy) {
  options_.policy = DrainPolicy::kWatermark;
  create();
  write_and_commit(1, 0, std::string(14000, 'a'));
  fail_next("publish", 1, Error(ErrorCode::kNoSpace, "the metastore is full"));
  EXPECT_EQ(drain_->run_once(false).error().code, ErrorCode::kNoSpace);
  EXPECT_EQ(sink_.stripes().size(), 4u);
  remove_file();
  EXPECT_THAT(sink_.stripes(), IsEmpty());
}

TEST_F(DrainTest, a_removed_container_that_was_pinned_leaves_no_stripe_once_it_is_not_under_every_policy) {
  options_.policy = DrainPolicy::kWatermark;
  create();
  write_and_commit(1, 0, std::string(14000, 'a'));
  fail_next("publish", 1, Error(ErrorCode::kNoSpace, "the metastore is full"));
  EXPECT_FALSE(drain_->run_once(false));
  auto view = hot_->view(kFile, std::nullopt, Extent::at(Offset(0), Length(14000)));
  ASSERT_TRUE(view);
  sink_.remove(kFile);
  EXPECT_THAT(*hot_->forget(kFile), IsEmpty());
  drain_->start();
  view = View{};
  await([&] { return sink_.stripes().empty(); });
  drain_->stop();
}

TEST_F(DrainTest, a_stripe_overwritten_before_it_could_be_published_is_removed) {
  create();
  write_and_commit(1, 0, std::string(4000, 'a'));
  fail_next("publish", 1, Error(ErrorCode::kNoSpace, "the metastore is full"));
  EXPECT_FALSE(drain_->run_once(false));
  write_and_commit(2, 0, std::string(4000, 'b'));
  ASSERT_TRUE(drain_->run_once(false));
  ASSERT_TRUE(drain_->run_once(false));
  EXPECT_EQ(sink_.contents(kFile), std::string(4000, 'b'));
  EXPECT_EQ(sink_.stripes().size(), 1u);
}

TEST_F(DrainTest, a_blocked_state_ends_when_what_blocked_was_removed) {
  create();
  {
    const std::lock_guard lock(mutex_);
    fail_step_ = [](const std::string& step) -> Result<> {
      if (step == "place") return fail(ErrorCode::kNoSpace, "no target has room");
      return {};
    };
  }
  write_and_commit(1, 0, "abc");
  drain_->start();
  await([&] { return drain_->status().state == "blocked: no target has room"; });
  remove_file();
  await([&] { return drain_->status().state == "idle"; });
  drain_->stop();
}

TEST_F(DrainTest, a_container_that_the_sink_does_not_find_but_exists_is_an_error_not_a_removal) {
  create();
  write_and_commit(1, 0, "abc");
  fail_next("place", 1, Error(ErrorCode::kNotFound, "a target's directory is gone"));
  EXPECT_EQ(drain_->run_once(false).error().message, "a target's directory is gone");
  EXPECT_EQ(hot_->unpublished_bytes(), 3u);
  ASSERT_TRUE(drain_->run_once(false));
  EXPECT_EQ(sink_.contents(kFile), "abc");
}

TEST_F(DrainTest, a_container_whose_removal_nobody_told_is_forgotten) {
  create();
  write_and_commit(1, 0, "abc");
  sink_.remove(kFile);
  EXPECT_TRUE(drain_->run_once(false));
  EXPECT_THAT(hot_->undrained(), IsEmpty());
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
}

TEST_F(DrainTest, immediate_drains_by_itself) {
  create();
  drain_->start();
  write_and_commit(1, 0, "abc");
  await([&] { return sink_.published(kFile).epoch == Epoch(1); });
  await([&] { return drain_->status().bytes_left == 0; });
  drain_->stop();
}

TEST_F(DrainTest, while_programs_move_bytes_it_places_a_stripe_now_and_then_and_somebody_who_waits_gets_all) {
  options_.quiet_ms = 3'600'000;  // a burst without end
  create();
  drain_->busy();
  write_and_commit(1, 0, std::string(5 * kStripeBytes, 'a'));
  drain_->start();
  drain_->kick();
  await([&] { return drain_->status().state == "draining"; });
  EXPECT_EQ(step_count(), 0u);
  drain_->drain_all();
  await([&] { return sink_.published(kFile).epoch == Epoch(1); });
  drain_->stop();
}

TEST_F(DrainTest, a_burst_that_is_over_is_drained) {
  options_.quiet_ms = 20;
  create();
  drain_->busy();
  write_and_commit(1, 0, std::string(3 * kStripeBytes, 'a'));
  drain_->start();
  await([&] { return sink_.published(kFile).epoch == Epoch(1); });
  drain_->stop();
}

TEST_F(DrainTest, above_the_high_watermark_no_burst_holds_it_up) {
  options_.quiet_ms = 3'600'000;
  create();
  begin(1);
  const uint64_t total = hot_->usage().bytes_total;
  put(1, 0, std::string(total * 8 / 10, 'a'));
  drain_->busy();
  drain_->start();
  await([&] { return hot_->usage().bytes_used < total * 7 / 10; });
  drain_->stop();
}

TEST_F(DrainTest, on_sync_drains_when_kicked) {
  options_.policy = DrainPolicy::kOnSync;
  create();
  write_and_commit(1, 0, "abc");
  drain_->start();
  EXPECT_EQ(drain_->status().state, "idle");
  drain_->kick();
  await([&] { return sink_.published(kFile).epoch == Epoch(1); });
}

TEST_F(DrainTest, watermark_waits_for_the_high_one_and_stops_at_the_low_one) {
  options_.policy = DrainPolicy::kWatermark;
  create();
  drain_->start();
  const uint64_t total = hot_->usage().bytes_total;
  const std::string chunk(total / 20 / 512 * 512, 'a');
  uint64_t txn = 1;
  for (; txn <= 13; ++txn) write_and_commit(txn, txn * chunk.size(), chunk);  // 65 %
  drain_->kick();
  EXPECT_EQ(step_count(), 0u);
  write_and_commit(txn, txn * chunk.size(), chunk);
  ++txn;
  write_and_commit(txn, txn * chunk.size(), chunk);
  await([&] { return hot_->usage().bytes_used <= total * 4 / 10; });
  EXPECT_GE(sink_.published(kFile).epoch, Epoch(13));  // what came after is below the low one
}

TEST_F(DrainTest, watermark_places_open_transactions_too) {
  options_.policy = DrainPolicy::kWatermark;
  create();
  begin(1);
  const uint64_t total = hot_->usage().bytes_total;
  put(1, 0, std::string(total * 8 / 10, 'a'));
  drain_->start();
  await([&] { return hot_->usage().bytes_used <= total * 4 / 10; });
  EXPECT_EQ(sink_.contents(kFile), "");
}

TEST_F(DrainTest, drain_all_is_followed_under_every_policy_and_after_failures) {
  for (const auto policy :
       {DrainPolicy::kImmediate, DrainPolicy::kOnSync, DrainPolicy::kWatermark, DrainPolicy::kIdle}) {
    options_.policy = policy;
    options_.idle_ms = 3'600'000;
    create();
    const uint64_t txn = hot_->committed(kFile, Epoch(0)).value + 1;
    write_and_commit(txn, 0, "abc");
    fail_next("place", 2, Error(ErrorCode::kUnavailable, "no target is up"));
    drain_->start();
    drain_->drain_all();
    await([&] { return sink_.published(kFile).epoch == Epoch(txn); });
    drain_->stop();
  }
}

TEST_F(DrainTest, idle_drains_when_nothing_was_written_for_a_while) {
  options_.policy = DrainPolicy::kIdle;
  options_.idle_ms = 20;
  create();
  drain_->start();
  write_and_commit(1, 0, "abc");
  await([&] { return sink_.published(kFile).epoch == Epoch(1); });
}

TEST_F(DrainTest, a_failing_sink_is_retried_and_the_state_says_why) {
  options_.retry_ms = 5;
  create();
  fail_next("place", 1'000'000, Error(ErrorCode::kNoSpace, "target 3 is full"));
  write_and_commit(1, 0, "abc");
  drain_->start();
  await([&] { return drain_->status().state == "blocked: target 3 is full"; });
  EXPECT_EQ(drain_->status().bytes_left, 3u);
  fail_next("place", 0, Error());
  await([&] { return sink_.published(kFile).epoch == Epoch(1); });
  await([&] { return drain_->status().state == "idle"; });
}

TEST_F(DrainTest, a_writer_that_waits_for_room_gets_it_from_open_transactions) {
  options_.policy = DrainPolicy::kOnSync;
  options_.high_watermark = 2;
  create();
  begin(1);
  const uint64_t total = hot_->usage().bytes_total;
  put(1, 0, std::string(total - 512, 'a'));
  EXPECT_EQ(hot_->reserve(Length(100'000)).error().code, ErrorCode::kNoSpace);
  drain_->start();
  drain_->want_room(Length(100'000));
  await([&] { return progress_count() > 0; });
  EXPECT_TRUE(progress_[0]);
  EXPECT_TRUE(hot_->reserve(Length(100'000)));
}

TEST_F(DrainTest, a_writer_hears_of_a_failure_that_makes_waiting_pointless) {
  options_.high_watermark = 2;
  create();
  begin(1);
  put(1, 0, std::string(hot_->usage().bytes_total - 512, 'a'));
  fail_next("place", 1'000'000, Error(ErrorCode::kNoSpace, "target 3 is full"));
  drain_->start();
  drain_->want_room(Length(100'000));
  await([&] { return progress_count() > 0; });
  EXPECT_THAT(progress_[0].error().message, HasSubstr("target 3 is full"));
  Error passing(ErrorCode::kUnavailable, "target 3 does not answer");
  fail_next("place", 2, passing.mark_retryable());
  drain_->want_room(Length(100'000));
  await([&] { return progress_count() > 1; });
  EXPECT_TRUE(progress_[1]);  // fewer failures than failures_to_report
}

TEST_F(DrainTest, a_writer_hears_when_only_others_can_make_room) {
  options_.stuck_ms = 20;
  create();
  const auto all = hot_->reserve(Length(hot_->usage().bytes_total));
  ASSERT_TRUE(all);
  drain_->start();
  drain_->want_room(Length(1));
  await([&] { return progress_count() > 0; });
  EXPECT_EQ(progress_[0].error().code, ErrorCode::kNoSpace);
  EXPECT_THAT(progress_[0].error().message, HasSubstr("no room"));
}

TEST_F(DrainTest, stopping_ends_after_the_step_in_hand_and_nothing_is_lost) {
  create();
  write_and_commit(1, 0, std::string(50'000, 'a'));
  bool in_place = false;
  bool go_on = false;
  std::mutex gate;
  std::condition_variable opened;
  sink_.on_step([&](const std::string&) -> Result<> {
    std::unique_lock lock(gate);
    in_place = true;
    opened.notify_all();
    opened.wait(lock, [&] { return go_on; });
    return {};
  });
  drain_->start();
  {
    std::unique_lock lock(gate);
    opened.wait(lock, [&] { return in_place; });
  }
  std::thread stopper([&] { drain_->stop(); });
  {
    const std::lock_guard lock(gate);
    go_on = true;
  }
  opened.notify_all();
  stopper.join();
  sink_.on_step({});
  drain_->start();
  await([&] { return sink_.contents(kFile) == std::string(50'000, 'a'); });
}

}  // namespace
}  // namespace sluice::burst_buffer
