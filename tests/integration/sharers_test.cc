// Files that one process opened and others use: what the service hears of them, and when.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "client/control_client.h"
#include "tests/support/asleep.h"
#include "tests/support/file_access.h"
#include "tests/support/mini_service.h"

namespace sluice {
namespace {

using client::Client;
using client::File;
using testing::get;
using ::testing::HasSubstr;
using testing::MiniService;
using testing::pattern;
using testing::put;
using testing::wait_until_asleep;

class Sharers : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(service_.start(3, 32 << 20));
    client_ = service_.connect().value();
  }
  void start() {
    auto started = service_.start();
    ASSERT_TRUE(started) << started.error().message;
  }
  std::unique_ptr<File> open(const std::string& path, uint64_t unavailable_after_ms = 30'000) {
    if (unavailable_after_ms != 30'000) {
      client::Options options = service_.client_options();
      options.unavailable_after_ms = unavailable_after_ms;
      client_ = Client::connect(options).value();
    }
    client::OpenOptions options;
    options.access = client::AccessMode::kReadWrite;
    options.create = true;
    auto file = client_->open(path, options);
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : nullptr;
  }
  uint64_t counted(const char* what) {
    constexpr uint64_t kTimeoutMs = 5000;
    const auto reply = client::control_request(service_.pool(), "GET", "/status", kTimeoutMs);
    EXPECT_TRUE(reply) << reply.error().message;
    return nlohmann::json::parse(reply->body)["counters"][what];
  }

  MiniService service_;
  std::shared_ptr<Client> client_;
};

TEST_F(Sharers, a_sharer_attaches_once_with_its_first_access_and_closes_without_a_word) {
  auto owner = open("/file with a blank");
  ASSERT_TRUE(put(*owner, 0, pattern(1000, 1)));
  auto sharer = client::attach_shared(owner->share());
  ASSERT_TRUE(sharer) << sharer.error().message;
  EXPECT_EQ((*sharer)->opened().path, "/file with a blank");
  EXPECT_EQ((*sharer)->opened().chunk_bytes, owner->opened().chunk_bytes);
  EXPECT_EQ((*sharer)->effective_hints(), owner->effective_hints());
  EXPECT_EQ((*sharer)->share(), owner->share());
  ASSERT_TRUE((*sharer)->flush());
  EXPECT_EQ(counted("attaches"), 0u);
  EXPECT_EQ(counted("clients"), 1u) << "there was nothing to connect for";
  EXPECT_EQ(get(**sharer, 0, 1000), pattern(1000, 1));
  ASSERT_TRUE(put(**sharer, 1000, pattern(1000, 2)));
  EXPECT_EQ((*sharer)->size().value(), 2000u);
  ASSERT_TRUE((*sharer)->flush());
  ASSERT_TRUE(owner->close(true));
  ASSERT_TRUE((*sharer)->close(false));
  EXPECT_EQ(counted("opens"), 1u);
  EXPECT_EQ(counted("attaches"), 1u);
  EXPECT_EQ(counted("closes"), 1u);
  EXPECT_EQ(client_->stat("/file with a blank")->size_bytes, 2000u);
}

TEST_F(Sharers, threads_whose_first_accesses_meet_attach_once) {
  auto owner = open("/threads");
  auto sharer = client::attach_shared(owner->share());
  ASSERT_TRUE(sharer);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { EXPECT_TRUE(put(**sharer, i * 1000, pattern(1000, i))); });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE((*sharer)->flush());
  ASSERT_TRUE(owner->close(true));
  EXPECT_EQ(counted("attaches"), 1u);
  auto reader = client_->open("/threads", {});
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(get(**reader, i * 1000, 1000), pattern(1000, i));
}

TEST_F(Sharers, who_comes_after_the_owner_closed_is_told_so) {
  auto owner = open("/closed");
  const auto handle = owner->share();
  auto late = client_->attach(handle);
  ASSERT_TRUE(owner->close(true));
  const auto size = (*late)->size();
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(size.error().message, HasSubstr("it was closed"));
  EXPECT_THAT(size.error().message, HasSubstr("open the file again"));
  EXPECT_TRUE((*late)->close(false)) << "it left nothing behind";
}

TEST_F(Sharers, a_first_access_while_the_service_is_away_waits_for_it_and_belongs_to_the_transaction) {
  auto owner = open("/restarted");
  ASSERT_TRUE(put(*owner, 0, pattern(1000, 1)));
  auto sharer = client::attach_shared(owner->share());
  service_.stop();
  Result<uint64_t> written = uint64_t{0};
  std::promise<pid_t> writing;
  std::thread writer([&] {
    writing.set_value(::gettid());
    written = put(**sharer, 1000, pattern(1000, 2));
  });
  wait_until_asleep(writing.get_future().get());
  start();
  writer.join();
  ASSERT_TRUE(written) << written.error().message;
  ASSERT_TRUE((*sharer)->flush());
  const auto closed = owner->close(true);
  ASSERT_TRUE(closed) << closed.error().message;
  auto reader = client_->open("/restarted", {});
  EXPECT_EQ(get(**reader, 0, 1000), pattern(1000, 1));
  EXPECT_EQ(get(**reader, 1000, 1000), pattern(1000, 2));
}

TEST_F(Sharers, a_write_that_cannot_reach_the_service_fails_what_would_commit_without_it) {
  constexpr uint64_t kUnavailableMs = 400;
  auto owner = open("/unreachable", kUnavailableMs);
  auto sharer = client::attach_shared(owner->share());
  ASSERT_TRUE(sharer);
  service_.stop();
  const auto written = put(**sharer, 0, pattern(1000, 1));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kUnavailable) << written.error().message;
  start();
  ASSERT_TRUE(owner->size()) << "it brings the handle back";
  EXPECT_TRUE((*sharer)->size()) << "a later access tries again";
  EXPECT_EQ((*sharer)->flush().error().code, ErrorCode::kAborted);
  EXPECT_EQ((*sharer)->close(true).error().code, ErrorCode::kAborted);
}

TEST_F(Sharers, who_wrote_nothing_has_nothing_to_flush) {
  auto owner = open("/read");
  ASSERT_TRUE(put(*owner, 0, pattern(1000, 1)));
  ASSERT_TRUE(owner->sync());
  auto sharer = client_->attach(owner->share());
  EXPECT_EQ(get(**sharer, 0, 1000), pattern(1000, 1));
  constexpr uint64_t kFlushes = 1000;  // more than what is said by the way
  const uint64_t before = counted("requests");
  for (uint64_t i = 0; i < kFlushes; ++i) ASSERT_TRUE((*sharer)->flush());
  EXPECT_LT(counted("requests"), before + kFlushes / 2);
}

}  // namespace
}  // namespace sluice
