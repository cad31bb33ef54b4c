// Writes that are gathered under locks, over a real service: nobody sees a difference, but in time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/rng.h"
#include "tests/support/file_access.h"
#include "tests/support/mini_service.h"

namespace sluice {
namespace {

using client::Client;
using client::File;
using client::OpenOptions;
using testing::get;
using ::testing::HasSubstr;
using testing::MiniService;
using testing::pattern;
using testing::put;

constexpr uint64_t kMiB = 1024 * 1024;

class WriteBack : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(service_.start(3, 64 << 20));
    ::unsetenv("SLUICE_STATS");
  }
  void start() {
    auto started = service_.start();
    ASSERT_TRUE(started) << started.error().message;
  }
  std::shared_ptr<Client> connect(uint64_t unavailable_after_ms = 30'000, const char* lane = nullptr) {
    client::Options options = service_.client_options();
    options.unavailable_after_ms = unavailable_after_ms;
    if (lane != nullptr) options.lane = lane;
    return Client::connect(options).value();
  }
  std::unique_ptr<File> open(const std::shared_ptr<Client>& client) {
    OpenOptions options;
    options.access = client::AccessMode::kReadWrite;
    options.create = true;
    options.lock_mode = GetParam();
    options.chunk_bytes = kMiB;
    auto file = client->open("/gathered", options);
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : nullptr;
  }
  // What `work` on a file of its own did, as SLUICE_STATS tells it.
  template <class Work>
  nlohmann::json stats_of(Work&& work) {
    const std::string stats = (service_.pool() / "stats").string();
    EXPECT_EQ(::setenv("SLUICE_STATS", stats.c_str(), 1), 0);
    auto file = open(connect());
    work(*file);
    EXPECT_TRUE(file->close(true));
    ::unsetenv("SLUICE_STATS");
    std::ifstream in(stats);
    return nlohmann::json::parse(in);
  }
  static uint64_t requests(const nlohmann::json& stats) {
    uint64_t all = 0;
    for (const char* way : {"slab", "remote", "inline"}) all += stats["written"][way]["requests"].get<uint64_t>();
    return all;
  }

  MiniService service_;
};

TEST_P(WriteBack, small_writes_go_to_the_service_as_whole_chunks) {
  const auto data = pattern(4 * kMiB, 1);
  const auto stats = stats_of([&](File& file) {
    for (uint64_t at = 0; at < data.size(); at += 16 * 1024)
      ASSERT_TRUE(put(file, at, std::span(data).subspan(at, 16 * 1024)));
  });
  EXPECT_EQ(stats["written"]["accesses"], 256);
  EXPECT_EQ(stats["written"]["gathered"]["requests"], 256);
  EXPECT_EQ(requests(stats), 4u) << stats;
  EXPECT_EQ(get(*open(connect()), 0, data.size()), data);
}

TEST_P(WriteBack, pieces_under_locks_of_their_own_go_together) {
  constexpr uint64_t kPieces = 64;
  const auto data = pattern(kPieces * 1024, 2);
  const auto stats = stats_of([&](File& file) {
    for (uint64_t i = 0; i < kPieces; ++i)
      ASSERT_TRUE(put(file, i * kMiB, std::span(data).subspan(i * 1024, 1024)));
  });
  EXPECT_EQ(requests(stats), 1u) << stats;
  const auto file = open(connect());
  for (uint64_t i = 0; i < kPieces; ++i) {
    const auto piece = std::span(data).subspan(i * 1024, 1024);
    EXPECT_EQ(get(*file, i * kMiB, 1024), std::vector(piece.begin(), piece.end())) << i;
  }
}

TEST_P(WriteBack, a_sharer_sees_what_another_gathered_its_size_and_the_zeros_before_it) {
  const auto one = connect();
  const auto two = connect();
  auto owner = open(one);
  auto sharer = two->attach(owner->share()).value();
  const auto data = pattern(1000, 3);
  ASSERT_TRUE(put(*owner, 5000, data));
  EXPECT_EQ(get(*sharer, 0, 100), std::vector<std::byte>(100)) << "a hole before what was gathered";
  EXPECT_EQ(sharer->size().value(), 6000u);
  ASSERT_TRUE(put(*owner, 9000, data));
  EXPECT_EQ(sharer->size().value(), 10'000u);
  EXPECT_EQ(get(*sharer, 9000, 2000), data);
  ASSERT_TRUE(put(*sharer, 20'000, data));
  EXPECT_EQ(owner->size().value(), 21'000u);
  EXPECT_EQ(get(*owner, 20'000, 1000), data);
}

TEST_P(WriteBack, a_sharer_in_the_same_process_sees_what_was_gathered_too) {
  const auto one = connect();
  auto owner = open(one);
  auto sharer = one->attach(owner->share()).value();
  const auto data = pattern(1000, 3);
  ASSERT_TRUE(put(*owner, 100, data));
  EXPECT_EQ(get(*sharer, 100, 2000), data);
  ASSERT_TRUE(put(*sharer, 100, pattern(1000, 4)));
  EXPECT_EQ(get(*owner, 100, 1000), pattern(1000, 4));
}

// Whoever asks waits for nobody who waits for it.
TEST_P(WriteBack, the_size_is_told_while_a_lock_is_held_that_another_waits_for) {
  const auto one = connect();
  const auto two = connect();
  auto owner = open(one);
  auto sharer = two->attach(owner->share()).value();
  ASSERT_TRUE(put(*sharer, 0, pattern(100, 4)));
  const auto held = owner->lock({Offset(0), Offset(100)}, true);
  ASSERT_TRUE(held);
  std::thread waiter([&] { EXPECT_TRUE(put(*sharer, 50, pattern(500, 5))); });
  EXPECT_GE(owner->size().value(), 100u);
  EXPECT_TRUE(owner->unlock(*held));
  waiter.join();
  EXPECT_EQ(owner->size().value(), 550u);
}

// Two sharers that take turns are like one program on one string.
TEST_P(WriteBack, sharers_that_take_turns_see_each_others_writes_as_a_string_would) {
  constexpr uint64_t kFile = 600 * 1024;
  const uint64_t seed = std::getenv("SLUICE_TEST_SEED") != nullptr
                            ? std::strtoull(std::getenv("SLUICE_TEST_SEED"), nullptr, 10)
                            : std::random_device{}();
  SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
  SeededRng rng(seed);
  std::vector<std::shared_ptr<Client>> clients = {connect(), connect(), connect()};
  std::vector<std::unique_ptr<File>> files;
  files.push_back(open(clients[0]));
  files.push_back(clients[1]->attach(files[0]->share()).value());
  files.push_back(clients[2]->attach(files[0]->share()).value());
  std::vector<std::byte> model;
  const auto compare = [&](File& file, uint64_t at, uint64_t bytes) {
    const auto got = get(file, at, bytes);
    const uint64_t end = std::min<uint64_t>(model.size(), at + bytes);
    const std::vector<std::byte> wanted =
        at >= end ? std::vector<std::byte>()
                  : std::vector(model.begin() + static_cast<ptrdiff_t>(at), model.begin() + static_cast<ptrdiff_t>(end));
    ASSERT_EQ(got.size(), wanted.size()) << at << " " << bytes;
    ASSERT_TRUE(got == wanted) << at << " " << bytes;
  };
  for (int step = 0; step < 1500; ++step) {
    SCOPED_TRACE(step);
    File& file = *files[rng.below(files.size())];
    const uint64_t at = rng.below(kFile);
    const uint64_t bytes = 1 + rng.below(rng.below(8) == 0 ? 400 * 1024 : 3000);
    const uint64_t what = rng.below(100);
    if (what < 60) {
      const auto data = pattern(bytes, rng.next());
      ASSERT_TRUE(put(file, at, data));
      if (model.size() < at + bytes) model.resize(at + bytes);
      std::copy(data.begin(), data.end(), model.begin() + static_cast<ptrdiff_t>(at));
    } else if (what < 85) {
      ASSERT_NO_FATAL_FAILURE(compare(file, at, bytes));
    } else if (what < 95) {
      ASSERT_EQ(file.size().value(), model.size());
    } else if (what < 98) {
      for (const auto& one : files) ASSERT_TRUE(one->flush());
      ASSERT_TRUE(file.sync());
    } else {
      for (const auto& one : files) ASSERT_TRUE(one->flush());
      ASSERT_TRUE(file.resize(at));
      model.resize(at);
    }
  }
  ASSERT_TRUE(files[2]->close(true));
  ASSERT_TRUE(files[1]->close(true));
  ASSERT_TRUE(files[0]->close(true));
  ASSERT_NO_FATAL_FAILURE(compare(*open(connect()), 0, model.size() + 10));
}

// The service takes longer to fetch a chunk than to read a few bytes in a message.
TEST_P(WriteBack, a_few_bytes_over_a_chunk_that_is_under_way_are_the_newer) {
  auto file = open(connect());
  const auto chunk = pattern(kMiB, 8);
  for (unsigned round = 0; round < 40; ++round) {
    const auto few = pattern(100, 1000 + round);
    for (uint64_t at = 0; at < kMiB; at += kMiB / 8)
      ASSERT_TRUE(put(*file, at, std::span(chunk).subspan(at, kMiB / 8)));
    ASSERT_TRUE(put(*file, 7 * kMiB / 8, few));
    ASSERT_EQ(get(*file, 7 * kMiB / 8, few.size()), few) << round;
  }
}

// In the local lane what was told once serves the reads that follow, until somebody writes there, be it from
// another host.
TEST_P(WriteBack, reads_that_go_forward_under_locks_ask_once_for_many_and_see_every_write) {
  const bool local = std::getenv("SLUICE_LANE") == nullptr || std::string(std::getenv("SLUICE_LANE")) != "remote";
  auto data = pattern(4 * kMiB, 9);
  const auto one = connect(30'000, "remote");
  auto owner = open(one);
  ASSERT_TRUE(put(*owner, 0, data));
  const auto two = connect();
  auto sharer = two->attach(owner->share()).value();
  const std::string stats = (service_.pool() / "reader").string();
  for (uint64_t at = 0; at < data.size(); at += 32 * 1024) (void)get(*sharer, at, 32 * 1024);
  for (uint64_t at = 0; at < data.size(); at += 32 * 1024) {
    const auto wanted = std::span(data).subspan(at, 32 * 1024);
    const auto got = get(*sharer, at, wanted.size());
    ASSERT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end())) << at;
    if (at % (256 * 1024) != 0) continue;
    const auto few = pattern(100, at);
    ASSERT_TRUE(put(*owner, at + 40'000, few));
    std::copy(few.begin(), few.end(), data.begin() + static_cast<ptrdiff_t>(at) + 40'000);
  }
  ASSERT_EQ(::setenv("SLUICE_STATS", stats.c_str(), 1), 0);
  ASSERT_TRUE(sharer->close(true));
  ::unsetenv("SLUICE_STATS");
  std::ifstream in(stats);
  const auto told = nlohmann::json::parse(in)["read"]["told"]["requests"].get<uint64_t>();
  if (local) {
    EXPECT_GT(told, 80u);
  }
}

TEST_P(WriteBack, what_was_gathered_when_the_service_went_is_there_when_it_is_back) {
  auto file = open(connect());
  const auto data = pattern(3000, 6);
  ASSERT_TRUE(put(*file, 0, data));
  service_.stop();
  start();
  ASSERT_TRUE(put(*file, 3000, data));
  ASSERT_TRUE(file->close(true));
  const auto reader = open(connect());
  EXPECT_EQ(get(*reader, 0, 3000), data);
  EXPECT_EQ(get(*reader, 3000, 3000), data);
}

TEST_P(WriteBack, a_service_that_stays_away_with_what_was_gathered_fails_flush_sync_and_close) {
  auto file = open(connect(/*unavailable_after_ms=*/300));
  ASSERT_TRUE(put(*file, 0, pattern(100, 7)));
  service_.stop();
  const auto flushed = file->flush();
  ASSERT_FALSE(flushed);
  const auto synced = file->sync();
  ASSERT_FALSE(synced);
  EXPECT_EQ(synced.error().code, ErrorCode::kAborted) << synced.error().message;
  const auto closed = file->close(true);
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, HasSubstr("open it again and write again"));
}

INSTANTIATE_TEST_SUITE_P(Modes, WriteBack, ::testing::Values("standard", "lockahead"));

}  // namespace
}  // namespace sluice
