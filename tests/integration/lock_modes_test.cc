// The lock modes over a real service, in one process: two clients are two jobs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
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
using testing::put;

constexpr uint64_t kPiece = 64 * 1024;
constexpr uint64_t kPieces = 24;

std::string hint_of(const File& file, const std::string& name) {
  for (const auto& [hint, value] : file.effective_hints()) {
    if (hint == name) return value;
  }
  return "";
}

class LockModes : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    server::PoolRequest request;
    request.targets = 3;
    request.hot_bytes = 64 << 20;
    service_.ask(request);
    auto started = service_.start();
    ASSERT_TRUE(started) << started.error().message;
  }
  std::unique_ptr<File> open(const std::shared_ptr<Client>& client, const std::string& mode) {
    OpenOptions options;
    options.access = client::AccessMode::kReadWrite;
    options.create = true;
    options.lock_mode = mode;
    auto file = client->open("/shared", options);
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : nullptr;
  }
  std::shared_ptr<Client> connect() { return service_.connect().value(); }

  MiniService service_;
};

// Job `id` writes pieces [from, to) again and again, each time with another byte, and syncs. Answers the last
// byte that it committed.
void run_job(File& file, uint8_t id, uint64_t from, uint64_t to, unsigned rounds) {
  std::vector<std::byte> data(kPiece);
  for (unsigned round = 0; round < rounds; ++round) {
    std::fill(data.begin(), data.end(), static_cast<std::byte>(id + round));
    for (uint64_t i = from; i < to; ++i) {
      const auto written = put(file, i * kPiece, data);
      ASSERT_TRUE(written) << written.error().message;
    }
    const auto synced = file.sync();
    ASSERT_TRUE(synced) << synced.error().message;
  }
}

// A legal order of the jobs' transactions: all that both wrote comes from one transaction, and what only one
// wrote from its last one.
TEST_P(LockModes, two_jobs_that_write_one_file_at_once_leave_contents_of_a_legal_order) {
  constexpr unsigned kRounds = 6;
  const auto one = connect();
  const auto two = connect();
  auto first = open(one, GetParam());
  auto second = open(two, GetParam());
  ASSERT_TRUE(first && second);
  std::thread job([&] { run_job(*first, 10, 0, 16, kRounds); });
  run_job(*second, 100, 8, kPieces, kRounds);
  job.join();
  ASSERT_TRUE(first->close(true));
  ASSERT_TRUE(second->close(true));
  auto reader = open(connect(), "auto");
  const auto all = get(*reader, 0, kPieces * kPiece);
  ASSERT_EQ(all.size(), kPieces * kPiece);
  const auto only = [&](uint64_t from, uint64_t to) {
    const std::byte byte = all[from * kPiece];
    for (uint64_t i = from * kPiece; i < to * kPiece; ++i) {
      if (all[i] != byte) return 0;
    }
    return static_cast<int>(byte);
  };
  EXPECT_EQ(only(0, 8), 10 + kRounds - 1);
  EXPECT_EQ(only(16, kPieces), 100 + kRounds - 1);
  const int both = only(8, 16);
  EXPECT_TRUE(both == 10 + kRounds - 1 || both == 100 + kRounds - 1)
      << "two transactions are mixed: " << both;
}

// Within one job the members of a handle see each other's writes at once: a write is there whole or not at
// all for a reader that takes a lock, in the modes that promise it.
class CoherentModes : public LockModes {};
TEST_P(CoherentModes, members_of_one_job_see_whole_writes_of_each_other) {
  const std::string mode = GetParam();
  const auto one = connect();
  const auto two = connect();
  auto owner = open(one, mode);
  ASSERT_TRUE(owner);
  auto member = two->attach(owner->share());
  ASSERT_TRUE(member);
  ASSERT_TRUE(put(*owner, 0, std::vector<std::byte>(kPiece)));
  std::thread writer([&] {
    for (unsigned round = 1; round < 60; ++round)
      ASSERT_TRUE(put(*owner, 0, std::vector<std::byte>(kPiece, static_cast<std::byte>(round))));
  });
  for (unsigned round = 0; round < 60; ++round) {
    const auto seen = get(**member, 0, kPiece);
    ASSERT_EQ(seen.size(), kPiece);
    ASSERT_TRUE(std::all_of(seen.begin(), seen.end(), [&](std::byte b) { return b == seen[0]; }))
        << "a torn write";
  }
  writer.join();
}

// Under a held lock an access of many requests is one, for all who hold one too. Whoever holds it is not kept
// waiting by those who wait for it.
TEST_P(LockModes, what_is_done_under_a_held_lock_is_whole_for_the_other_members) {
  constexpr uint64_t kRuns = 6000;  // of 4 bytes, 8 apart: more than one request
  constexpr unsigned kMembers = 3;
  constexpr unsigned kRounds = 15;
  const Extent all = Extent::at(Offset(0), Length(kRuns * 8));
  std::vector<Extent> runs;
  for (uint64_t i = 0; i < kRuns; ++i) runs.push_back(Extent::at(Offset(i * 8), Length(4)));
  std::vector<std::shared_ptr<Client>> clients{connect()};
  std::vector<std::unique_ptr<File>> files;
  files.push_back(open(clients[0], GetParam()));
  ASSERT_TRUE(files[0]);
  ASSERT_TRUE(put(*files[0], 0, std::vector<std::byte>(kRuns * 8)));
  for (unsigned i = 1; i < kMembers; ++i) {
    clients.push_back(connect());
    files.push_back(clients[i]->attach(files[0]->share()).value());
  }
  const auto work = [&](unsigned member) {
    File& file = *files[member];
    std::vector<std::byte> data(kRuns * 4);
    for (unsigned round = 0; round < kRounds; ++round) {
      const bool writes = (round + member) % 2 == 0;
      const auto lock = file.lock(all, writes);
      ASSERT_TRUE(lock) << lock.error().message;
      std::fill(data.begin(), data.end(), static_cast<std::byte>(1 + round * kMembers + member));
      const client::Piece piece{data.data(), data.size()};
      const client::ConstPiece same{data.data(), data.size()};
      const auto moved = writes ? file.write(runs, {&same, 1}) : file.read(runs, {&piece, 1});
      ASSERT_TRUE(moved) << moved.error().message;
      ASSERT_EQ(*moved, data.size());
      ASSERT_TRUE(file.unlock(*lock));
      EXPECT_EQ(std::count(data.begin(), data.end(), data[0]), static_cast<ptrdiff_t>(data.size()))
          << "a read of two writes";
    }
  };
  std::vector<std::thread> members;
  for (unsigned i = 0; i < kMembers; ++i) members.emplace_back(work, i);
  for (auto& member : members) member.join();
}

// Each write of a job lies over the ones before it, also when its lock went to somebody else in between.
TEST_P(LockModes, the_writes_of_one_job_keep_their_order_while_another_takes_its_locks) {
  const auto one = connect();
  const auto two = connect();
  auto mine = open(one, GetParam());
  auto theirs = open(two, GetParam());
  ASSERT_TRUE(mine && theirs);
  std::atomic<bool> over{false};
  std::thread other([&] {
    const std::vector<std::byte> data(100, std::byte{0xff});
    while (!over) ASSERT_TRUE(put(*theirs, 50, data));
  });
  std::vector<std::byte> data(100);
  for (int i = 0; i < 300; ++i) {
    std::ranges::fill(data, static_cast<std::byte>(i));
    ASSERT_TRUE(put(*mine, 0, data));
    if (i % 10 == 9) {
      ASSERT_EQ(get(*mine, 0, 100), data) << i;
    }
  }
  over = true;
  other.join();
}

INSTANTIATE_TEST_SUITE_P(All, LockModes, ::testing::Values("standard", "group", "lockahead", "none", "auto"));
// Under group the job sees to consistency among its members, and so it does under auto when it is alone.
INSTANTIATE_TEST_SUITE_P(All, CoherentModes, ::testing::Values("standard", "lockahead"));

class LockModeOfAFile : public LockModes {};

TEST_F(LockModeOfAFile, auto_says_none_when_alone_and_locks_when_others_write_the_file) {
  const auto client = connect();
  auto alone = open(client, "auto");
  EXPECT_EQ(alone->lock_mode(), "none");
  EXPECT_THAT(hint_of(*alone, "sluice_lock_reason"), HasSubstr("nobody else"));
  auto other = open(connect(), "auto");
  EXPECT_EQ(other->lock_mode(), "auto");
  EXPECT_THAT(hint_of(*other, "sluice_lock_reason"), HasSubstr("1 other had the file open"));
  // Who attaches goes by what the opener settled.
  auto member = connect()->attach(other->share());
  ASSERT_TRUE(member);
  EXPECT_EQ((*member)->lock_mode(), "auto");
  EXPECT_EQ(hint_of(**member, "sluice_lock_reason"), hint_of(*other, "sluice_lock_reason"));
}

TEST_F(LockModeOfAFile, lockahead_13_unused_locks_beyond_the_end_do_not_count_for_the_size) {
  const auto one = connect();
  const auto two = connect();
  auto holder = open(one, "lockahead");
  auto member = two->attach(holder->share());
  ASSERT_TRUE(member);
  // A stride far out: its window reaches beyond whatever is written.
  const std::vector<std::byte> data(4096);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(put(*holder, i * (1 << 20), data));
  client::LockReport locks;
  do {
    locks = two->locks("/shared").value();
  } while (locks.held < 6);
  ASSERT_GT(locks.locks.back().extent.end.value, uint64_t{6} << 20);
  ASSERT_TRUE(put(**member, uint64_t{3} << 20, std::vector<std::byte>(5000)));
  EXPECT_EQ(holder->size().value(), (uint64_t{3} << 20) + 5000);
  EXPECT_EQ((*member)->size().value(), (uint64_t{3} << 20) + 5000);
}

TEST_F(LockModeOfAFile, who_holds_and_who_waits_is_shown_with_what_the_locks_did) {
  const auto one = connect();
  const auto two = connect();
  auto holder = open(one, "standard");
  auto other = open(two, "standard");
  const auto lock = holder->lock({Offset(0), Offset(10)}, true);
  ASSERT_TRUE(lock);
  std::thread waiter([&] {
    const auto got = other->lock({Offset(5), Offset(7)}, false);
    ASSERT_TRUE(got);
    EXPECT_TRUE(other->unlock(*got));
  });
  client::LockReport report;
  do {
    report = connect()->locks("/shared").value();
  } while (report.waiting == 0);
  EXPECT_EQ(report.held, 1u);
  EXPECT_EQ(report.revoked, 1u);
  ASSERT_EQ(report.locks.size(), 2u);
  EXPECT_EQ(report.locks[0].mode, "PW");
  EXPECT_TRUE(report.locks[0].revoked);
  EXPECT_EQ(report.locks[0].pid, static_cast<uint32_t>(::getpid()));
  EXPECT_TRUE(report.locks[1].waiting);
  EXPECT_EQ(report.locks[1].mode, "PR");
  EXPECT_EQ(report.locks[1].extent, (Extent{Offset(5), Offset(7)}));
  ASSERT_TRUE(holder->unlock(*lock));
  waiter.join();
  report = connect()->locks("/shared").value();
  EXPECT_EQ(report.waits, 1u);
  EXPECT_EQ(report.revokes, 1u);
  EXPECT_EQ(report.grants, 2u);
  EXPECT_THAT(connect()->locks("/nothing").error().message, HasSubstr("/nothing does not exist"));
}

TEST_F(LockModeOfAFile, what_the_locks_did_is_told_at_close) {
  const std::string path = (service_.pool() / "stats").string();
  ASSERT_EQ(::setenv("SLUICE_STATS", path.c_str(), 1), 0);
  {
    const auto client = connect();
    auto file = open(client, "lockahead");
    const std::vector<std::byte> data(4096);
    for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(put(*file, i * 3 * 4096, data));
    ASSERT_TRUE(file->close(true));
  }
  ::unsetenv("SLUICE_STATS");
  std::ifstream in(path);
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  EXPECT_THAT(line, HasSubstr(R"("accesses":100)"));
  EXPECT_THAT(line, HasSubstr(R"("lock_mode":"lockahead")"));
  EXPECT_THAT(line, HasSubstr(R"("expansions":0)"));
  EXPECT_THAT(line, HasSubstr(R"("dropped_ahead":0)"));
}

}  // namespace
}  // namespace sluice
