#include "server/control.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/os.h"
#include "client/control_client.h"

namespace sluice::server {
namespace {

namespace fs = std::filesystem;
using client::control_request;
using testing::HasSubstr;

class ControlTest : public testing::Test {
 protected:
  void SetUp() override { start(scratch_.path()); }

  void start(const fs::path& pool, uint64_t timeout_ms = kControlTimeoutMs) {
    pool_ = pool;
    ControlCalls calls;
    calls.status_json = [] { return "{\"pool\": \"x\"}"; };
    calls.metrics = [] { return "sluice_x 1\n"; };
    calls.kick_drain = [this] { ++kicks_; };
    calls.drain_state = [this] {
      std::lock_guard lock(mutex_);
      if (left_ > 0 && drains_) --left_;
      return DrainState{left_, state_, blocked_};
    };
    calls.keep = [this] { ++keeps_; };
    calls.announce = [this]() -> Result<> {
      ++announcements_;
      if (unannounced_) return fail(ErrorCode::kNoSpace, "no room for service.json");
      return {};
    };
    calls.shut_down = [this] { ++shutdowns_; };
    control_.reset();
    auto control = Control::create(pool / "control.sock", std::move(calls), timeout_ms);
    ASSERT_TRUE(control) << control.error().message;
    control_ = std::move(*control);
  }

  UniqueFd connect_raw() {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (pool_ / "control.sock").string();
    EXPECT_LT(path.size(), sizeof address.sun_path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  // What the server says to these bytes, until it closes.
  std::string say(std::string_view bytes, bool and_end = false) {
    UniqueFd fd = connect_raw();
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;  // the server has had enough
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    if (and_end) ::shutdown(fd.get(), SHUT_WR);
    std::string answer;
    char piece[4096];
    for (ssize_t got; (got = ::recv(fd.get(), piece, sizeof piece, 0)) > 0;)
      answer.append(piece, static_cast<size_t>(got));
    return answer;
  }

  bool answers() {
    auto reply = control_request(pool_, "GET", "/status", 5000);
    return reply && reply->status == 200;
  }

  TemporaryDirectory scratch_ = *TemporaryDirectory::create("sluice_control_test");
  fs::path pool_;
  std::atomic<int> kicks_{0}, keeps_{0}, shutdowns_{0}, announcements_{0};
  std::atomic<bool> unannounced_{false};
  std::mutex mutex_;
  uint64_t left_ = 0;
  bool drains_ = true;
  std::string state_ = "idle";
  std::optional<ErrorCode> blocked_;
  std::unique_ptr<Control> control_;
};

TEST_F(ControlTest, AnswersStatusAndMetrics) {
  auto status = control_request(pool_, "GET", "/status", 5000);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->status, 200);
  EXPECT_EQ(status->body, "{\"pool\": \"x\"}");
  EXPECT_EQ(status->server_pid, ::getpid());
  auto metrics = control_request(pool_, "GET", "/metrics", 5000);
  ASSERT_TRUE(metrics);
  EXPECT_EQ(metrics->body, "sluice_x 1\n");
}

TEST_F(ControlTest, OnlyTheOwnerMayReachTheSocket) {
  struct stat info {};
  ASSERT_EQ(::stat((pool_ / "control.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ControlTest, DrainWaitsUntilNothingIsLeft) {
  left_ = 5;
  auto reply = control_request(pool_, "POST", "/drain?wait_ms=20000", 30000);
  ASSERT_TRUE(reply);
  EXPECT_THAT(reply->body, HasSubstr("\"bytes_left\":0"));
  EXPECT_EQ(kicks_, 1);
}

TEST_F(ControlTest, DrainAnswersAtOnceWhenItIsBlocked) {
  left_ = 5;
  drains_ = false;
  state_ = "blocked: no target is left";
  blocked_ = ErrorCode::kNoSpace;
  auto reply = control_request(pool_, "POST", "/drain?wait_ms=60000", 5000);
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_THAT(reply->body, HasSubstr("blocked: no target is left"));
  EXPECT_THAT(reply->body, HasSubstr("\"bytes_left\":5"));
  EXPECT_THAT(reply->body, HasSubstr("\"blocked\":6"));
}

TEST_F(ControlTest, ALongDrainDoesNotKeepOthersWaiting) {
  left_ = 1;
  drains_ = false;
  std::thread waiter([this] {
    auto reply = control_request(pool_, "POST", "/drain?wait_ms=60000", 30000);
    ASSERT_TRUE(reply);
    EXPECT_THAT(reply->body, HasSubstr("\"bytes_left\":0"));
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(answers());
  {
    std::lock_guard lock(mutex_);
    drains_ = true;
  }
  waiter.join();
}

TEST_F(ControlTest, KeepIsPassedOn) {
  auto reply = control_request(pool_, "POST", "/keep", 5000);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(keeps_, 1);
}

TEST_F(ControlTest, AnnounceIsDoneOnDemandAndByItself) {
  auto reply = control_request(pool_, "POST", "/announce", 5000);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  const int asked = announcements_;
  EXPECT_GE(asked, 1);
  unannounced_ = true;
  auto refused = control_request(pool_, "POST", "/announce", 5000);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 500);
  EXPECT_THAT(refused->body, HasSubstr("no room for service.json"));
  while (announcements_ < asked + 3) ::poll(nullptr, 0, 10);
}

TEST_F(ControlTest, ASocketThatWasRemovedOrReplacedComesBack) {
  start(pool_, 60'000);
  const fs::path socket = pool_ / "control.sock";
  UniqueFd old = connect_raw();
  for (const bool replace : {false, true}) {
    fs::remove(socket);
    if (replace) std::ofstream(socket) << "not a socket";
    while (!answers()) ::poll(nullptr, 0, 10);
  }
  // Who was connected stays so.
  const std::string_view request = "GET /status HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::send(old.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  char byte = 0;
  EXPECT_EQ(::recv(old.get(), &byte, 1, 0), 1);
}

TEST_F(ControlTest, ShutdownIsAnsweredAndThenAsked) {
  auto reply = control_request(pool_, "POST", "/shutdown", 5000);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  control_.reset();  // joins the thread that makes the call
  EXPECT_EQ(shutdowns_, 1);
}

TEST_F(ControlTest, WrongRequestsAreRefusedByStatus) {
  const std::pair<std::pair<const char*, const char*>, int> cases[] = {
      {{"GET", "/"}, 404},
      {{"GET", "/status/.."}, 404},
      {{"POST", "/status"}, 405},
      {{"GET", "/shutdown"}, 405},
      {{"GET", "/drain"}, 405},
      {{"DELETE", "/metrics"}, 405},
      {{"POST", "/drain?wait_ms=x"}, 400},
      {{"POST", "/drain?x"}, 400},
      {{"BREW", "/status"}, 405},
  };
  for (const auto& [request, status] : cases) {
    auto reply = control_request(pool_, request.first, request.second, 5000);
    ASSERT_TRUE(reply) << request.second;
    EXPECT_EQ(reply->status, status) << request.first << " " << request.second;
  }
  EXPECT_EQ(shutdowns_, 0);
}

TEST_F(ControlTest, HostileBytesCostOnlyTheirOwnConnection) {
  const std::string inputs[] = {
      "",
      std::string(100, '\0'),
      "GET /status",
      "GET /status HTTP/9.9\r\n\r\n",
      "POST /shutdown HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "POST /shutdown HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST /shutdown HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
      "GET /status HTTP/1.1\r\n" + std::string(100000, 'a') + ": b\r\n\r\n",
      "GET /" + std::string(100000, 'a') + " HTTP/1.1\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
  };
  for (const std::string& input : inputs) {
    say(input, /*and_end=*/true);
    EXPECT_TRUE(answers()) << "after " << input.substr(0, 60);
  }
  EXPECT_EQ(shutdowns_, 0);
}

TEST_F(ControlTest, ATooLargeBodyIsRefused) {
  const std::string answer = say("POST /drain HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" +
                                 std::string(kMaxControlRequestBytes * 2, 'x'));
  EXPECT_EQ(kicks_, 0);
  EXPECT_TRUE(answers());
  if (!answer.empty()) {
    EXPECT_THAT(answer, HasSubstr("413"));
  }
}

TEST_F(ControlTest, ASilentClientIsLeft) {
  start(pool_, 300);
  UniqueFd silent = connect_raw();
  ASSERT_EQ(::send(silent.get(), "GET /st", 7, MSG_NOSIGNAL), 7);
  EXPECT_TRUE(answers());
  char byte;
  EXPECT_LE(::recv(silent.get(), &byte, 1, 0), 0);  // closed by the server
  EXPECT_TRUE(answers());
}

TEST_F(ControlTest, ConnectionsBeyondTheLimitAreClosed) {
  std::vector<UniqueFd> held;
  for (size_t i = 0; i < kMaxControlConnections; ++i) held.push_back(connect_raw());
  UniqueFd one_more = connect_raw();
  char byte;
  EXPECT_LE(::recv(one_more.get(), &byte, 1, 0), 0);
  held.clear();
  EXPECT_TRUE(answers());
}

TEST_F(ControlTest, APathLongerThanASocketAddressWorks) {
  fs::path deep = scratch_.path();
  for (int i = 0; i < 4; ++i) deep /= std::string(100, 'd');
  fs::create_directories(deep);
  start(deep);
  EXPECT_TRUE(answers());
}

TEST_F(ControlTest, ADeadServersSocketIsReplaced) {
  const fs::path pool = scratch_.path() / "pool";
  fs::create_directories(pool);
  std::ofstream(pool / "control.sock") << "left over";
  start(pool);
  EXPECT_TRUE(answers());
}

TEST_F(ControlTest, TheClientAsksAgainWhenAConnectionIsClosedUnanswered) {
  control_.reset();
  const fs::path socket = pool_ / "control.sock";
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.c_str(), socket.native().size() + 1);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  std::thread server([&] {
    UniqueFd(::accept(listener.get(), nullptr, nullptr)).reset();
    UniqueFd second(::accept(listener.get(), nullptr, nullptr));
    char piece[1024];
    ASSERT_GT(::recv(second.get(), piece, sizeof piece, 0), 0);
    const std::string_view answer = "HTTP/1.1 200 OK\r\n\r\nhere";
    ASSERT_EQ(::send(second.get(), answer.data(), answer.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(answer.size()));
  });
  auto reply = control_request(pool_, "GET", "/status", 60'000);
  server.join();
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->body, "here");
}

TEST_F(ControlTest, TheClientTellsNoPoolFromNoService) {
  auto nowhere = control_request(scratch_.path() / "nowhere", "GET", "/status", 1000);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::kNotFound);
  control_.reset();
  auto stopped = control_request(pool_, "GET", "/status", 1000);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(stopped.error().message, HasSubstr("sluice up --pool"));
}

}  // namespace
}  // namespace sluice::server
