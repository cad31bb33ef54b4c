#include "engine/stage_in.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <map>

#include "base/checksum.h"
#include "burst_buffer/sim_domain.h"
#include "engine/testing/local_transport.h"
#include "storage/testing/store_rig.h"

namespace sluice::engine {
namespace {

constexpr uint64_t kBlock = kChecksumBlockBytes;

Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

// Work waits until it is told to run.
class HeldWorkers final : public Workers {
 public:
  void run(uint64_t, std::function<void()> work) override { held_.push_back(std::move(work)); }
  void run_next() {
    const auto work = std::move(held_.front());
    held_.pop_front();
    ++trips;
    work();
  }
  void run_all() {
    while (!held_.empty()) run_next();
  }
  size_t held() const { return held_.size(); }
  size_t trips = 0;

 private:
  std::deque<std::function<void()>> held_;
};

class StageInTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBlocks = 16;

  void SetUp() override {
    ASSERT_TRUE(rig_.reopen());
    file_ = rig_.create("/f").value().id;
    for (uint64_t i = 0; i < kBlocks; ++i) {
      const auto written = rig_.write(file_, i * kBlock, storage::pattern(kBlock, i));
      ASSERT_TRUE(written) << written.error().message;
    }
    burst_buffer::HotTier::Options options{"test.pool", kHotBytes, [this](ContainerId c) {
                                             const auto info = rig_.store().find(c);
                                             return Result<std::optional<burst_buffer::CommitInfo>>(
                                                 burst_buffer::CommitInfo{info->published, info->size});
                                           }};
    hot_ = *burst_buffer::HotTier::open(options, std::make_shared<burst_buffer::SimDomain>(kHotBytes));
    context_.emplace(Options{}, Parts{transport_, workers_, *hot_, rig_.store(), rig_.metastore()});
    stage_in_.emplace(*context_);
  }
  // Asks for it; a name's count is how often it was told that it was brought.
  void ask(const std::string& who, Extent extent) {
    stage_in_->bring(file_, {extent}, [this, who] { ++told_[who]; });
  }
  bool staged(Extent extent) {
    const auto view = hot_->staged(file_, std::nullopt, {&extent, 1});
    return view && *view;
  }

  static constexpr uint64_t kHotBytes = 4 << 20;
  storage::StoreRig rig_{1};
  LocalTransport transport_;
  HeldWorkers workers_;
  ContainerId file_;
  std::unique_ptr<burst_buffer::HotTier> hot_;
  std::optional<Context> context_;
  std::optional<StageIn> stage_in_;
  std::map<std::string, int> told_;
};

TEST_F(StageInTest, who_wants_the_same_blocks_meanwhile_goes_on_with_the_first) {
  for (int i = 0; i < 100; ++i) ask("reader", ext(i, 4 * kBlock - i));
  EXPECT_TRUE(told_.empty());
  workers_.run_next();
  EXPECT_EQ(told_["reader"], 100);
  EXPECT_EQ(workers_.held(), 0u);
  EXPECT_TRUE(staged(ext(0, 4 * kBlock)));
}

TEST_F(StageInTest, the_same_when_nothing_can_be_brought) {
  const auto all = hot_->reserve(Length(hot_->usage().bytes_total));
  ASSERT_TRUE(all);
  for (int i = 0; i < 100; ++i) ask("reader", ext(0, kBlock));
  for (int i = 0; i < 100; ++i) ask("beyond the end", ext(kBlocks * kBlock, kBlocks * kBlock + 1));
  workers_.run_all();
  EXPECT_EQ(told_["reader"], 100);
  EXPECT_EQ(told_["beyond the end"], 100);
  EXPECT_EQ(workers_.trips, 2u);
  EXPECT_FALSE(staged(ext(0, kBlock)));
}

TEST_F(StageInTest, who_wants_more_brings_only_the_rest_at_the_same_time) {
  ask("left", ext(0, 4 * kBlock));
  ask("right", ext(8 * kBlock, 12 * kBlock));
  ask("both", ext(2 * kBlock, 14 * kBlock));
  ask("middle", ext(5 * kBlock, 6 * kBlock));
  EXPECT_EQ(workers_.held(), 3u);
  workers_.run_next();
  EXPECT_EQ(told_, (std::map<std::string, int>{{"left", 1}}));
  workers_.run_next();
  EXPECT_EQ(told_, (std::map<std::string, int>{{"left", 1}, {"right", 1}}));
  workers_.run_next();
  EXPECT_EQ(told_, (std::map<std::string, int>{{"left", 1}, {"right", 1}, {"both", 1}, {"middle", 1}}));
  EXPECT_TRUE(staged(ext(0, 14 * kBlock)));
  EXPECT_EQ(hot_->usage().bytes_clean, 14 * kBlock) << "nothing was brought twice";
}

TEST_F(StageInTest, more_than_is_brought_at_a_time_waits_for_nothing) {
  ask("first", ext(0, kBlock));
  ask("all", ext(0, uint64_t{64} << 20));
  EXPECT_EQ(told_, (std::map<std::string, int>{{"all", 1}}));
  workers_.run_all();
  EXPECT_EQ(workers_.trips, 1u);
}

// As a reader does whose session has gone: it asks for nothing more, and nobody else misses anything.
TEST_F(StageInTest, one_that_went_away_meanwhile_keeps_nobody_waiting) {
  const SessionId gone(1);
  context_->sessions.add(gone, 1, transport::PeerId(1), 0);
  const auto ask_for_session = [&](const std::string& who, SessionId session, Extent extent) {
    stage_in_->bring(file_, {extent}, [this, who, session] {
      told_[who + (context_->sessions.find(session) == nullptr ? " (gone)" : "")]++;
      context_->sessions.remove(SessionId(1));
    });
  };
  context_->sessions.add(SessionId(2), 1, transport::PeerId(2), 0);
  ask_for_session("first", gone, ext(0, kBlock));
  ask_for_session("second", gone, ext(0, 2 * kBlock));
  ask_for_session("third", SessionId(2), ext(0, 2 * kBlock));
  workers_.run_all();
  EXPECT_EQ(told_, (std::map<std::string, int>{{"first", 1}, {"second (gone)", 1}, {"third", 1}}));
  EXPECT_EQ(workers_.trips, 2u);
  ask("later", ext(0, kBlock));
  workers_.run_all();
  EXPECT_EQ(told_["later"], 1);
}

TEST(StageInBlocks, small_pieces_of_one_block_are_that_block_and_neighbours_are_one) {
  EXPECT_EQ(blocks_around({ext(10, 20), ext(kBlock - 1, kBlock), ext(30, 30)}),
            (std::vector{ext(0, kBlock)}));
  EXPECT_EQ(blocks_around({ext(5 * kBlock, 5 * kBlock + 1), ext(kBlock - 1, kBlock + 1)}),
            (std::vector{ext(0, 2 * kBlock), ext(5 * kBlock, 6 * kBlock)}));
  EXPECT_EQ(blocks_around({ext(kMaxFileBytes - 1, kMaxFileBytes)}).back().end.value, kMaxFileBytes);
}

RC_GTEST_PROP(StageInProperty, blocks_hold_the_extents_in_order_and_touch_what_a_flag_per_block_says, ()) {
  constexpr uint64_t kBlocks = 40;
  const auto draw = [] {
    std::vector<Extent> extents;
    const auto count = *rc::gen::inRange(0, 6);
    for (int i = 0; i < count; ++i) {
      const auto begin = *rc::gen::inRange<uint64_t>(0, kBlocks * kBlock);
      extents.push_back(ext(begin, begin + *rc::gen::inRange<uint64_t>(0, 3 * kBlock)));
    }
    return extents;
  };
  const auto flags_of = [](const std::vector<Extent>& extents) {
    std::vector<bool> flags(kBlocks + 4);
    for (const Extent& extent : extents) {
      for (uint64_t at = extent.begin.value; at < extent.end.value; ++at) {
        flags[at / kBlock] = true;
        at = at / kBlock * kBlock + kBlock - 1;
      }
    }
    return flags;
  };
  const auto one = draw();
  const auto other = draw();
  const auto blocks = blocks_around(one);
  RC_ASSERT(flags_of(blocks) == flags_of(one));
  for (size_t i = 0; i < blocks.size(); ++i) {
    RC_ASSERT(blocks[i].begin.value % kBlock == 0u);
    if (i > 0) RC_ASSERT(blocks[i - 1].end < blocks[i].begin);
  }
  const auto a = flags_of(one);
  const auto b = flags_of(other);
  bool common = false;
  for (size_t i = 0; i < a.size(); ++i) common = common || (a[i] && b[i]);
  RC_ASSERT(have_common(blocks, blocks_around(other)) == common);
  std::vector<bool> rest(a.size());
  for (size_t i = 0; i < a.size(); ++i) rest[i] = a[i] && !b[i];
  RC_ASSERT(flags_of(without(blocks, blocks_around(other))) == rest);
}

}  // namespace
}  // namespace sluice::engine
