#include "storage/workers.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "storage/buffer_pool.h"

namespace sluice::storage {
namespace {

TEST(Workers, every_index_is_worked_on_once) {
  for (const size_t threads : {0, 1, 3}) {
    Workers workers(threads);
    for (size_t count = 0; count < 40; ++count) {
      std::vector<std::atomic<int>> seen(count);
      workers.run(count, [&](size_t i) { ++seen[i]; });
      for (size_t i = 0; i < count; ++i)
        EXPECT_EQ(seen[i], 1) << threads << " threads, " << i << " of " << count;
    }
  }
}

TEST(Workers, without_threads_the_caller_works_in_order) {
  Workers workers(0);
  std::vector<size_t> order;
  workers.run(5, [&](size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(Workers, many_callers_share_the_threads) {
  Workers workers(2);
  std::atomic<uint64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) workers.run(8, [&](size_t i) { sum += i; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4u * 100 * 28);
}

// Work may itself hand out work: the caller never waits for a thread that waits for it.
TEST(Workers, nested_work_ends) {
  Workers workers(2);
  std::atomic<int> done = 0;
  workers.run(4, [&](size_t) { workers.run(4, [&](size_t) { ++done; }); });
  EXPECT_EQ(done, 16);
}

TEST(BufferPool, a_buffer_comes_back_for_the_next_who_asks) {
  BufferPool pool;
  std::byte* first = nullptr;
  {
    const auto buffer = pool.take(100'000);
    first = buffer.bytes().data();
    EXPECT_EQ(buffer.bytes().size(), 100'000u);
  }
  const auto small = pool.take(50'000);
  EXPECT_EQ(small.bytes().data(), first);
  EXPECT_EQ(small.bytes().size(), 50'000u);
  const auto other = pool.take(50'000);
  EXPECT_NE(other.bytes().data(), first);
}

TEST(BufferPool, moved_buffers_are_given_back_once) {
  BufferPool pool;
  std::set<const std::byte*> live;
  {
    auto a = pool.take(10);
    auto b = std::move(a);
    EXPECT_TRUE(a.bytes().empty() || a.bytes().data() == nullptr);
    a = pool.take(10);
    EXPECT_NE(a.bytes().data(), b.bytes().data());
    a = std::move(b);
  }
  std::vector<BufferPool::Buffer> taken;
  for (int i = 0; i < 4; ++i) {
    taken.push_back(pool.take(10));
    EXPECT_TRUE(live.insert(taken.back().bytes().data()).second);
  }
}

TEST(BufferPool, keeps_no_more_than_its_limit) {
  BufferPool pool;
  std::vector<BufferPool::Buffer> large;
  for (int i = 0; i < 3; ++i) large.push_back(pool.take(BufferPool::kMaxKeptBytes / 2));
  large.clear();  // the third is freed, the address sanitizer sees that it is once
  const auto again = pool.take(BufferPool::kMaxKeptBytes / 2);
  EXPECT_EQ(again.bytes().size(), BufferPool::kMaxKeptBytes / 2);
}

}  // namespace
}  // namespace sluice::storage
