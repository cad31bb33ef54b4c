// Peers that break the rules: only their own connection ends.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "base/os.h"
#include "transport/contract_rig.h"
#include "transport/ofi/connection.h"
#include "transport/ofi/ofi_transport.h"
#include "transport/ofi/socket_address.h"
#include "transport/ofi/tcp_wire.h"
#include "transport/shm/shm_wire.h"

namespace sluice::transport {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kLimitMs = 20'000;
constexpr uint64_t kOurName = 0xBAD;

// Speaks frames of its own making over a real wire.
class Raw final : public WireEvents {
 public:
  explicit Raw(std::unique_ptr<Wire> wire) : wire_(std::move(wire)) {}

  void on_incoming_link(LinkId) override {}
  void on_frame(std::optional<LinkId>, std::span<const std::byte> bytes) override {
    frames.push_back({bytes.begin(), bytes.end()});
  }
  void on_writable(LinkId) override {}
  void on_rma_done(LinkId, uint64_t, const Result<>&) override {}
  void on_link_lost(LinkId, const Error&) override { lost = true; }

  void open(const Address& address) { link_ = *wire_->open(address); }
  // False while the link is not up yet.
  bool try_send(const FrameHeaderBytes& header, const std::vector<std::byte>& payload) {
    OutgoingFrame frame;
    frame.header = header;
    frame.message = std::make_shared<const std::vector<std::byte>>(payload);
    frame.length = payload.size();
    return wire_->send(link_, frame) == Accepted::kYes;
  }
  Wire& wire() { return *wire_; }
  void poll() { wire_->poll(*this); }

  std::vector<std::vector<std::byte>> frames;
  bool lost = false;

 private:
  std::unique_ptr<Wire> wire_;
  LinkId link_;
};

class HostilePeer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OfiOptions options;
    options.scheme = GetParam();
    options.keepalive_ms = 100;
    options.peer_timeout_ms = 30'000;
    options.connect_timeout_ms = 500;
    auto made = OfiTransport::create(options);
    ASSERT_TRUE(made.has_value());
    transport = std::move(*made);
    server = std::make_unique<Recorder>(*transport);
    server->answer = [this](PeerId from, std::span<const std::byte> m) {
      (void)transport->send(from, {m.begin(), m.end()}).has_value();
    };
    made = OfiTransport::create(options);
    ASSERT_TRUE(made.has_value());
    friend_transport = std::move(*made);
    friendly = std::make_unique<Recorder>(*friend_transport);
    friend_peer = *friend_transport->connect(transport->address());
    friend_still_served();
    if (options.scheme == "tcp") {
      raw = std::make_unique<Raw>(*TcpWire::create("127.0.0.1", 0, 5000));
    } else {
      raw = std::make_unique<Raw>(*ShmWire::create(""));
    }
    raw->open(transport->address());
  }

  bool run(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMs);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      transport->run_once(1);
      friend_transport->run_once(0);
      if (raw != nullptr) raw->poll();
    }
    return true;
  }
  void friend_still_served() {
    const size_t before = friendly->messages.size();
    ASSERT_TRUE(friend_transport->send(friend_peer, pattern(100, 1)).has_value());
    ASSERT_TRUE(run([&] { return friendly->messages.size() > before; }));
    EXPECT_THAT(friendly->disconnected, IsEmpty());
  }
  void send(FrameHeader header, const std::vector<std::byte>& payload = {}) {
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    send_bytes(encode_header(header), payload);
  }
  void send_bytes(const FrameHeaderBytes& header, const std::vector<std::byte>& payload = {}) {
    ASSERT_TRUE(run([&] { return raw->try_send(header, payload); }));
  }
  FrameHeader header(FrameKind kind, uint64_t sequence = 0) const {
    FrameHeader h;
    h.kind = kind;
    h.to_connection = kind == FrameKind::kHello ? 0 : their_name;
    h.from_connection = kOurName;
    h.sequence = sequence;
    return h;
  }
  // Makes a connection by the rules.
  void greet() {
    send(header(FrameKind::kHello), encode_greeting({kProtocolVersion, raw->wire().address().text}));
    ASSERT_TRUE(run([&] { return !raw->frames.empty(); }));
    const auto ack = decode_frame(raw->frames[0]);
    ASSERT_TRUE(ack.has_value());
    ASSERT_EQ(ack->header.kind, FrameKind::kHelloAck);
    ASSERT_EQ(ack->header.to_connection, kOurName);
    their_name = ack->header.from_connection;
    ASSERT_THAT(server->connected, SizeIs(2));
  }
  void expect_thrown_out() {
    ASSERT_TRUE(run([&] { return !server->disconnected.empty() && raw->lost; }));
    EXPECT_THAT(server->disconnected, SizeIs(1));
    EXPECT_EQ(server->disconnected[0].first, server->connected[1]);
    EXPECT_EQ(server->disconnected[0].second.code, ErrorCode::kProtocol);
    friend_still_served();
  }
  void expect_turned_away() {
    ASSERT_TRUE(run([&] { return raw->lost; }));
    EXPECT_THAT(server->connected, SizeIs(1));
    EXPECT_THAT(server->disconnected, IsEmpty());
    friend_still_served();
  }

  std::unique_ptr<OfiTransport> transport;
  std::unique_ptr<OfiTransport> friend_transport;
  std::unique_ptr<Recorder> server;
  std::unique_ptr<Recorder> friendly;
  PeerId friend_peer;
  std::unique_ptr<Raw> raw;
  uint64_t their_name = 0;
};

TEST_P(HostilePeer, WhoKeepsTheRulesIsServed) {
  greet();
  send(header(FrameKind::kData, 1), pattern(10, 1));
  ASSERT_TRUE(run([&] { return raw->frames.size() == 2; }));
  EXPECT_EQ(decode_frame(raw->frames[1])->payload.size(), 10u);
}

TEST_P(HostilePeer, LinkThatDoesNotIntroduceItselfIsClosed) {
  expect_turned_away();
}

TEST_P(HostilePeer, GarbageInsteadOfAHelloIsTurnedAway) {
  FrameHeaderBytes noise{};
  noise.fill(std::byte{0xA5});
  send_bytes(noise, pattern(77, 1));
  expect_turned_away();
}

TEST_P(HostilePeer, DataBeforeAHelloIsTurnedAway) {
  their_name = 1;
  send(header(FrameKind::kData, 1), pattern(10, 1));
  expect_turned_away();
}

TEST_P(HostilePeer, HelloWithAMangledGreetingIsTurnedAway) {
  auto greeting = encode_greeting({kProtocolVersion, "tcp://127.0.0.1:1"});
  greeting[0] = std::byte{0xFF};
  send(header(FrameKind::kHello), greeting);
  expect_turned_away();
}

TEST_P(HostilePeer, OtherProtocolIsRefusedWithTheReason) {
  send(header(FrameKind::kHello), encode_greeting({kProtocolVersion + 1, raw->wire().address().text}));
  ASSERT_TRUE(run([&] { return !raw->frames.empty(); }));
  const auto refusal = decode_frame(raw->frames[0]);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->header.kind, FrameKind::kRefuse);
  const auto reason = decode_farewell(refusal->payload);
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(reason->code, ErrorCode::kProtocol);
  EXPECT_THAT(reason->message, ::testing::HasSubstr("release"));
  expect_turned_away();
}

TEST_P(HostilePeer, GarbageAfterAHelloEndsThatConnection) {
  greet();
  auto bytes = encode_header(header(FrameKind::kData, 1));
  bytes[37] ^= std::byte{1};
  send_bytes(bytes);
  expect_thrown_out();
}

TEST_P(HostilePeer, FrameShorterThanItSaysEndsThatConnection) {
  greet();
  FrameHeader h = header(FrameKind::kData, 1);
  h.payload_bytes = 100;
  send_bytes(encode_header(h), pattern(99, 1));
  expect_thrown_out();
}

TEST_P(HostilePeer, LostMessageEndsThatConnection) {
  greet();
  send(header(FrameKind::kData, 1), pattern(10, 1));
  send(header(FrameKind::kData, 3), pattern(10, 1));
  expect_thrown_out();
  EXPECT_THAT(server->messages,
              ::testing::Contains(::testing::Field(&Message::peer, server->connected[1])).Times(1));
}

TEST_P(HostilePeer, MessageInEndlessPiecesEndsThatConnection) {
  greet();
  FrameHeader h = header(FrameKind::kData);
  h.flags = kMoreFragments;
  for (uint64_t i = 1; i <= kMaxMessageBytes / 20'000 + 1; ++i) {
    h.sequence = i;
    send(h, pattern(20'000, i));
  }
  expect_thrown_out();
}

TEST_P(HostilePeer, FrameForAnotherConnectionEndsItsSenders) {
  greet();
  FrameHeader h = header(FrameKind::kData, 1);
  h.to_connection = their_name + 1;
  send(h, pattern(10, 1));
  expect_thrown_out();
}

TEST_P(HostilePeer, FrameInAnothersNameEndsItsSenders) {
  greet();
  FrameHeader h = header(FrameKind::kBye, 0);
  h.from_connection = kOurName + 1;
  send(h, encode_farewell(Error(ErrorCode::kAborted, "x")));
  expect_thrown_out();
}

TEST_P(HostilePeer, SecondHelloEndsThatConnection) {
  greet();
  send(header(FrameKind::kHello), encode_greeting({kProtocolVersion, raw->wire().address().text}));
  expect_thrown_out();
}

TEST_P(HostilePeer, AnswersNobodyAskedForEndThatConnection) {
  greet();
  send(header(FrameKind::kHelloAck), encode_greeting({kProtocolVersion, raw->wire().address().text}));
  expect_thrown_out();
}

TEST_P(HostilePeer, MangledFarewellEndsThatConnection) {
  greet();
  send(header(FrameKind::kBye), pattern(30, 1));
  expect_thrown_out();
}

TEST_P(HostilePeer, PingThatCountsWrongShowsALostMessage) {
  greet();
  send(header(FrameKind::kPing, 5));
  ASSERT_TRUE(run([&] { return !server->disconnected.empty() && raw->lost; }));
  EXPECT_EQ(server->disconnected[0].second.code, ErrorCode::kUnavailable);
  friend_still_served();
}

INSTANTIATE_TEST_SUITE_P(Each, HostilePeer, ::testing::Values("tcp", "shm"),
                         [](const auto& instance) { return std::string(instance.param); });

// Below our frames.
class HostileTcp : public HostilePeer {
 protected:
  UniqueFd connect_socket() {
    const auto address = SocketAddress::parse_url(transport->address().text);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), address->raw(), sizeof(sockaddr_in)), 0);
    return fd;
  }
  // Accepted by the server, and open.
  size_t accepted() {
    const uint16_t port = SocketAddress::parse_url(transport->address().text)->port();
    size_t count = 0;
    for_each_connection([&](int, const SocketAddress& local, const SocketAddress&) {
      count += static_cast<size_t>(local.port() == port);
    });
    return count;
  }
};

TEST_P(HostileTcp, FrameLargerThanAnyBufferEndsThatConnection) {
  greet();
  send(header(FrameKind::kData, 1), pattern(raw->wire().max_frame_bytes(), 1));
  ASSERT_TRUE(run([&] { return !server->disconnected.empty(); }));
  EXPECT_EQ(server->disconnected[0].first, server->connected[1]);
  friend_still_served();
}

TEST_P(HostileTcp, StrangersOnTheSocketHarmNobody) {
  const auto address = SocketAddress::parse_url(transport->address().text);
  ASSERT_TRUE(address.has_value());
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 20; ++i) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(fd.get(), address->raw(), sizeof(sockaddr_in)), 0);
    const auto noise = pattern(i * 40, i);
    ASSERT_EQ(::send(fd.get(), noise.data(), noise.size(), MSG_NOSIGNAL), static_cast<ssize_t>(noise.size()));
    sockets.push_back(std::move(fd));
    friend_still_served();
  }
  sockets.clear();
  friend_still_served();
}

TEST_P(HostileTcp, ConnectionThatEndsBeforeItBeganIsForgottenWhateverErrnoWas) {
  greet();
  const size_t before = accepted();
  for (const size_t bytes : {0, 1, 31}) {
    for (int i = 0; i < 10; ++i) {
      const UniqueFd fd = connect_socket();
      const std::vector<std::byte> some(bytes);
      ASSERT_EQ(::send(fd.get(), some.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    }
    int turns = 0;  // the first accept them
    ASSERT_TRUE(run([&] {
      const bool forgotten = ++turns > 20 && accepted() == before;
      errno = EAGAIN;
      return forgotten;
    })) << bytes;
  }
  friend_still_served();
}

TEST_P(HostileTcp, ConnectionThatSaysNothingIsHungUpOn) {
  greet();
  const UniqueFd fd = connect_socket();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(run([&] {
    char byte = 0;
    return recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(450));
  friend_still_served();
}

INSTANTIATE_TEST_SUITE_P(Each, HostileTcp, ::testing::Values("tcp"),
                         [](const auto& instance) { return std::string(instance.param); });

class HostileShm : public HostilePeer {
 protected:
  struct Hello {
    uint64_t magic = 0x3148535345434C53;
    uint64_t version = 2;
  };
  UniqueFd connect_socket() const {
    const std::string path =
        "sluice-transport/" + std::to_string(geteuid()) + "/" + transport->address().text.substr(6);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, path.data(), path.size());
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&name), length), 0);
    return fd;
  }
  static void offer(const UniqueFd& socket, Hello hello, std::vector<int> fds) {
    iovec bytes{&hello, sizeof hello};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(head), fds.data(), fds.size() * sizeof(int));
    }
    ASSERT_EQ(sendmsg(socket.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
  }
  // The server hangs up on this socket.
  void expect_hung_up(const UniqueFd& socket) {
    ASSERT_TRUE(run([&] {
      std::array<char, 64> bytes;
      const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      return got == 0 || (got < 0 && errno == ECONNRESET);
    }));
    friend_still_served();
  }
};

TEST_P(HostileShm, BadHandshakesAreHungUpOn) {
  auto memory = SharedMapping::create(kRingMemoryBytes);
  auto table = SharedMapping::create(kExposureTableBytes);
  const UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), kRingMemoryBytes), 0);
  const int good = memory->second.get();
  const int good_table = table->second.get();
  const std::vector<std::pair<Hello, std::vector<int>>> offers = {
      {{.magic = 7}, {good, good_table}},
      {{.version = 9}, {good, good_table}},
      {{}, {}},
      {{}, {good}},
      {{}, {good_table, good}},
      {{}, {good, good_table, good}},
      {{}, {unsealed.get(), good_table}},
      {{}, {STDIN_FILENO, STDIN_FILENO}},
  };
  for (size_t i = 0; i < offers.size(); ++i) {
    SCOPED_TRACE(i);
    const UniqueFd socket = connect_socket();
    offer(socket, offers[i].first, offers[i].second);
    expect_hung_up(socket);
  }
  const UniqueFd partial = connect_socket();
  ASSERT_EQ(::send(partial.get(), "abc", 3, MSG_NOSIGNAL), 3);
  expect_hung_up(partial);
}

TEST_P(HostileShm, NonsenseInTheSharedQueueEndsThatLink) {
  auto memory = SharedMapping::create(kRingMemoryBytes);
  auto table = SharedMapping::create(kExposureTableBytes);
  const UniqueFd socket = connect_socket();
  offer(socket, {}, {memory->second.get(), table->second.get()});
  auto* sides = reinterpret_cast<RingSide*>(memory->first.data());
  sides[0].tail.store(UINT64_MAX / 2);
  sides[0].head.store(UINT64_MAX / 3);
  expect_hung_up(socket);
}

TEST_P(HostileShm, EndlessBellsHarmNobody) {
  auto memory = SharedMapping::create(kRingMemoryBytes);
  auto table = SharedMapping::create(kExposureTableBytes);
  const UniqueFd socket = connect_socket();
  offer(socket, {}, {memory->second.get(), table->second.get()});
  const std::vector<char> bells(100'000, 'x');
  for (int i = 0; i < 20; ++i) {
    [[maybe_unused]] const ssize_t sent =
        ::send(socket.get(), bells.data(), bells.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    friend_still_served();
  }
}

INSTANTIATE_TEST_SUITE_P(Each, HostileShm, ::testing::Values("shm"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace sluice::transport
