// The local lane against a service that is a process of its own and dies at any moment.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/os.h"
#include "base/rng.h"
#include "client/client.h"
#include "tests/support/file_access.h"

namespace sluice {
namespace {

using client::AccessMode;
using client::Client;
using client::File;
using Bytes = std::vector<std::byte>;
using testing::get;
using testing::pattern;
using testing::put;

constexpr uint64_t kMiB = 1024 * 1024;
constexpr uint64_t kBlock = 64 * 1024;

// With the hot tier on a disk, where a write waits for its answer, and in memory, where it does not.
enum class Medium { kDisk, kMemory };

class LaneTest : public ::testing::TestWithParam<Medium> {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::create("sluice-lane");
    ASSERT_TRUE(directory);
    directory_.emplace(std::move(*directory));
    std::string hot = (directory_->path() / "hot").string();
    if (GetParam() == Medium::kMemory) {
      std::string name = "/dev/shm/sluice-lane.XXXXXX";
      ASSERT_NE(::mkdtemp(name.data()), nullptr);
      hot = memory_directory_ = name;
    } else {
      std::filesystem::create_directory(hot);
    }
    up("--targets 3 --hot-size 32m --hot-dir " + hot);
  }
  void TearDown() override {
    run("down --no-drain --pool " + pool());
    if (!memory_directory_.empty()) std::filesystem::remove_all(memory_directory_);
  }

  std::string pool() const { return (directory_->path() / "pool").string(); }
  int run(const std::string& arguments) const {
    const std::string log = (directory_->path() / "command.log").string();
    return std::system((std::string(SLUICE_COMMAND) + " " + arguments + " >" + log + " 2>&1").c_str());
  }
  void up(const std::string& options = "") { ASSERT_EQ(run("up --pool " + pool() + " " + options), 0); }
  pid_t service() const {
    const auto text = read_file(directory_->path() / "pool/service.json", 65536);
    return text ? nlohmann::json::parse(*text)["pid"].get<pid_t>() : 0;
  }
  void signal_service(int signal) const {
    const pid_t pid = service();
    ASSERT_GT(pid, 1);
    ASSERT_EQ(::kill(pid, signal), 0);
  }
  nlohmann::json status() const {
    const auto out = directory_->path() / "status.json";
    const std::string command =
        std::string(SLUICE_COMMAND) + " status --json --pool " + pool() + " >" + out.string();
    if (std::system(command.c_str()) != 0) return {};
    return nlohmann::json::parse(*read_file(out, 1 << 20));
  }
  uint64_t hot_bytes_used() const { return status()["hot"]["bytes_used"].get<uint64_t>(); }
  uint64_t counter(const std::string& name) const { return status()["counters"][name].get<uint64_t>(); }

  nlohmann::json stats_of_a_run(const std::string& lane);

  Result<std::shared_ptr<Client>> connect(const std::string& lane = "local") const {
    client::Options options;
    options.pool = pool();
    options.start_service = false;
    options.lane = lane;
    return Client::connect(options);
  }
  static client::OpenOptions creating() {
    client::OpenOptions options;
    options.access = AccessMode::kReadWrite;
    options.create = true;
    return options;
  }

  std::optional<TemporaryDirectory> directory_;
  std::string memory_directory_;
};

class WriteBehindTest : public LaneTest {};
INSTANTIATE_TEST_SUITE_P(On, WriteBehindTest, ::testing::Values(Medium::kMemory),
                         [](const auto&) { return "memory"; });
INSTANTIATE_TEST_SUITE_P(On, LaneTest, ::testing::Values(Medium::kDisk, Medium::kMemory),
                         [](const auto& tested) {
                           return tested.param == Medium::kDisk ? "disk" : "memory";
                         });

TEST_P(WriteBehindTest, writes_that_a_killed_service_never_heard_of_are_there_when_it_is_back) {
  auto client = connect();
  ASSERT_TRUE(client) << client.error().message;
  auto file = (*client)->open("/f", creating());
  ASSERT_TRUE(file) << file.error().message;
  Bytes expected = pattern(kBlock, 1);
  ASSERT_TRUE(put(**file, 0, expected));
  ASSERT_TRUE((*file)->flush());
  signal_service(SIGSTOP);
  // They return although nobody listens; the last one of each place is the one that counts.
  expected.resize(8 * kBlock);
  for (uint64_t i = 0; i < 20; ++i) {
    Bytes data = pattern(kBlock, 100 + i);
    const uint64_t at = i % 7 * kBlock + kBlock / 2;
    std::ranges::copy(data, expected.begin() + static_cast<std::ptrdiff_t>(at));
    auto written = put(**file, at, data);
    ASSERT_TRUE(written) << i << ": " << written.error().message;
    std::ranges::fill(data, std::byte{0xEE});  // the caller's memory is its own again
  }
  signal_service(SIGKILL);
  expected.resize(7 * kBlock + kBlock / 2);
  up();
  EXPECT_EQ(get(**file, 0, 8 * kBlock), expected);
  auto synced = (*file)->sync();
  ASSERT_TRUE(synced) << synced.error().message;
  EXPECT_EQ(get(**file, 0, 8 * kBlock), expected);
  ASSERT_TRUE((*file)->close(true));
  ASSERT_TRUE((*client)->wait_drained("/", 30'000));
}

// More writes than may be under way, through several files and from several threads at once: they wait for
// their turn, and none fails or waits for ever.
TEST_P(WriteBehindTest, any_number_of_small_writes_through_several_files_gets_through) {
  constexpr uint64_t kFiles = 3;
  constexpr uint64_t kWrites = 20'000;
  auto client = connect();
  ASSERT_TRUE(client);
  std::vector<std::thread> writers;
  for (uint64_t number = 0; number < kFiles; ++number) {
    writers.emplace_back([&, number] {
      auto file = (*client)->open("/f" + std::to_string(number), creating());
      ASSERT_TRUE(file);
      for (uint64_t i = 0; i < kWrites; ++i) {
        const Bytes data(1 + i % 700, static_cast<std::byte>(i));
        const auto written = put(**file, i % 1000 * 1000, data);
        ASSERT_TRUE(written) << i << ": " << written.error().message;
      }
      for (uint64_t i = kWrites - 1000; i < kWrites; ++i)
        ASSERT_EQ(get(**file, i % 1000 * 1000, 1)[0], static_cast<std::byte>(i)) << i;
      ASSERT_TRUE((*file)->close(true));
    });
  }
  for (auto& writer : writers) writer.join();
}

TEST_P(WriteBehindTest, threads_that_write_while_others_read_the_same_file_do_not_end_their_waits) {
  auto client = connect();
  ASSERT_TRUE(client);
  auto file = (*client)->open("/f", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, pattern(kBlock, 1)));
  std::atomic<bool> over{false};
  std::vector<std::thread> writers;
  for (uint64_t t = 1; t <= 2; ++t) {
    writers.emplace_back([&, t] {
      while (!over) {
        auto written = put(**file, t * kBlock, Bytes(3000, static_cast<std::byte>(t)));
        ASSERT_TRUE(written) << written.error().message;
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    auto size = (*file)->size();  // waits for what has returned, as reads do
    ASSERT_TRUE(size) << i << ": " << size.error().message;
  }
  over = true;
  for (auto& writer : writers) writer.join();
}

TEST_P(LaneTest, writes_over_each_other_keep_their_order_through_kills_of_the_service) {
  auto client = connect();
  ASSERT_TRUE(client) << client.error().message;
  auto file = (*client)->open("/f", creating());
  ASSERT_TRUE(file) << file.error().message;
  constexpr int kRounds = 4;
  constexpr uint64_t kFileBytes = 2 * kMiB;
  const uint64_t seed = 20261130;
  SeededRng rng(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Bytes expected(kFileBytes);
  ASSERT_TRUE(put(**file, 0, expected));
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> written = 0;
    const int kill_after = static_cast<int>(rng.next() % 150);
    std::thread killer([&] {
      while (written < kill_after) std::this_thread::yield();
      signal_service(SIGKILL);
      up();
    });
    for (int i = 0; i < 200; ++i) {
      const uint64_t bytes = 1 + rng.next() % (2 * kBlock);
      const uint64_t at = rng.next() % (kFileBytes - bytes);
      const Bytes data = pattern(bytes, rng.next());
      std::ranges::copy(data, expected.begin() + static_cast<std::ptrdiff_t>(at));
      auto put_there = put(**file, at, data);
      ASSERT_TRUE(put_there) << put_there.error().message;
      ++written;
    }
    killer.join();
    auto synced = (*file)->sync();
    ASSERT_TRUE(synced) << synced.error().message;
    ASSERT_TRUE(get(**file, 0, kFileBytes) == expected) << "round " << round;
  }
}

// Reads that go forward are served out of what was told ahead. None of them misses a write that returned
// before it began, whoever wrote.
TEST_P(LaneTest, who_reads_on_sees_every_write_that_returned_before) {
  constexpr uint64_t kBlocks = 16;
  constexpr uint64_t kWriters = 2;
  constexpr uint64_t kRounds = 300;
  auto reader = connect();
  ASSERT_TRUE(reader);
  auto file = (*reader)->open("/f", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, Bytes(kBlocks * kBlock)));
  std::atomic<uint64_t> turn{0};  // whose it is: the writers', one after the other, and then the reader's
  std::vector<std::atomic<uint8_t>> newest(kBlocks);
  std::atomic<bool> failed{false};
  const auto write = [&](uint64_t who) {
    auto client = connect();
    auto member = (*client)->attach((*file)->share());
    SeededRng rng(who + 1);
    for (uint64_t round = 0; round < kRounds && !failed; ++round) {
      while (turn != round * (kWriters + 1) + who && !failed) std::this_thread::yield();
      const uint64_t block = rng.below(kBlocks);
      const auto byte = static_cast<uint8_t>(1 + (round * kWriters + who) % 250);
      // Of many sizes, at many places of its block.
      const uint64_t bytes = rng.below(2) == 0 ? kBlock : 1 + rng.below(kBlock);
      if (!put(**member, block * kBlock, Bytes(bytes, static_cast<std::byte>(byte)))) failed = true;
      newest[block] = byte;
      ++turn;
    }
    EXPECT_TRUE((*member)->close(false));
  };
  std::vector<std::thread> writers;
  for (uint64_t who = 0; who < kWriters; ++who) writers.emplace_back(write, who);
  for (uint64_t round = 0; round < kRounds && !failed; ++round) {
    while (turn != round * (kWriters + 1) + kWriters && !failed) std::this_thread::yield();
    for (uint64_t block = 0; block < kBlocks; ++block) {
      const Bytes seen = get(**file, block * kBlock, 16);
      EXPECT_EQ(static_cast<uint8_t>(seen[0]), newest[block]) << "round " << round << ", block " << block;
      if (static_cast<uint8_t>(seen[0]) != newest[block]) failed = true;
    }
    ++turn;
  }
  for (auto& writer : writers) writer.join();
  // What was cut off is not read either.
  (void)get(**file, 0, 100);
  auto client = connect();
  auto member = (*client)->attach((*file)->share());
  ASSERT_TRUE((*member)->resize(kBlock));
  EXPECT_EQ(get(**file, kBlock - 1, 100).size(), 1u);
  ASSERT_TRUE((*member)->close(false));
}

// What was told by a service that is gone does not outlive it, whenever it went.
TEST_P(LaneTest, who_reads_on_through_restarts_of_the_service_sees_what_was_written_after_them) {
  constexpr uint64_t kBlocks = 8;
  auto one = connect();
  auto two = connect();
  ASSERT_TRUE(one && two);
  auto file = (*one)->open("/f", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, Bytes(kBlocks * kBlock)));
  auto reader = (*two)->attach((*file)->share());
  ASSERT_TRUE(reader);
  for (uint8_t round = 1; round <= 6; ++round) {
    std::atomic<bool> over{false};
    std::thread reading([&] {
      for (uint64_t at = 0; !over; at = (at + kBlock) % (kBlocks * kBlock)) (void)get(**reader, at, 16);
    });
    signal_service(SIGKILL);
    up();
    const auto written = put(**file, 0, Bytes(kBlocks * kBlock, static_cast<std::byte>(round)));
    over = true;
    reading.join();
    ASSERT_TRUE(written) << written.error().message;
    ASSERT_TRUE((*file)->flush());
    for (uint64_t block = 0; block < kBlocks; ++block)
      ASSERT_EQ(get(**reader, block * kBlock, 1)[0], static_cast<std::byte>(round)) << "block " << block;
  }
}

// A write that returned and was not heard before the service died comes before whatever another process does
// after it, whoever of them is back first.
TEST_P(WriteBehindTest, what_returned_before_a_kill_comes_before_what_others_do_after_it) {
  auto one = connect();
  auto two = connect();
  ASSERT_TRUE(one && two);
  auto file = (*one)->open("/f", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, Bytes(2 * kBlock)));
  auto other = (*two)->attach((*file)->share());
  ASSERT_TRUE(other);
  for (uint8_t round = 1; round <= 12; ++round) {
    ASSERT_TRUE((*file)->flush());
    signal_service(SIGSTOP);
    ASSERT_TRUE(put(**file, 0, Bytes(2 * kBlock, static_cast<std::byte>(round))));
    signal_service(SIGKILL);
    up();
    EXPECT_EQ(get(**other, 0, 1)[0], static_cast<std::byte>(round)) << "read";
    ASSERT_TRUE(put(**other, kBlock, Bytes(kBlock, static_cast<std::byte>(100 + round))));
    ASSERT_TRUE((*other)->flush());
    ASSERT_TRUE((*file)->flush());
    EXPECT_EQ(get(**file, kBlock, 1)[0], static_cast<std::byte>(100 + round)) << "written over";
  }
}

TEST_P(LaneTest, who_reads_what_is_committed_sees_the_next_commit) {
  auto one = connect();
  auto two = connect();
  ASSERT_TRUE(one && two);
  auto file = (*one)->open("/f", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, Bytes(4 * kBlock, std::byte{1})));
  ASSERT_TRUE((*file)->sync());
  auto reader = (*two)->open("/f", {});
  ASSERT_TRUE(reader) << reader.error().message;
  for (uint8_t version = 2; version < 40; ++version) {
    EXPECT_EQ(get(**reader, 0, 8)[0], static_cast<std::byte>(version - 1));
    ASSERT_TRUE(put(**file, 0, Bytes(4 * kBlock, static_cast<std::byte>(version))));
    EXPECT_EQ(get(**reader, kBlock, 8)[0], static_cast<std::byte>(version - 1)) << "not committed";
    ASSERT_TRUE((*file)->sync());
    EXPECT_EQ(get(**reader, 2 * kBlock, 8)[0], static_cast<std::byte>(version));
  }
}

TEST_P(LaneTest, reading_on_asks_the_service_once_for_many_reads) {
  auto client = connect();
  ASSERT_TRUE(client);
  auto file = (*client)->open("/f", creating());
  ASSERT_TRUE(file);
  const Bytes data = pattern(4 * kMiB, 9);
  ASSERT_TRUE(put(**file, 0, data));
  ASSERT_TRUE((*file)->flush());
  const uint64_t before = counter("reads");
  for (uint64_t at = 0; at < data.size(); at += kBlock) {
    const Bytes seen = get(**file, at, kBlock);
    ASSERT_TRUE(std::ranges::equal(seen, std::span(data).subspan(at, kBlock))) << at;
  }
  EXPECT_LE(counter("reads") - before, 12u) << "for 64 reads";
}

TEST_P(WriteBehindTest, what_left_the_hot_tier_is_brought_back_once_for_all_who_read_it) {
  const Bytes data = pattern(12 * kMiB + 100, 4);
  auto client = connect();
  ASSERT_TRUE(client);
  auto file = (*client)->open("/f", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, data));
  ASSERT_TRUE((*file)->close(true));
  ASSERT_TRUE((*client)->wait_drained("/", 30'000));
  client->reset();
  ASSERT_EQ(run("down --pool " + pool()), 0);
  up();
  ASSERT_EQ(status()["hot"]["bytes_clean"], 0);
  auto one = connect();
  auto two = connect();
  ASSERT_TRUE(one && two);
  auto reader = (*one)->open("/f", {});
  auto other = (*two)->open("/f", {});
  ASSERT_TRUE(reader && other);
  // Rows of half a block each, every second one: what the one brings is what the other wants.
  constexpr uint64_t kRow = kBlock / 2;
  for (const auto& [from, opened] : {std::pair(uint64_t{0}, &*reader), std::pair(kRow, &*other)}) {
    std::vector<Extent> rows;
    Bytes expected;
    for (uint64_t at = from; at + kRow <= 12 * kMiB; at += kBlock) {
      rows.push_back(Extent::at(Offset(at), Length(kRow)));
      expected.insert(expected.end(), data.begin() + static_cast<std::ptrdiff_t>(at),
                      data.begin() + static_cast<std::ptrdiff_t>(at + kRow));
    }
    Bytes seen(expected.size());
    const client::Piece piece{seen.data(), seen.size()};
    auto read = (*opened)->read(rows, {&piece, 1});
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(seen, expected);
  }
  EXPECT_EQ(status()["hot"]["bytes_clean"], 12 * kMiB);
  EXPECT_EQ(get(**reader, 0, 13 * kMiB), data) << "what lies before the end";
}

// The hot tier is smaller than two versions of the file, so that parts of it leave and come back.
TEST_P(WriteBehindTest, readers_see_one_version_at_a_time_of_what_leaves_the_hot_tier_and_comes_back) {
  constexpr uint64_t kBytes = 20 * kMiB;
  constexpr uint8_t kVersions = 7;
  auto writer = connect();
  ASSERT_TRUE(writer);
  auto file = (*writer)->open("/f", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, Bytes(kBytes, std::byte{1})));
  ASSERT_TRUE((*file)->sync());
  std::atomic<uint8_t> committed{1};
  std::atomic<uint64_t> reads{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    readers.emplace_back([&, seed] {
      SeededRng rng(seed);
      auto client = connect();
      auto reader = client ? (*client)->open("/f", {}) : fail(client.error());
      while (reader && !stop) {
        const uint64_t length = 1 + rng.below(2 * kMiB);
        const uint8_t before = committed;
        const Bytes seen = get(**reader, rng.below(kBytes - length), length);
        ASSERT_EQ(seen.size(), length);
        ASSERT_TRUE(std::ranges::all_of(seen, [&](std::byte byte) { return byte == seen[0]; })) << "torn";
        ASSERT_GE(static_cast<uint8_t>(seen[0]), before) << "an older version than one that was committed";
        ++reads;
      }
      EXPECT_TRUE(reader);
    });
  }
  for (uint8_t version = 2; version <= kVersions; ++version) {
    EXPECT_TRUE(put(**file, 0, Bytes(kBytes, static_cast<std::byte>(version))));
    EXPECT_TRUE((*file)->sync());
    EXPECT_TRUE((*writer)->wait_drained("/", 30'000));
    committed = version;
    const uint64_t seen = reads;
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
         reads < seen + 20 && std::chrono::steady_clock::now() < end;) {
      std::this_thread::yield();
    }
    EXPECT_GT(reads, seen + 2) << "of version " << int{version};  // two had begun before
  }
  stop = true;
  for (auto& reader : readers) reader.join();
}

// 32 blocks and a few bytes written, the blocks read forward, over the lane; what SLUICE_STATS says of it.
nlohmann::json LaneTest::stats_of_a_run(const std::string& lane) {
  const auto told = directory_->path() / ("stats." + lane);
  ::setenv("SLUICE_STATS", told.c_str(), 1);
  auto client = connect(lane);
  EXPECT_TRUE(client) << client.error().message;
  auto file = (*client)->open("/" + lane, creating());
  EXPECT_TRUE(file);
  for (uint64_t i = 0; i < 32; ++i) EXPECT_TRUE(put(**file, i * kBlock, pattern(kBlock, i)));
  EXPECT_TRUE(put(**file, 32 * kBlock, pattern(16, 1)));
  EXPECT_TRUE((*file)->sync());
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(get(**file, i * kBlock, kBlock), pattern(kBlock, i));
  (*file)->count_plan(/*two_phase=*/false, 0);
  (*file)->count_plan(/*two_phase=*/true, 4096);
  EXPECT_TRUE((*file)->close(true));
  ::unsetenv("SLUICE_STATS");
  const auto text = read_file(told, 65536);
  return text ? nlohmann::json::parse(*text) : nlohmann::json();
}

TEST_P(LaneTest, what_was_planned_sent_and_waited_for_is_told_at_close) {
  const auto local = stats_of_a_run("local");
  constexpr uint64_t kBytes = 32 * kBlock;
  EXPECT_EQ(local["file"], "/local");
  EXPECT_EQ(local["pid"], ::getpid());
  EXPECT_EQ(local["written"]["accesses"], 33);
  EXPECT_EQ(local["written"]["bytes"], kBytes + 16);
  EXPECT_EQ(local["written"]["slab"]["requests"], 33);
  EXPECT_EQ(local["read"]["accesses"], 32);
  EXPECT_EQ(local["read"]["bytes"], kBytes);
  EXPECT_GT(local["read"]["told"]["requests"], 16) << "reading on asks once for many";
  EXPECT_GT(local["read"]["mapped"]["requests"], 0);
  EXPECT_LT(local["messages"], 33 + 16);
  EXPECT_GT(local["waited"]["room"]["count"], 0) << "the first write asks for room";
  EXPECT_GT(local["waited"]["answers"]["us"], 0);
  EXPECT_EQ(local["planned"], (nlohmann::json{{"direct", 1}, {"two_phase", 1}, {"exchanged_bytes", 4096}}));

  const auto remote = stats_of_a_run("remote");
  EXPECT_EQ(remote["written"]["slab"]["requests"], 0);
  EXPECT_EQ(remote["written"]["remote"], (nlohmann::json{{"requests", 32}, {"bytes", kBytes}}));
  EXPECT_EQ(remote["written"]["inline"], (nlohmann::json{{"requests", 1}, {"bytes", 16}}));
  EXPECT_EQ(remote["read"]["remote"], (nlohmann::json{{"requests", 32}, {"bytes", kBytes}}));
  EXPECT_GE(remote["messages"], 65 + 2) << "each access, the sync and the close";
  EXPECT_GE(remote["waited"]["answers"]["count"], 2) << "an answer that was there already was not waited for";
  EXPECT_LE(remote["waited"]["answers"]["count"], 65 + 2);
  EXPECT_GT(remote["waited"]["answers"]["us"], 0);
  EXPECT_EQ(remote["waited"]["room"]["count"], 0);
}

TEST_P(LaneTest, more_than_the_hot_tier_holds_is_written_while_the_drain_makes_room) {
  auto client = connect();
  ASSERT_TRUE(client);
  auto other = connect();  // sits on an idle grant
  ASSERT_TRUE(other);
  auto idle = (*other)->open("/idle", creating());
  ASSERT_TRUE(idle);
  ASSERT_TRUE(put(**idle, 0, pattern(1000, 3)));
  auto file = (*client)->open("/large", creating());
  ASSERT_TRUE(file);
  for (uint64_t i = 0; i < 60; ++i) {
    auto written = put(**file, i * kMiB, pattern(kMiB, i));
    ASSERT_TRUE(written) << i << ": " << written.error().message;
  }
  auto synced = (*file)->sync();
  ASSERT_TRUE(synced) << synced.error().message;
  for (uint64_t i = 0; i < 60; ++i) EXPECT_TRUE(get(**file, i * kMiB, kMiB) == pattern(kMiB, i)) << i;
  EXPECT_EQ(get(**idle, 0, 1000), pattern(1000, 3));
}

TEST_P(LaneTest, a_file_that_is_removed_while_its_service_is_away_was_removed_and_nothing_else) {
  auto client = connect();
  ASSERT_TRUE(client);
  auto file = (*client)->open("/f", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, pattern(kBlock, 1)));
  ASSERT_TRUE((*file)->sync());
  signal_service(SIGKILL);
  ASSERT_EQ(run("rm /f --pool " + pool()), 0);
  up();
  const std::string removed = "/f was removed while it was open";
  const auto written = put(**file, 0, pattern(kBlock, 2));
  EXPECT_TRUE(written || written.error().message.starts_with(removed)) << written.error().message;
  for (const auto& refused : {(*file)->sync(), (*file)->size()}) {
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().message.starts_with(removed)) << refused.error().message;
  }
  const auto closed = (*file)->close(true);
  ASSERT_FALSE(closed);
  EXPECT_TRUE(closed.error().message.starts_with(removed)) << closed.error().message;
}

// Their batches, of 4 MiB, are more than there is room for: what waits for room must not keep those from
// being drained that have some.
TEST_P(LaneTest, more_clients_than_the_hot_tier_has_room_for_get_their_turn) {
  constexpr uint64_t kClients = 12;
  constexpr uint64_t kBytes = 16 * kMiB;
  std::vector<std::thread> writers;
  for (uint64_t number = 0; number < kClients; ++number) {
    writers.emplace_back([&, number] {
      auto client = connect();
      ASSERT_TRUE(client) << client.error().message;
      auto file = (*client)->open("/f" + std::to_string(number), creating());
      ASSERT_TRUE(file) << file.error().message;
      auto written = put(**file, 0, Bytes(kBytes, static_cast<std::byte>(number)));
      ASSERT_TRUE(written) << written.error().message;
      auto closed = (*file)->close(true);
      ASSERT_TRUE(closed) << closed.error().message;
    });
  }
  for (auto& writer : writers) writer.join();
}

TEST_P(LaneTest,
       a_client_killed_in_the_middle_of_its_writes_costs_the_others_nothing_and_its_room_comes_back) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto client = connect();
    auto file = client ? (*client)->open("/victim", creating()) : fail(client.error());
    const Bytes data = pattern(4 * kMiB, 5);
    for (uint64_t i = 0; file; ++i) {
      if (!put(**file, i % 4 * data.size(), data)) ::_exit(1);
    }
    ::_exit(1);
  }
  ASSERT_GT(child, 0);
  auto client = connect();
  ASSERT_TRUE(client) << client.error().message;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  const auto in_time = [&] { return std::chrono::steady_clock::now() < deadline; };
  while (in_time() && hot_bytes_used() < 4 * kMiB) {
  }
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "it ended before it was killed";
  auto file = (*client)->open("/other", creating());
  ASSERT_TRUE(file);
  ASSERT_TRUE(put(**file, 0, pattern(kMiB, 6)));
  ASSERT_TRUE((*file)->close(true));
  ASSERT_TRUE((*client)->wait_drained("/", 30'000));
  while (in_time() && hot_bytes_used() != 0) {
  }
  EXPECT_EQ(hot_bytes_used(), 0u);
  const auto info = (*client)->stat("/victim");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->size_bytes, 0u) << "nothing of it was committed";
}

}  // namespace
}  // namespace sluice
