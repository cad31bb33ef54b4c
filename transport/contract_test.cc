// The contract of transport.h, over every implementation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "transport/contract_rig.h"

namespace sluice::transport {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kLimitMs = 20'000;

struct Implementation {
  const char* name;
  std::unique_ptr<ContractRig> (*make)();
};

class TransportContract : public ::testing::TestWithParam<Implementation> {
 protected:
  bool run(const std::function<bool()>& done) { return rig->run_until(done, kLimitMs); }

  // A client connected to the server, as each names the other.
  struct Pair {
    PeerId client_to_server;
    PeerId server_to_client;
  };
  Pair join(Recorder& client, Recorder& server) {
    const size_t before = server.connected.size();
    auto peer = client.transport().connect(server.transport().address());
    EXPECT_TRUE(peer.has_value());
    EXPECT_TRUE(run([&] { return server.connected.size() == before + 1; }));
    return {*peer, server.connected.back()};
  }

  // Runs one pull or push to its end.
  Result<> move(Recorder& by, PeerId peer, const RemoteBuffer& buffer, uint64_t offset,
                std::span<std::byte> local, bool pull) {
    std::optional<Result<>> outcome;
    int times = 0;
    const auto done = [&](Result<> r) {
      ++times;
      outcome = std::move(r);
    };
    if (pull) {
      by.transport().pull(peer, buffer, offset, local, done);
    } else {
      by.transport().push(peer, buffer, offset, local, done);
    }
    EXPECT_TRUE(run([&] { return outcome.has_value(); }));
    EXPECT_EQ(times, 1);
    return outcome.value_or(fail(ErrorCode::kTimedOut, "no completion"));
  }

  std::unique_ptr<ContractRig> rig = GetParam().make();
};

TEST_P(TransportContract, ConnectionIsToldToTheSideThatDidNotMakeIt) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  join(client, server);
  EXPECT_THAT(server.connected, SizeIs(1));
  EXPECT_THAT(client.connected, IsEmpty());
}

TEST_P(TransportContract, AddressNamesTheScheme) {
  Transport& one = rig->start("one");
  const std::string scheme = GetParam().name == std::string("joined") ? "tcp" : GetParam().name;
  EXPECT_TRUE(one.address().text.starts_with(scheme + "://")) << one.address().text;
}

TEST_P(TransportContract, MessagesArriveWholeAndInTheOrderSent) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  server.answer = [&](PeerId from, std::span<const std::byte> m) {
    EXPECT_TRUE(server.transport().send(from, {m.begin(), m.end()}).has_value());
  };
  const auto peer = client.transport().connect(server.transport().address());
  ASSERT_TRUE(peer.has_value());
  constexpr size_t kMessages = 3000;  // sent before the server has answered: below the queue's limit
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(client.transport().send(*peer, pattern(i % 700, i)).has_value()) << i;
  }
  ASSERT_TRUE(run([&] { return client.messages.size() == kMessages; })) << client.messages.size();
  for (size_t i = 0; i < kMessages; ++i) ASSERT_EQ(client.messages[i].bytes, pattern(i % 700, i)) << i;
}

TEST_P(TransportContract, MessagesUpToTheLimitPassAndLongerOnesAreRefused) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  const std::vector<size_t> sizes = {
      0, 1, 4055, 4056, 4057, 4096, 65495, 65496, 65497, 100'000, kMaxMessageBytes - 1, kMaxMessageBytes};
  for (const size_t size : sizes) ASSERT_TRUE(client.transport().send(peer, pattern(size, size)).has_value());
  auto refused = client.transport().send(peer, pattern(kMaxMessageBytes + 1, 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
  ASSERT_TRUE(run([&] { return server.messages.size() == sizes.size(); }));
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(server.messages[i].bytes, pattern(sizes[i], sizes[i]));
  EXPECT_THAT(server.disconnected, IsEmpty());
}

TEST_P(TransportContract, QueueHasALimitAndEmptiesAgain) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  size_t taken = 0;
  Result<> refused;
  // The fabric holds some; with nobody running the loops it cannot hold all of these.
  while (taken < 20 * kMaxQueuedMessages) {
    refused = client.transport().send(peer, pattern(1000, taken));
    if (!refused) break;
    ++taken;
  }
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_TRUE(refused.error().retryable);
  EXPECT_GE(taken, kMaxQueuedMessages);
  ASSERT_TRUE(run([&] { return server.messages.size() == taken; }));
  EXPECT_TRUE(client.transport().send(peer, pattern(10, 1)).has_value());
  ASSERT_TRUE(run([&] { return server.messages.size() == taken + 1; }));
  EXPECT_EQ(server.messages[taken - 1].bytes, pattern(1000, taken - 1));
}

TEST_P(TransportContract, PullAndPushMoveBytesOfEverySize) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  for (const size_t size : {size_t{1}, size_t{7}, size_t{4096}, size_t{65537}, size_t{1} << 20,
                            (size_t{5} << 20) + 3, kMaxRmaBytes}) {
    SCOPED_TRACE(size);
    std::vector<std::byte> offered = pattern(size, size);
    auto readable = client.transport().expose(offered, Access::kRemoteRead);
    ASSERT_TRUE(readable.has_value());
    std::vector<std::byte> got(size);
    ASSERT_TRUE(move(server, back, (*readable)->remote(), 0, got, /*pull=*/true).has_value());
    EXPECT_TRUE(got == offered);

    std::vector<std::byte> target(size);
    auto writable = client.transport().expose(target, Access::kRemoteWrite);
    ASSERT_TRUE(writable.has_value());
    ASSERT_TRUE(move(server, back, (*writable)->remote(), 0, got, /*pull=*/false).has_value());
    EXPECT_TRUE(target == offered);
  }
}

TEST_P(TransportContract, RmaReachesTheRangeAskedForAndNoOther) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  constexpr size_t kSize = 3 << 20;
  std::vector<std::byte> memory(kSize, std::byte{0xEE});
  auto exposed = client.transport().expose(memory, Access::kRemoteWrite);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> piece = pattern((1 << 20) + 500, 9);
  ASSERT_TRUE(move(server, back, (*exposed)->remote(), 12345, piece, /*pull=*/false).has_value());
  for (size_t i = 0; i < kSize; ++i) {
    const bool inside = i >= 12345 && i < 12345 + piece.size();
    ASSERT_EQ(memory[i], inside ? piece[i - 12345] : std::byte{0xEE}) << i;
  }
}

TEST_P(TransportContract, RmaOutsideTheBufferIsRefusedHere) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  std::vector<std::byte> memory(1000);
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  const RemoteBuffer buffer = (*exposed)->remote();
  std::vector<std::byte> into(500);
  struct Case {
    uint64_t offset;
    size_t size;
  };
  for (const auto& [offset, size] :
       {Case{501, 500}, Case{1000, 1}, Case{1001, 0}, Case{UINT64_MAX, 1}, Case{UINT64_MAX - 100, 500}}) {
    auto outcome = move(server, back, buffer, offset, std::span(into).first(size), /*pull=*/true);
    ASSERT_FALSE(outcome.has_value()) << offset;
    EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
  }
  // A buffer that says it reaches around the address space.
  auto wrapped = move(server, back, RemoteBuffer{UINT64_MAX - 10, buffer.key, 100}, 50, into, /*pull=*/true);
  ASSERT_FALSE(wrapped.has_value());
  EXPECT_EQ(wrapped.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(move(server, back, buffer, 500, into, /*pull=*/true).has_value());
  EXPECT_TRUE(move(server, back, buffer, 1000, std::span(into).first(0), /*pull=*/true).has_value());
}

TEST_P(TransportContract, RmaBeyondTheLimitIsTooLarge) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  std::vector<std::byte> memory(kMaxRmaBytes + 1);
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> into(kMaxRmaBytes + 1);
  auto outcome = move(server, back, (*exposed)->remote(), 0, into, /*pull=*/true);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kTooLarge);
}

TEST_P(TransportContract, MemoryThatIsNoLongerExposedCannotBeReached) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  std::vector<std::byte> memory = pattern(100'000, 3);
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  const RemoteBuffer buffer = (*exposed)->remote();
  exposed->reset();
  std::vector<std::byte> into(memory.size());
  auto outcome = move(server, back, buffer, 0, into, /*pull=*/true);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kIo);
}

TEST_P(TransportContract, MemoryExposedForReadingCannotBeWritten) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  std::vector<std::byte> memory = pattern(5000, 3);
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> zeros(memory.size());
  auto outcome = move(server, back, (*exposed)->remote(), 0, zeros, /*pull=*/false);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kIo);
  EXPECT_EQ(memory, pattern(5000, 3));
}

TEST_P(TransportContract, ManyRmasAtOnceAllComplete) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  constexpr size_t kPieces = 200;
  constexpr size_t kPiece = 50'000;
  std::vector<std::byte> memory = pattern(kPieces * kPiece, 4);
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> got(memory.size());
  std::vector<int> completions(kPieces);
  for (size_t i = 0; i < kPieces; ++i) {
    server.transport().pull(back, (*exposed)->remote(), i * kPiece,
                            std::span(got).subspan(i * kPiece, kPiece), [&, i](Result<> r) {
                              EXPECT_TRUE(r.has_value());
                              ++completions[i];
                            });
  }
  ASSERT_TRUE(run([&] { return std::ranges::count(completions, 1) == ptrdiff_t{kPieces}; }));
  EXPECT_TRUE(got == memory);
}

TEST_P(TransportContract, ManyPeersAtOnce) {
  Recorder server(rig->start("server"));
  server.answer = [&](PeerId from, std::span<const std::byte> m) {
    EXPECT_TRUE(server.transport().send(from, {m.begin(), m.end()}).has_value());
  };
  constexpr size_t kClients = 40;
  std::vector<std::unique_ptr<Recorder>> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Recorder>(rig->start("client" + std::to_string(i))));
    const auto peer = clients.back()->transport().connect(server.transport().address());
    ASSERT_TRUE(peer.has_value());
    for (size_t n = 0; n < 20; ++n) {
      ASSERT_TRUE(clients.back()->transport().send(*peer, pattern(300, i * 100 + n)).has_value());
    }
  }
  ASSERT_TRUE(run(
      [&] { return std::ranges::all_of(clients, [](const auto& c) { return c->messages.size() == 20; }); }));
  for (size_t i = 0; i < kClients; ++i) {
    for (size_t n = 0; n < 20; ++n) ASSERT_EQ(clients[i]->messages[n].bytes, pattern(300, i * 100 + n));
  }
}

TEST_P(TransportContract, SeveralConnectionsBetweenTheSameTwoAreSeparate) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto first = join(client, server);
  const auto second = join(client, server);
  EXPECT_NE(first.client_to_server, second.client_to_server);
  EXPECT_NE(first.server_to_client, second.server_to_client);
  client.transport().disconnect(first.client_to_server, Error(ErrorCode::kAborted, "enough"));
  ASSERT_TRUE(run([&] { return server.times_disconnected(first.server_to_client) == 1; }));
  ASSERT_TRUE(client.transport().send(second.client_to_server, pattern(10, 1)).has_value());
  ASSERT_TRUE(run([&] { return server.messages.size() == 1; }));
  EXPECT_EQ(server.messages[0].peer, second.server_to_client);
}

TEST_P(TransportContract, DisconnectIsToldToTheOtherSideOnceAndNotToThisOne) {
  for (const bool by_client : {true, false}) {
    SCOPED_TRACE(by_client);
    Recorder server(rig->start("server" + std::to_string(by_client)));
    Recorder client(rig->start("client" + std::to_string(by_client)));
    const auto [peer, back] = join(client, server);
    ASSERT_TRUE(client.transport().send(peer, pattern(5, 5)).has_value());
    ASSERT_TRUE(run([&] { return server.messages.size() == 1; }));
    Recorder& closer = by_client ? client : server;
    Recorder& other = by_client ? server : client;
    closer.transport().disconnect(by_client ? peer : back, Error(ErrorCode::kAborted, "had enough of it"));
    ASSERT_TRUE(run([&] { return !other.disconnected.empty(); }));
    EXPECT_EQ(other.times_disconnected(by_client ? back : peer), 1u);
    EXPECT_EQ(other.disconnected[0].second.code, ErrorCode::kUnavailable);
    EXPECT_THAT(other.disconnected[0].second.message, ::testing::HasSubstr("had enough of it"));
    auto late = closer.transport().send(by_client ? peer : back, pattern(5, 5));
    ASSERT_FALSE(late.has_value());
    EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
    // Nothing more comes of it, on either side.
    Recorder third(rig->start("third" + std::to_string(by_client)));
    join(third, server);
    EXPECT_EQ(other.disconnected.size(), 1u);
    EXPECT_THAT(closer.disconnected, IsEmpty());
  }
}

TEST_P(TransportContract, MessagesSentBeforeDisconnectArrive) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  ASSERT_TRUE(server.transport().send(back, {}).has_value());
  ASSERT_TRUE(run([&] { return client.messages.size() == 1; }));  // the client has been answered
  for (size_t i = 0; i < 500; ++i) ASSERT_TRUE(client.transport().send(peer, pattern(5000, i)).has_value());
  client.transport().disconnect(peer, Error(ErrorCode::kAborted, "done"));
  ASSERT_TRUE(run([&] { return !server.disconnected.empty(); }));
  EXPECT_THAT(server.messages, SizeIs(500));
}

TEST_P(TransportContract, DisconnectFromInsideAMessageIsSafe) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  server.answer = [&](PeerId from, std::span<const std::byte> m) {
    server.transport().disconnect(from, Error(ErrorCode::kAborted, "no"));
    EXPECT_EQ(std::vector<std::byte>(m.begin(), m.end()), pattern(200'000, 1));
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client.transport().send(peer, pattern(200'000, 1)).has_value());
  ASSERT_TRUE(run([&] { return !client.disconnected.empty(); }));
  EXPECT_THAT(server.messages, SizeIs(1));
  EXPECT_THAT(server.disconnected, IsEmpty());
}

TEST_P(TransportContract, OutstandingCompletionsRunBeforeTheEndIsTold) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  std::vector<std::byte> memory = pattern(kMaxRmaBytes, 8);
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> into(memory.size());
  constexpr int kPulls = 8;
  int completions = 0;
  int failures = 0;
  for (int i = 0; i < kPulls; ++i) {
    server.transport().pull(back, (*exposed)->remote(), 0, into, [&](Result<> r) {
      EXPECT_THAT(server.disconnected, IsEmpty());
      ++completions;
      failures += !r.has_value();
    });
  }
  client.transport().disconnect(peer, Error(ErrorCode::kAborted, "gone"));
  ASSERT_TRUE(run([&] { return !server.disconnected.empty(); }));
  EXPECT_EQ(completions, kPulls);
  EXPECT_GT(failures, 0);
}

TEST_P(TransportContract, OwnDisconnectEndsOutstandingRmaAndTheMemoryIsOursAgain) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  const std::vector<std::byte> source = pattern(kMaxRmaBytes, 8);
  std::vector<std::byte> memory = source;
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> into(memory.size());
  int completions = 0;
  for (int i = 0; i < 4; ++i) {
    server.transport().pull(back, (*exposed)->remote(), 0, into, [&](Result<> r) {
      ++completions;
      ASSERT_FALSE(r.has_value());
      EXPECT_EQ(r.error().message, "changed my mind");
    });
  }
  // In the middle of it: some bytes are here, not all.
  ASSERT_TRUE(run([&] { return into[0] == source[0] && into[1] == source[1] && into[2] == source[2]; }));
  ASSERT_EQ(completions, 0);
  server.transport().disconnect(back, Error(ErrorCode::kAborted, "changed my mind"));
  ASSERT_TRUE(run([&] { return completions == 4; }));
  std::ranges::fill(into, std::byte{0x11});
  Recorder other(rig->start("other"));
  const auto again = join(other, server);
  std::vector<std::byte> fresh(source.size());
  ASSERT_TRUE(run([&] { return client.times_disconnected(peer) == 1; }));
  auto moved = other.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(moved.has_value());
  ASSERT_TRUE(move(server, again.server_to_client, (*moved)->remote(), 0, fresh, /*pull=*/true).has_value());
  EXPECT_TRUE(fresh == source);
  EXPECT_EQ(std::ranges::count(into, std::byte{0x11}), static_cast<ptrdiff_t>(into.size()));
}

TEST_P(TransportContract, ConnectingToNobodyIsUnavailableInTime) {
  Recorder client(rig->start("client"));
  const Address nobody = rig->nobody();
  const uint64_t before = client.transport().now_ms();
  const auto peer = client.transport().connect(nobody);
  ASSERT_TRUE(peer.has_value());
  EXPECT_TRUE(client.transport().send(*peer, pattern(10, 1)).has_value());
  ASSERT_TRUE(run([&] { return !client.disconnected.empty(); }));
  EXPECT_EQ(client.disconnected[0].first, *peer);
  EXPECT_EQ(client.disconnected[0].second.code, ErrorCode::kUnavailable);
  EXPECT_LE(client.transport().now_ms() - before, 6000u);
}

TEST_P(TransportContract, AddressesThatMakeNoSenseFailAtOnce) {
  Recorder client(rig->start("client"));
  for (const char* text :
       {"", "tcp:", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:0", "tcp://127.0.0.1:99999",
        "tcp://127.0.0.1:12x", "gopher://127.0.0.1:70", "shm://", "shm://a/b", "shm://../x", "sim://"}) {
    auto peer = client.transport().connect(Address{text});
    ASSERT_FALSE(peer.has_value()) << text;
    EXPECT_EQ(peer.error().code, ErrorCode::kInvalidArgument) << text;
  }
}

TEST_P(TransportContract, UseOfAClosedConnectionIsUnavailable) {
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  client.transport().disconnect(peer, Error(ErrorCode::kAborted, "done"));
  client.transport().disconnect(peer, Error(ErrorCode::kAborted, "twice"));
  std::vector<std::byte> into(10);
  auto outcome = move(client, peer, RemoteBuffer{4096, 1, 10}, 0, into, /*pull=*/true);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kUnavailable);
}

TEST_P(TransportContract, ServerThatStopsIsNoticedAndItsSuccessorAnswers) {
  Recorder client(rig->start("client"));
  Transport& first = rig->start("server");
  const Address address = first.address();
  std::optional<Recorder> server(first);
  const auto [peer, back] = join(client, *server);
  server.reset();
  rig->stop(first);
  ASSERT_TRUE(run([&] { return client.times_disconnected(peer) == 1; }));
  EXPECT_EQ(client.disconnected[0].second.code, ErrorCode::kUnavailable);
  Recorder successor(rig->start_again(address));
  EXPECT_EQ(successor.transport().address(), address);
  const auto again = join(client, successor);
  EXPECT_NE(again.client_to_server, peer);
  ASSERT_TRUE(client.transport().send(again.client_to_server, pattern(100, 1)).has_value());
  ASSERT_TRUE(run([&] { return successor.messages.size() == 1; }));
  std::vector<std::byte> memory = pattern(10'000, 2);
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> into(memory.size());
  EXPECT_TRUE(
      move(successor, again.server_to_client, (*exposed)->remote(), 0, into, /*pull=*/true).has_value());
  EXPECT_EQ(into, memory);
}

TEST_P(TransportContract, QuietConnectionStaysOpen) {
  rig->set_peer_timeout_ms(1500);
  Recorder server(rig->start("server"));
  Recorder client(rig->start("client"));
  const auto [peer, back] = join(client, server);
  bool rested = false;
  client.transport().after_ms(3000,
                              [&] { rested = true; });  // longer than the silence that ends a connection
  ASSERT_TRUE(run([&] { return rested; }));
  EXPECT_THAT(client.disconnected, IsEmpty());
  EXPECT_THAT(server.disconnected, IsEmpty());
  ASSERT_TRUE(client.transport().send(peer, pattern(10, 1)).has_value());
  ASSERT_TRUE(run([&] { return server.messages.size() == 1; }));
}

TEST_P(TransportContract, PostKeepsTheOrderOfEachThread) {
  Recorder one(rig->start("one"));
  constexpr int kThreads = 3;
  constexpr int kEach = 2000;
  std::vector<std::vector<int>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) one.transport().post([&seen, t, i] { seen[t].push_back(i); });
    });
  }
  const bool all =
      run([&] { return std::ranges::all_of(seen, [](const auto& s) { return s.size() == size_t{kEach}; }); });
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(all);
  for (const auto& s : seen) EXPECT_TRUE(std::ranges::is_sorted(s));
}

TEST_P(TransportContract, TimersRunInOrderAndNotEarly) {
  Recorder one(rig->start("one"));
  const uint64_t start = one.transport().now_ms();
  std::vector<int> order;
  std::vector<uint64_t> at;
  const auto note = [&](int which) {
    order.push_back(which);
    at.push_back(one.transport().now_ms() - start);
  };
  one.transport().after_ms(60, [&] { note(3); });
  one.transport().after_ms(20, [&] {
    note(1);
    one.transport().after_ms(0, [&] { note(2); });
  });
  one.transport().after_ms(0, [&] { note(0); });
  one.transport().after_ms(60, [&] { note(4); });
  ASSERT_TRUE(run([&] { return order.size() == 5; }));
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_GE(at[1], 20u);
  EXPECT_GE(at[3], 60u);
}

TEST_P(TransportContract, ExposingNothingIsRefused) {
  Recorder one(rig->start("one"));
  auto exposed = one.transport().expose({}, Access::kRemoteRead);
  ASSERT_FALSE(exposed.has_value());
  EXPECT_EQ(exposed.error().code, ErrorCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Every, TransportContract,
                         ::testing::Values(Implementation{"tcp", make_tcp_rig},
                                           Implementation{"shm", make_shm_rig},
                                           Implementation{"joined", make_joined_rig},
                                           Implementation{"sim", make_sim_rig}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace sluice::transport
