// kill -9 of a process that writes to a real pool file, again and again, at random moments.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "base/checksum.h"
#include "base/os.h"
#include "base/rng.h"
#include "burst_buffer/hot_tier.h"

namespace sluice::burst_buffer {
namespace {

constexpr uint64_t kPoolBytes = uint64_t{16} << 20;
constexpr uint64_t kFileBytes = 96 * 1024;
constexpr int kKills = 60;
const ContainerId kFile(1);

// What the child tells its parent, in memory they share; it outlives the child.
struct Progress {
  std::atomic<uint64_t> steps{0};  // of the transaction that is open
  std::atomic<uint64_t> begun{0};  // the epoch that transaction will be
  std::atomic<uint64_t> committed{0};
  std::atomic<uint64_t> failed{0};
};

struct Write {
  uint64_t at;
  std::string text;
};

// The writes of epoch N are a function of N, so that parent and child need not talk about them.
std::vector<Write> writes_of(uint64_t epoch) {
  SeededRng rng(epoch);
  std::vector<Write> writes;
  for (uint64_t i = 1 + rng.below(6); i > 0; --i) {
    const uint64_t at = rng.below(kFileBytes - 1);
    const uint64_t length = 1 + rng.below(std::min<uint64_t>(kFileBytes - at, 20'000));
    writes.push_back({at, std::string(length, static_cast<char>('A' + rng.below(58)))});
  }
  return writes;
}

bool child_step(HotTier& hot, uint64_t epoch, Progress& progress) {
  const TxnId txn(epoch);
  if (!hot.begin(txn, kFile, SessionId(1))) return false;
  progress.steps = 0;
  progress.begun = epoch;
  for (const Write& write : writes_of(epoch)) {
    auto slab = hot.reserve(Length(write.text.size()));
    if (!slab) return false;
    std::memcpy(hot.bytes(*slab).data(), write.text.data(), write.text.size());
    const Extent extent = Extent::at(Offset(write.at), Length(write.text.size()));
    if (!hot.write(txn, std::span(&extent, 1), *slab, block_checksums(hot.bytes(*slab)))) return false;
    ++progress.steps;
  }
  const auto info = hot.commit(txn);
  if (!info || info->epoch != Epoch(epoch)) return false;
  progress.committed = epoch;
  return true;
}

[[noreturn]] void child(const std::string& path, uint64_t first_epoch, Progress& progress) {
  auto hot = HotTier::open({path, kPoolBytes, {}}, nullptr);
  if (hot) {
    bool clean = true;
    for (const auto& open : (*hot)->open_transactions()) clean = (*hot)->abort(open.txn).has_value() && clean;
    for (uint64_t epoch = first_epoch; clean; ++epoch) clean = child_step(**hot, epoch, progress);
  }
  progress.failed = 1;
  ::_exit(1);
}

std::string read_file(HotTier& hot, std::optional<TxnId> txn) {
  std::string text;
  auto view = hot.view(kFile, txn, {Offset(0), Offset(kFileBytes)});
  EXPECT_TRUE(view);
  if (!view) return text;
  for (const Segment& segment : view->segments) {
    if (segment.kind == Segment::Kind::kBytes) {
      text.append(reinterpret_cast<const char*>(segment.bytes.data()), segment.bytes.size());
    } else {
      text.append(segment.extent.length().value, '0');
    }
  }
  return text;
}

TEST(Kill, a_killed_process_loses_no_commit_and_shows_nothing_of_an_open_transaction) {
  auto directory = TemporaryDirectory::create("sluice-kill");
  ASSERT_TRUE(directory);
  const std::string path = (directory->path() / "hot.pool").string();
  void* shared = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& progress = *new (shared) Progress;
  SeededRng rng(20240607);

  std::string contents(kFileBytes, '0');
  uint64_t epoch = 0;
  uint64_t survived_open = 0;
  for (int kill = 0; kill < kKills && !::testing::Test::HasFailure(); ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    progress.committed = epoch;
    progress.begun = epoch;
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) child(path, epoch + 1, progress);
    // At a random moment after a random number of commits; the first kills hit the creation and the recovery.
    const uint64_t commits = rng.below(12);
    while (progress.committed < epoch + commits && progress.failed == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(rng.below(3000)));
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_EQ(progress.failed, 0u);

    auto hot = HotTier::open({path, kPoolBytes, {}}, nullptr);
    ASSERT_TRUE(hot) << hot.error().message;
    const uint64_t found = (*hot)->committed(kFile, Epoch(0)).value;
    ASSERT_GE(found, progress.committed.load());
    ASSERT_LE(found, progress.begun.load());
    while (epoch < found) {
      for (const Write& write : writes_of(++epoch)) contents.replace(write.at, write.text.size(), write.text);
    }
    EXPECT_EQ(read_file(**hot, std::nullopt), contents);
    for (const auto& open : (*hot)->open_transactions()) {
      ++survived_open;
      ASSERT_EQ(open.txn.value, found + 1);
      if (progress.begun != found + 1) continue;  // killed before it told
      // The acknowledged writes, and perhaps the one in hand.
      const auto writes = writes_of(found + 1);
      std::string with = contents;
      std::vector<std::string> possible{with};
      for (const Write& write : writes)
        possible.push_back(with.replace(write.at, write.text.size(), write.text));
      const uint64_t steps = progress.steps;
      const std::string seen = read_file(**hot, open.txn);
      EXPECT_TRUE(seen == possible[steps] || (steps < writes.size() && seen == possible[steps + 1]));
    }
  }
  EXPECT_GT(epoch, 100u);
  EXPECT_GT(survived_open, 5u);
  ::munmap(shared, sizeof(Progress));
}

}  // namespace
}  // namespace sluice::burst_buffer
