// What the contract promises when the process at the other end dies, stops or comes back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "base/os.h"
#include "transport/contract_rig.h"
#include "transport/ofi/loop_thread.h"

extern char** environ;

namespace sluice::transport {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kLimitMs =
    60'000;  // for a loaded machine and sanitizers; nothing waits that long otherwise

class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    output_ = UniqueFd(ends[0]);
    const UniqueFd input(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    arguments.insert(arguments.begin(), TRANSPORT_PEER);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, TRANSPORT_PEER, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Child() { kill(); }

  // The next line of its output; empty when it ends or says nothing in time.
  std::string line() {
    std::string text;
    for (char c = 0; wait_readable() && read(output_.get(), &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  void signal(int number) const { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Its exit code; nothing when it does not end in time.
  std::optional<int> exit_code() {
    line_until_end();
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, closed_ ? 0 : WNOHANG);
    if (ended != pid_) return std::nullopt;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool wait_readable() const {
    pollfd fd{output_.get(), POLLIN, 0};
    return poll(&fd, 1, static_cast<int>(kLimitMs)) == 1;
  }
  void line_until_end() {
    std::array<char, 256> bytes;
    while (!closed_ && wait_readable()) closed_ = read(output_.get(), bytes.data(), bytes.size()) <= 0;
  }

  pid_t pid_ = -1;
  bool closed_ = false;
  UniqueFd output_;
};

class OtherProcess : public ::testing::TestWithParam<const char*> {
 protected:
  static OfiOptions options() {
    OfiOptions o;
    o.scheme = GetParam();
    o.keepalive_ms = 100;
    o.peer_timeout_ms = 30'000;
    return o;
  }
  void use(const OfiOptions& o) {
    auto made = OfiTransport::create(o);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    transport = std::move(*made);
    recorder = std::make_unique<Recorder>(*transport);
  }
  void SetUp() override { use(options()); }

  bool run(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMs);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      transport->run_once(10);
    }
    return true;
  }

  struct Server {
    std::unique_ptr<Child> process;
    Address address;
    PeerId peer;
  };
  Server serve(std::vector<std::string> where = {}) {
    std::vector<std::string> arguments = {"serve", GetParam()};
    arguments.insert(arguments.end(), where.begin(), where.end());
    Server server;
    server.process = std::make_unique<Child>(arguments);
    server.address.text = server.process->line();
    server.peer = connect(server.address);
    return server;
  }
  PeerId connect(const Address& address) {
    auto peer = transport->connect(address);
    EXPECT_TRUE(peer.has_value()) << address.text;
    const size_t before = recorder->messages.size();
    EXPECT_TRUE(transport->send(*peer, {std::byte{'E'}}).has_value());
    EXPECT_TRUE(run([&] { return recorder->messages.size() > before; }));
    return *peer;
  }
  RemoteBuffer ask_for_memory(PeerId peer, char how) {
    const size_t before = recorder->messages.size();
    EXPECT_TRUE(transport->send(peer, {std::byte(how)}).has_value());
    EXPECT_TRUE(run([&] { return recorder->messages.size() > before; }));
    const auto buffer = unpack(recorder->messages.back().bytes);
    return buffer.value_or(RemoteBuffer{});
  }
  void tell_to_move(PeerId peer, char how, const RemoteBuffer& buffer) {
    std::vector<std::byte> message = pack(buffer);
    message.insert(message.begin(), std::byte(how));
    ASSERT_TRUE(transport->send(peer, message).has_value());
  }

  std::unique_ptr<OfiTransport> transport;
  std::unique_ptr<Recorder> recorder;
};

TEST_P(OtherProcess, KilledWhileWePullEndsEveryPullAndTouchesNothingAfterwards) {
  Server server = serve();
  const RemoteBuffer buffer = ask_for_memory(server.peer, 'R');
  ASSERT_EQ(buffer.length, kPeerMemoryBytes);
  const auto expected = pattern(kPeerMemoryBytes, 42);
  std::vector<std::byte> into(kPeerMemoryBytes);
  constexpr int kPulls = 400;
  int completions = 0;
  int failures = 0;
  for (int i = 0; i < kPulls; ++i) {
    transport->pull(server.peer, buffer, 0, into, [&](Result<> r) {
      EXPECT_THAT(recorder->disconnected, IsEmpty());
      ++completions;
      failures += !r.has_value();
    });
  }
  ASSERT_TRUE(run([&] { return completions >= 2; }));  // in the middle of it
  EXPECT_TRUE(into == expected);
  const uint64_t before = transport->now_ms();
  server.process->kill();
  ASSERT_TRUE(run([&] { return !recorder->disconnected.empty(); }));
  EXPECT_LT(transport->now_ms() - before, 10'000u) << "waited for silence instead of noticing";
  EXPECT_EQ(completions, kPulls);
  EXPECT_GT(failures, 0);
  EXPECT_EQ(recorder->times_disconnected(server.peer), 1u);
  EXPECT_EQ(recorder->disconnected[0].second.code, ErrorCode::kUnavailable);
  std::ranges::fill(into, std::byte{0x5A});
  Server other = serve();
  const RemoteBuffer theirs = ask_for_memory(other.peer, 'R');
  std::vector<std::byte> fresh(kPeerMemoryBytes);
  std::optional<Result<>> outcome;
  transport->pull(other.peer, theirs, 0, fresh, [&](Result<> r) { outcome = r; });
  ASSERT_TRUE(run([&] { return outcome.has_value(); }));
  EXPECT_TRUE(outcome->has_value());
  EXPECT_TRUE(fresh == expected);
  EXPECT_EQ(std::ranges::count(into, std::byte{0x5A}), static_cast<ptrdiff_t>(into.size()));
}

TEST_P(OtherProcess, KilledWhileWePushEndsEveryPush) {
  Server server = serve();
  const RemoteBuffer buffer = ask_for_memory(server.peer, 'W');
  const std::vector<std::byte> from(kPeerMemoryBytes, std::byte{1});
  constexpr int kPushes = 200;
  int completions = 0;
  for (int i = 0; i < kPushes; ++i)
    transport->push(server.peer, buffer, 0, from, [&](Result<>) { ++completions; });
  ASSERT_TRUE(run([&] { return completions >= 1; }));
  server.process->kill();
  ASSERT_TRUE(run([&] { return !recorder->disconnected.empty(); }));
  EXPECT_EQ(completions, kPushes);
}

TEST_P(OtherProcess, KilledWhileItPullsOrPushesLeavesUsWorkingAndOurMemoryOurs) {
  for (const char how : {'<', '>'}) {
    SCOPED_TRACE(how);
    recorder->disconnected.clear();
    Server server = serve();
    std::vector<std::byte> memory(kPeerMemoryBytes, std::byte{3});
    auto exposed = transport->expose(memory, how == '<' ? Access::kRemoteRead : Access::kRemoteWrite);
    ASSERT_TRUE(exposed.has_value());
    tell_to_move(server.peer, how, (*exposed)->remote());
    bool rested = false;
    transport->after_ms(100, [&] { rested = true; });
    ASSERT_TRUE(run([&] { return rested && (how == '<' || memory.back() != std::byte{3}); }));
    server.process->kill();
    ASSERT_TRUE(run([&] { return recorder->times_disconnected(server.peer) == 1; }));
    exposed->reset();
    std::ranges::fill(memory, std::byte{0x77});
    Server next = serve();  // we still answer and are answered
    EXPECT_EQ(std::ranges::count(memory, std::byte{0x77}), static_cast<ptrdiff_t>(memory.size()));
  }
}

TEST_P(OtherProcess, StoppedPeerIsGivenUpAndDoesNotReachOurMemoryWhenItGoesOn) {
  OfiOptions impatient = options();
  impatient.peer_timeout_ms = 4000;
  recorder.reset();
  use(impatient);
  Server server = serve();
  const RemoteBuffer buffer = ask_for_memory(server.peer, 'R');
  std::vector<std::byte> into(kPeerMemoryBytes);
  constexpr int kPulls = 2000;
  int completions = 0;
  bool started = false;
  for (int i = 0; i < kPulls; ++i) {
    transport->pull(server.peer, buffer, 0, into, [&](Result<>) {
      ++completions;
      started = true;
    });
  }
  ASSERT_TRUE(run([&] { return started; }));
  server.process->signal(SIGSTOP);
  transport->disconnect(PeerId(999'999), Error());  // of no one: nothing happens
  ASSERT_TRUE(run([&] { return recorder->times_disconnected(server.peer) == 1; }));
  EXPECT_EQ(completions, kPulls);
  EXPECT_THAT(recorder->disconnected[0].second.message, ::testing::HasSubstr("silent"));
  std::ranges::fill(into, std::byte{0x5A});
  server.process->signal(SIGCONT);
  EXPECT_THAT(server.process->line(), ::testing::HasSubstr("disconnected"));
  for (int i = 0; i < 20; ++i) transport->run_once(1);
  EXPECT_EQ(std::ranges::count(into, std::byte{0x5A}), static_cast<ptrdiff_t>(into.size()));
}

TEST_P(OtherProcess, KilledServerComesBackAtTheSameAddress) {
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    recorder->disconnected.clear();
    Server first = serve();
    const std::string rest = first.address.text.substr(6);
    const size_t colon = rest.rfind(':');
    first.process->kill();
    ASSERT_TRUE(run([&] { return recorder->times_disconnected(first.peer) == 1; }));
    Server second = std::string(GetParam()) == "tcp" ? serve({rest.substr(0, colon), rest.substr(colon + 1)})
                                                     : serve({rest});
    EXPECT_EQ(second.address, first.address);
    EXPECT_NE(second.peer, first.peer);
    EXPECT_FALSE(transport->send(first.peer, {std::byte{'E'}}).has_value());
  }
}

TEST_P(OtherProcess, EndingMainWhileTheLoopRunsEndsTheProcessInPeace) {
  Server server = serve();
  for (const char* mode : {"exit", "exit-in-loop"}) {
    Child child({mode, GetParam(), server.address.text});
    const auto code = child.exit_code();
    ASSERT_TRUE(code.has_value()) << mode << " hangs";
    EXPECT_EQ(*code, 0) << mode;
  }
  connect(server.address);
}

TEST_P(OtherProcess, ManyThatComeAndGoLeaveNoDescriptorsBehind) {
  Server server = serve();
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator{});
  };
  connect(server.address);
  const auto before = open_files();
  for (int i = 0; i < 100; ++i) {
    const PeerId peer = connect(server.address);
    transport->disconnect(peer, Error(ErrorCode::kAborted, "next"));
  }
  EXPECT_TRUE(run([&] { return open_files() <= before; }));
}

TEST_P(OtherProcess, OneServerServesHundredsOfConnections) {
  allow_many_files();
  Server server = serve();
  constexpr size_t kConnections = 400;
  recorder->messages.clear();
  std::vector<PeerId> peers;
  for (size_t i = 0; i < kConnections; ++i) {
    const auto peer = transport->connect(server.address);
    ASSERT_TRUE(peer.has_value()) << i << ": " << peer.error().message;
    std::vector<std::byte> message = pattern(1000, i);
    message[0] = std::byte{'E'};
    ASSERT_TRUE(transport->send(*peer, message).has_value());
    peers.push_back(*peer);
  }
  ASSERT_TRUE(run([&] { return recorder->messages.size() >= kConnections; })) << recorder->messages.size();
  EXPECT_THAT(recorder->disconnected, IsEmpty());
  for (size_t i = 0; i < kConnections; i += 2)
    transport->disconnect(peers[i], Error(ErrorCode::kAborted, "bye"));
  for (size_t i = 1; i < kConnections; i += 2)
    ASSERT_TRUE(transport->send(peers[i], {std::byte{'E'}}).has_value());
  ASSERT_TRUE(run([&] { return recorder->messages.size() >= kConnections + kConnections / 2; }));
  server.process->kill();
  ASSERT_TRUE(run([&] { return recorder->disconnected.size() == kConnections / 2 + 1; }));
}

TEST_P(OtherProcess, IdleLoopUsesNoCore) {
  Server server = serve();
  LoopThread loop(*transport);
  ASSERT_TRUE(loop.start().has_value());
  ASSERT_FALSE(loop.start().has_value()) << "starts once";
  std::optional<double> first;
  std::optional<double> second;
  std::mutex mutex;
  std::condition_variable changed;
  const auto note_cpu_time = [&](std::optional<double>& where) {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    const std::lock_guard lock(mutex);
    where = static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
    changed.notify_all();
  };
  transport->post([&] {
    note_cpu_time(first);
    transport->after_ms(2000, [&] { note_cpu_time(second); });
  });
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(
        changed.wait_for(lock, std::chrono::milliseconds(kLimitMs), [&] { return second.has_value(); }));
  }
  loop.stop();
  loop.stop();
  EXPECT_LT(*second - *first, 0.1) << "seconds of processor time in 2 idle seconds with an open connection";
}

TEST_P(OtherProcess, SignalHandlersOfTheProgramStayAsTheyWere) {
  for (const int number : {SIGSEGV, SIGBUS, SIGTERM, SIGINT, SIGPIPE}) {
    struct sigaction now {};
    ASSERT_EQ(sigaction(number, nullptr, &now), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_EQ(now.sa_handler, SIG_DFL) << number;
#endif
  }
  Server server = serve();
  server.process->kill();
  EXPECT_TRUE(run([&] { return !recorder->disconnected.empty(); }));
}

TEST_P(OtherProcess, AddressInUseIsOneClearError) {
  OfiOptions same = options();
  const std::string rest = transport->address().text.substr(6);
  const size_t colon = rest.rfind(':');
  if (same.scheme == "tcp") {
    same.node = rest.substr(0, colon);
    same.port = static_cast<uint16_t>(std::stoi(rest.substr(colon + 1)));
  } else {
    same.node = rest;
  }
  const auto second = OfiTransport::create(same);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kExists);
  EXPECT_THAT(second.error().message,
              ::testing::HasSubstr(same.scheme == "tcp" ? std::to_string(same.port) : rest));
}

INSTANTIATE_TEST_SUITE_P(Each, OtherProcess, ::testing::Values("tcp", "shm"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace sluice::transport
