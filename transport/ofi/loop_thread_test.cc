#include "transport/ofi/loop_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "transport/contract_rig.h"

namespace sluice::transport {
namespace {

class Latch {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class Looped : public ::testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<OfiTransport> make(uint64_t keepalive_ms = 1000) {
    OfiOptions options;
    options.scheme = GetParam();
    options.keepalive_ms = keepalive_ms;
    options.peer_timeout_ms = 30'000;
    auto transport = OfiTransport::create(options);
    EXPECT_TRUE(transport.has_value());
    return std::move(*transport);
  }
};

// Answers every message with one more, up to a count.
class Counter final : public Handler {
 public:
  Counter(OfiTransport& transport, size_t limit, Latch& done)
      : transport_(transport), limit_(limit), done_(done) {
    transport.set_handler(this);
  }
  void on_connected(PeerId) override {}
  void on_disconnected(PeerId, const Error&) override {}
  void on_message(PeerId peer, std::span<const std::byte> message) override {
    if (++count_ == limit_) done_.open();
    if (count_ < limit_) (void)transport_.send(peer, {message.begin(), message.end()}).has_value();
  }

 private:
  OfiTransport& transport_;
  const size_t limit_;
  Latch& done_;
  size_t count_ = 0;
};

TEST_P(Looped, TwoLoopsTalk) {
  const auto a = make();
  const auto b = make();
  Latch done;
  constexpr size_t kTurns = 2000;
  Counter at_a(*a, kTurns, done);
  Latch unused;
  Counter at_b(*b, kTurns + 1, unused);
  LoopThread loop_a(*a);
  LoopThread loop_b(*b);
  ASSERT_TRUE(loop_a.start().has_value());
  ASSERT_TRUE(loop_b.start().has_value());
  const Address to = b->address();
  a->post([&] {
    const auto peer = a->connect(to);
    ASSERT_TRUE(peer.has_value());
    ASSERT_TRUE(a->send(*peer, pattern(100, 1)).has_value());
  });
  EXPECT_TRUE(done.wait());
}

// A receiver may doze over what is not hurried. It hears of each all the same, also when more is sent than a
// queue holds.
TEST_P(Looped, what_is_not_hurried_is_heard_too) {
  const auto a = make();
  const auto b = make();
  Recorder at_a(*a);
  Recorder at_b(*b);
  std::atomic<size_t> heard{0};
  at_b.answer = [&](PeerId, std::span<const std::byte>) { ++heard; };
  LoopThread loop(*b);
  ASSERT_TRUE(loop.start().has_value());
  const auto peer = a->connect(b->address());
  ASSERT_TRUE(peer.has_value());
  size_t sent = 0;
  for (const int together : {1, 50, 1, 1, 1500, 1}) {
    for (int i = 0; i < together; ++i)
      ASSERT_TRUE(a->send_unhurried(*peer, pattern(300, ++sent)).has_value());
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (heard < sent && std::chrono::steady_clock::now() < give_up) a->run_ready();
    ASSERT_EQ(heard, sent);
  }
  loop.stop();
  for (size_t i = 0; i < sent; ++i) ASSERT_EQ(at_b.messages[i].bytes, pattern(300, i + 1)) << i;
}

// One that has fallen asleep is woken by it, by one thread: nobody else looks.
TEST_P(Looped, who_sleeps_is_woken_by_what_is_not_hurried) {
  const auto a = make(/*keepalive_ms=*/25'000);  // nothing else wakes it
  const auto b = make(25'000);
  Recorder at_a(*a);
  Recorder at_b(*b);
  const auto peer = a->connect(b->address());
  ASSERT_TRUE(peer.has_value());
  for (size_t sent = 1; sent <= 5; ++sent) {
    ASSERT_TRUE(a->send_unhurried(*peer, pattern(300, sent)).has_value());
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (at_b.messages.size() < sent && std::chrono::steady_clock::now() < give_up) {
      a->run_ready();
      // Blocks as long as it may: a bell that was not rung costs the limit.
      b->run_once(sent == 1 ? 0 : 20'000);
    }
    ASSERT_EQ(at_b.messages.size(), sent);
    EXPECT_LT(std::chrono::steady_clock::now() + std::chrono::seconds(5), give_up) << "nobody woke it";
    for (int looks = 0; looks < 200; ++looks) b->run_once(0);  // finds nothing: from dozing to sleep
  }
}

TEST_P(Looped, RmaBetweenTwoLoops) {
  const auto a = make();
  const auto b = make();
  std::vector<std::byte> memory = pattern(20 << 20, 3);
  std::vector<std::byte> into(memory.size());
  std::unique_ptr<ExposedMemory> exposed;
  Latch done;
  Result<> outcome = fail(ErrorCode::kInternal, "not run");
  Recorder at_a(*a);
  Recorder at_b(*b);
  at_b.answer = [&](PeerId from, std::span<const std::byte> message) {
    b->pull(from, *unpack(message), 0, into, [&](Result<> r) {
      outcome = std::move(r);
      done.open();
    });
  };
  LoopThread loop_a(*a);
  LoopThread loop_b(*b);
  ASSERT_TRUE(loop_a.start().has_value());
  ASSERT_TRUE(loop_b.start().has_value());
  const Address to = b->address();
  a->post([&] {
    exposed = std::move(*a->expose(memory, Access::kRemoteRead));
    ASSERT_TRUE(a->send(*a->connect(to), pack(exposed->remote())).has_value());
  });
  ASSERT_TRUE(done.wait());
  loop_a.stop();
  loop_b.stop();
  EXPECT_TRUE(outcome.has_value());
  EXPECT_TRUE(into == memory);
  exposed.reset();
}

TEST_P(Looped, StopsAndStartsAgainAndPostedWorkIsKept) {
  const auto transport = make();
  LoopThread loop(*transport);
  loop.stop();  // was never started
  int ran = 0;
  for (int round = 0; round < 5; ++round) {
    Latch done;
    transport->post([&] { ++ran; });
    transport->post([&] { done.open(); });
    ASSERT_TRUE(loop.start().has_value());
    ASSERT_TRUE(done.wait());
    loop.stop();
    loop.stop();
    EXPECT_EQ(ran, round + 1);
  }
}

TEST_P(Looped, DestructionStopsAndSeveralMayStopAtOnce) {
  const auto transport = make();
  {
    LoopThread loop(*transport);
    ASSERT_TRUE(loop.start().has_value());
    std::thread one([&] { loop.stop(); });
    std::thread two([&] { loop.stop(); });
    one.join();
    two.join();
  }
  LoopThread forgotten(*transport);
  ASSERT_TRUE(forgotten.start().has_value());
}

TEST_P(Looped, PostsOfManyThreadsKeepTheirOrder) {
  const auto transport = make();
  LoopThread loop(*transport);
  ASSERT_TRUE(loop.start().has_value());
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  std::vector<std::vector<int>> seen(kThreads);
  Latch done;
  int total = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        transport->post([&, t, i] {
          seen[t].push_back(i);
          if (++total == kThreads * kEach) done.open();
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(done.wait());
  loop.stop();
  for (const auto& s : seen) EXPECT_TRUE(std::ranges::is_sorted(s));
}

TEST_P(Looped, a_caller_that_waits_does_the_loops_work_itself) {
  auto transport = make();
  LoopThread loop(*transport);
  ASSERT_TRUE(loop.start());
  std::thread::id worker;
  for (int i = 0; i < 100; ++i) {
    std::atomic<bool> done = false;
    bool posted = false;
    ASSERT_TRUE(loop.drive([&] {
      if (!std::exchange(posted, true)) {
        transport->post([&] {
          worker = std::this_thread::get_id();
          done = true;
        });
      }
      return done.load();
    }));
  }
  // After the first time it is surely not the loop's own thread that had the turn.
  EXPECT_EQ(worker, std::this_thread::get_id());
}

TEST_P(Looped, what_a_caller_waited_for_counts_although_it_held_for_a_moment_only) {
  auto transport = make();
  LoopThread loop(*transport);
  ASSERT_TRUE(loop.start());
  std::atomic<int> looks = 0;
  EXPECT_TRUE(loop.drive([&] { return ++looks == 3; }));
  // Another look would have been a wait for ever.
  EXPECT_EQ(looks, 3);
}

TEST_P(Looped, callers_take_turns_and_all_see_what_any_of_them_did) {
  auto transport = make();
  LoopThread loop(*transport);
  ASSERT_TRUE(loop.start());
  std::vector<std::thread> callers;
  std::atomic<int> finished = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        std::atomic<bool> done = false;
        transport->post([&] { done = true; });
        ASSERT_TRUE(loop.drive([&] { return done.load(); }));
        bool here = false;
        if (!loop.run_here([&] { here = true; })) continue;
        EXPECT_TRUE(here);
      }
      ++finished;
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(finished, 4);
}

TEST_P(Looped, a_caller_is_let_go_when_the_loop_ends) {
  auto transport = make();
  LoopThread loop(*transport);
  ASSERT_TRUE(loop.start());
  std::thread stopper([&] { loop.stop(); });
  EXPECT_FALSE(loop.drive([] { return false; }));
  stopper.join();
  EXPECT_FALSE(loop.run_here([] {}));
}

INSTANTIATE_TEST_SUITE_P(Each, Looped, ::testing::Values("tcp", "shm"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace sluice::transport
