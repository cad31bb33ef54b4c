#include "server/pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "client/service.h"

namespace sluice::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PoolTest : public testing::Test {
 protected:
  TemporaryDirectory scratch_ = *TemporaryDirectory::create("sluice_pool_test");
  PoolPaths paths_{scratch_.path() / "pool"};
  std::vector<fs::path> formatted_;
  FormatTarget format_target_ = [this](const fs::path& path, uint64_t pool_id, uint32_t) -> Result<> {
    EXPECT_NE(pool_id, 0u);
    formatted_.push_back(path);
    fs::create_directories(path);
    return {};
  };
};

TEST_F(PoolTest, ANewPoolHasThreeTargetsAndCanBeLoaded) {
  auto lock = PoolLock::acquire(paths_);
  ASSERT_TRUE(lock) << lock.error().message;
  auto made = format_pool(paths_, {}, format_target_);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->object_class.name(), "EC_2P1");
  EXPECT_EQ(formatted_, made->targets);
  EXPECT_FALSE(fs::exists(paths_.formatting()));
  EXPECT_TRUE(fs::exists(paths_.drained()));
  auto loaded = load_pool(paths_);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->pool_id, made->pool_id);
  EXPECT_EQ(loaded->targets, made->targets);
  EXPECT_EQ(loaded->hot_bytes, kDefaultHotBytes);
}

TEST_F(PoolTest, MissingPoolSaysHowToMakeOne) {
  auto loaded = load_pool(paths_);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(loaded.error().message, HasSubstr("sluice up --pool " + paths_.pool.string()));
}

TEST_F(PoolTest, AClassThatDoesNotFitLeavesNothingBehind) {
  PoolRequest request;
  request.targets = 3;
  request.object_class = "EC_4P2";
  auto sane = check_request(paths_, request);
  ASSERT_FALSE(sane);
  EXPECT_EQ(sane.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(sane.error().message, HasSubstr("the nearest class that fits is"));
  EXPECT_FALSE(fs::exists(paths_.pool));
}

TEST_F(PoolTest, RequestsBeyondTheLimitsAreRefused) {
  PoolRequest targets, hot, listen, drain, hot_dir;
  targets.targets = 0;
  EXPECT_FALSE(check_request(paths_, targets));
  targets.targets = kMaxTargets + 1;
  EXPECT_FALSE(check_request(paths_, targets));
  hot.hot_bytes = kMinHotBytes - 1;
  EXPECT_FALSE(check_request(paths_, hot));
  listen.listen = "nonsense";
  EXPECT_FALSE(check_request(paths_, listen));
  drain.drain = "sometimes";
  EXPECT_FALSE(check_request(paths_, drain));
  hot_dir.hot_dir = scratch_.path() / "not there";
  EXPECT_FALSE(check_request(paths_, hot_dir));
}

TEST_F(PoolTest, AHomeDirectoryIsNotTurnedIntoAPool) {
  fs::create_directories(paths_.pool);
  std::ofstream(paths_.pool / "thesis.tex") << "x";
  auto sane = check_request(paths_, {});
  ASSERT_FALSE(sane);
  EXPECT_THAT(sane.error().message, HasSubstr("thesis.tex"));
  auto lock = PoolLock::acquire(paths_);
  ASSERT_FALSE(lock);
  EXPECT_FALSE(fs::exists(paths_.lock()));
}

TEST_F(PoolTest, AFailedFormatLeavesADirectoryThatCanBeFormatted) {
  auto lock = PoolLock::acquire(paths_);
  ASSERT_TRUE(lock);
  auto failed = format_pool(paths_, {}, [&](const fs::path& path, uint64_t id, uint32_t target) -> Result<> {
    if (target == 2) return fail(ErrorCode::kNoSpace, "the disk is full");
    return format_target_(path, id, target);
  });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNoSpace);
  EXPECT_FALSE(fs::exists(paths_.targets()));
  EXPECT_TRUE(check_request(paths_, {}));
  EXPECT_TRUE(format_pool(paths_, {}, format_target_));
}

TEST_F(PoolTest, WhatACrashInTheMiddleOfFormattingLeftIsReplaced) {
  auto lock = PoolLock::acquire(paths_);
  ASSERT_TRUE(lock);
  fs::create_directories(paths_.targets() / "t7");
  std::ofstream(paths_.formatting()) << "x";
  EXPECT_TRUE(check_request(paths_, {}));
  ASSERT_TRUE(format_pool(paths_, {}, format_target_));
  EXPECT_FALSE(fs::exists(paths_.targets() / "t7"));
}

TEST_F(PoolTest, ContradictionsAreNamedAndTheRestIsApplied) {
  auto lock = PoolLock::acquire(paths_);
  auto pool = format_pool(paths_, {}, format_target_);
  ASSERT_TRUE(pool);
  PoolRequest same;
  same.targets = 3;
  same.object_class = "EC_2P1";
  same.hot_bytes = kDefaultHotBytes;
  same.listen = "127.0.0.1:4444";
  same.drain = "idle";
  auto applied = apply_request(*pool, same);
  ASSERT_TRUE(applied) << applied.error().message;
  EXPECT_EQ(applied->listen, "127.0.0.1:4444");
  EXPECT_EQ(applied->drain, "idle");

  PoolRequest targets, object_class, hot_bytes, hot_dir;
  targets.targets = 6;
  object_class.object_class = "RP_2";
  hot_bytes.hot_bytes = 2 * kDefaultHotBytes;
  hot_dir.hot_dir = scratch_.path();
  const std::pair<PoolRequest*, std::string> differing[] = {{&targets, "--targets 3"},
                                                            {&object_class, "--class EC_2P1"},
                                                            {&hot_bytes, "--hot-size"},
                                                            {&hot_dir, "--hot-dir"}};
  for (const auto& [request, named] : differing) {
    auto refused = apply_request(*pool, *request);
    ASSERT_FALSE(refused) << named;
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    EXPECT_THAT(refused.error().message, HasSubstr(named));
  }
}

TEST_F(PoolTest, TwoPoolsMayShareAHotDirectory) {
  PoolRequest request;
  request.hot_dir = scratch_.path();
  const PoolPaths other(scratch_.path() / "other");
  auto lock = PoolLock::acquire(paths_), other_lock = PoolLock::acquire(other);
  auto first = format_pool(paths_, request, format_target_),
       second = format_pool(other, request, format_target_);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->hot_file, second->hot_file);
  EXPECT_TRUE(apply_request(*first, request));
  request.hot_dir = scratch_.path() / "";
  EXPECT_TRUE(apply_request(*first, request)) << "dir/ is dir";
}

TEST_F(PoolTest, TheLockNamesItsHolderAndDiesWithIt) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto lock = PoolLock::acquire(paths_);
    const char done = lock ? 'y' : 'n';
    if (::write(ends[1], &done, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char done = 0;
  ASSERT_EQ(::read(ends[0], &done, 1), 1);
  ASSERT_EQ(done, 'y');
  std::optional<int> holder;
  auto refused = PoolLock::acquire(paths_, &holder);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_EQ(holder, child);
  EXPECT_EQ(client::pool_holder(paths_.pool).value(), std::optional<int>(child));
  EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(child)));

  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(client::pool_holder(paths_.pool).value(), std::nullopt);
  EXPECT_TRUE(PoolLock::acquire(paths_));
}

TEST(ParseListen, TakesHostAndPort) {
  auto plain = parse_listen("127.0.0.1:80"), with_scheme = parse_listen("tcp://10.0.0.1:0"),
       v6 = parse_listen("[::1]:7");
  ASSERT_TRUE(plain && with_scheme && v6);
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, 80);
  EXPECT_EQ(with_scheme->host, "10.0.0.1");
  EXPECT_EQ(with_scheme->port, 0);
  EXPECT_EQ(v6->host, "[::1]");
  for (const char* wrong : {"", "127.0.0.1", ":80", "h:port", "h:70000", "h:-1", "h:", "udp://h:1", "h:1x"}) {
    auto refused = parse_listen(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sluice::server
