// Locks when somebody goes: the service is started again, or a client dies or falls silent.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/file_access.h"
#include "tests/support/mini_service.h"

extern char** environ;

namespace sluice {
namespace {

using client::Client;
using client::File;
using client::OpenOptions;
using ::testing::HasSubstr;
using testing::MiniService;
using ::testing::StartsWith;

constexpr Extent kAll{Offset(0), Offset(uint64_t{1} << 40)};
constexpr auto kLease = std::chrono::seconds(10);  // what the service gives its clients

class LockLoss : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto started = service_.start(/*targets=*/3, /*hot_bytes=*/64 << 20);
    ASSERT_TRUE(started) << started.error().message;
  }
  void start() {
    auto started = service_.start();
    ASSERT_TRUE(started) << started.error().message;
  }
  std::shared_ptr<Client> connect() { return service_.connect().value(); }
  std::unique_ptr<File> open(const std::shared_ptr<Client>& client, const std::string& mode) {
    OpenOptions options;
    options.access = client::AccessMode::kReadWrite;
    options.create = true;
    options.lock_mode = mode;
    options.lockahead_extents = 1024;
    auto file = client->open("/held", options);
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : nullptr;
  }

  MiniService service_;
};

Result<uint64_t> put(File& file, uint64_t at, std::byte byte, size_t bytes = 512) {
  return testing::put(file, at, std::vector<std::byte>(bytes, byte));
}

std::byte get(File& file, uint64_t at) {
  return testing::get(file, at, 1).at(0);
}

TEST_F(LockLoss, a_lock_held_over_a_restart_of_the_service_keeps_others_out_until_it_is_given_back) {
  const auto one = connect();
  const auto two = connect();
  auto mine = open(one, "standard");
  auto theirs = open(two, "standard");
  const auto lock = mine->lock({Offset(0), Offset(100)}, true);
  ASSERT_TRUE(lock);
  service_.stop();
  start();
  std::atomic<bool> given_back{false};
  std::thread other([&] {
    const auto got = theirs->lock({Offset(50), Offset(60)}, true);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(given_back) << "two clients hold one range";
    EXPECT_TRUE(theirs->unlock(*got));
  });
  // By the answer to this the service has heard of the lock again.
  ASSERT_TRUE(mine->size());
  given_back = true;
  const auto unlocked = mine->unlock(*lock);
  EXPECT_TRUE(unlocked) << unlocked.error().message;
  other.join();
}

TEST_F(LockLoss, ten_thousand_locks_go_on_over_a_restart_and_none_is_taken_anew) {
  constexpr uint64_t kLocks = 10'000;
  const std::string stats = (service_.pool() / "stats").string();
  ASSERT_EQ(::setenv("SLUICE_STATS", stats.c_str(), 1), 0);
  const auto client = connect();
  auto file = open(client, "lockahead");
  for (uint64_t i = 0; i < kLocks; ++i) ASSERT_TRUE(put(*file, i * 1024, std::byte{1}));
  service_.stop();
  start();
  const auto began = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < kLocks; ++i) ASSERT_TRUE(put(*file, i * 1024, std::byte{2})) << i;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(12)) << "it waited out the window";
  EXPECT_EQ(get(*file, 0), std::byte{2});
  EXPECT_EQ(get(*file, (kLocks - 1) * 1024), std::byte{2});
  ASSERT_TRUE(file->close(true));
  ::unsetenv("SLUICE_STATS");
  std::ifstream in(stats);
  const auto told = nlohmann::json::parse(in);
  EXPECT_EQ(told["locks"]["accesses"], 2 * kLocks + 2);
  EXPECT_LT(told["locks"]["grants"], kLocks + 3 * 1024) << "locks were taken anew";
}

TEST_F(LockLoss, ten_thousand_locks_are_asked_back_and_given_back_at_once) {
  constexpr uint64_t kLocks = 10'000;
  const auto one = connect();
  auto mine = open(one, "lockahead");
  for (uint64_t i = 0; i < kLocks; ++i) ASSERT_TRUE(put(*mine, i * 1024, std::byte{1}));
  const auto two = connect();
  auto theirs = open(two, "standard");
  const auto began = std::chrono::steady_clock::now();
  const auto lock = theirs->lock(kAll, true);
  ASSERT_TRUE(lock) << lock.error().message;
  EXPECT_LT(std::chrono::steady_clock::now() - began, kLease) << "the holder lives and answers";
  ASSERT_TRUE(theirs->unlock(*lock));
  ASSERT_TRUE(put(*mine, 0, std::byte{2}));
}

TEST_F(LockLoss, what_is_asked_for_after_a_restart_waits_for_those_who_held_locks_and_not_longer) {
  const auto one = connect();
  auto mine = open(one, "standard");
  ASSERT_TRUE(put(*mine, 0, std::byte{1}));
  service_.stop();
  start();
  const auto two = connect();
  auto theirs = open(two, "standard");
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(put(*theirs, 0, std::byte{2}));
  EXPECT_LT(std::chrono::steady_clock::now() - began, kLease) << "the first came back long before";
}

// --- clients that go ---

class Holder {
 public:
  Holder(const std::string& pool, uint64_t locks, const std::string& file = "/held") {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const std::string count = std::to_string(locks);
    std::array<const char*, 5> words = {LOCK_HOLDER, pool.c_str(), file.c_str(), count.c_str(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, LOCK_HOLDER, &actions, nullptr, const_cast<char**>(words.data()), environ),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = ::fdopen(out[0], "r");
  }
  ~Holder() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(to_);
    std::fclose(from_);
  }
  std::string line() {
    std::array<char, 512> text{};
    return std::fgets(text.data(), text.size(), from_) == nullptr ? "" : text.data();
  }
  void signal(int number) { EXPECT_EQ(::kill(pid_, number), 0); }
  void go_on() { EXPECT_EQ(::write(to_, "\n", 1), 1); }

 private:
  pid_t pid_ = 0;
  int to_ = -1;
  FILE* from_ = nullptr;
};

TEST_F(LockLoss, others_go_on_at_once_when_a_holder_of_ten_thousand_locks_is_killed) {
  constexpr uint64_t kLocks = 10'000;
  Holder holder(service_.pool().string(), kLocks);
  ASSERT_EQ(holder.line(), "ready\n");
  const auto client = connect();
  auto file = open(client, "standard");
  holder.signal(SIGKILL);
  const auto began = std::chrono::steady_clock::now();
  const auto lock = file->lock(kAll, true);
  ASSERT_TRUE(lock) << lock.error().message;
  EXPECT_LT(std::chrono::steady_clock::now() - began, kLease / 2) << "it waited out the lease";
  EXPECT_TRUE(file->unlock(*lock));
  for (const uint64_t i : {uint64_t{0}, kLocks / 2, kLocks - 1})
    EXPECT_EQ(get(*file, i * 1024), std::byte{1}) << "what it had synced is there, what it had not is not";
}

TEST_F(LockLoss, a_client_that_was_given_up_is_refused_when_it_speaks_again) {
  Holder holder(service_.pool().string(), 100);
  ASSERT_EQ(holder.line(), "ready\n");
  holder.signal(SIGSTOP);
  const auto client = connect();
  auto file = open(client, "standard");
  ASSERT_TRUE(put(*file, 0, std::byte{9})) << "the lock came when the lease had ended";
  ASSERT_TRUE(file->sync());
  holder.signal(SIGCONT);
  holder.go_on();
  EXPECT_THAT(holder.line(), StartsWith("refused"));
  EXPECT_EQ(get(*file, 0), std::byte{9});
}

// The service knows those who share a file by what they did with it.
TEST_F(LockLoss, a_sharer_that_dies_ends_the_transaction_when_it_used_the_file_and_not_otherwise) {
  const auto client = connect();
  OpenOptions options;
  options.access = client::AccessMode::kReadWrite;
  options.create = true;
  auto idle = client->open("/idle", options).value();
  options.lock_mode = "standard";
  auto used = client->open("/used", options).value();
  Holder bystander(service_.pool().string(), 0, idle->share());
  Holder writer(service_.pool().string(), 1, used->share());
  ASSERT_EQ(bystander.line(), "ready\n");
  ASSERT_EQ(writer.line(), "ready\n");
  bystander.signal(SIGKILL);
  writer.signal(SIGKILL);
  // Its lock is ours when the service has given it up.
  const auto lock = used->lock(kAll, true);
  ASSERT_TRUE(lock) << lock.error().message;
  ASSERT_TRUE(used->unlock(*lock));
  const auto synced = used->sync();
  ASSERT_FALSE(synced);
  EXPECT_EQ(synced.error().code, ErrorCode::kAborted);
  EXPECT_THAT(synced.error().message, HasSubstr("died"));
  ASSERT_TRUE(put(*idle, 0, std::byte{3}));
  const auto closed = idle->close(true);
  EXPECT_TRUE(closed) << closed.error().message;
}

}  // namespace
}  // namespace sluice
