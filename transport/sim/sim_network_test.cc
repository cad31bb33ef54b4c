#include "transport/sim/sim_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "transport/contract_rig.h"
#include "transport/sim/seed_trace.h"

namespace sluice::transport {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

SimOptions seeded(uint64_t seed) {
  SimOptions options;
  options.seed = seed_or(seed);
  return options;
}

// A run whose whole story is one string.
std::string story(uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  SimNetwork network(options);
  std::string text;
  Recorder server(network.start("server"));
  server.answer = [&](PeerId from, std::span<const std::byte> m) {
    text += fmt::format("{}us:{}:{} ", network.now_ms(), from.value, m.size());
  };
  std::vector<std::unique_ptr<Recorder>> clients;
  for (int c = 0; c < 5; ++c) {
    clients.push_back(std::make_unique<Recorder>(network.start("c" + std::to_string(c))));
    const auto peer = clients.back()->transport().connect({"sim://server"});
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_TRUE(clients.back()->transport().send(*peer, std::vector<std::byte>(c * 100 + i)).has_value());
    }
  }
  EXPECT_TRUE(network.run_until([&] { return server.messages.size() == 100; }, 10'000));
  return text + std::to_string(network.events());
}

TEST(SimNetwork, SameSeedTellsTheSameStory) {
  EXPECT_EQ(story(7), story(7));
  EXPECT_NE(story(7), story(8));
}

TEST(SimNetwork, ConnectionsOvertakeEachOther) {
  SimNetwork network(seeded(3));
  SLUICE_TRACE_SEED(network);
  Recorder server(network.start("server"));
  Recorder a(network.start("a"));
  Recorder b(network.start("b"));
  const PeerId from_a = *a.transport().connect({"sim://server"});
  const PeerId from_b = *b.transport().connect({"sim://server"});
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(a.transport().send(from_a, {std::byte{0}}).has_value());
    ASSERT_TRUE(b.transport().send(from_b, {std::byte{1}}).has_value());
  }
  ASSERT_TRUE(network.run_until([&] { return server.messages.size() == 100; }, 1000));
  bool alternates = true;
  for (size_t i = 0; i < 100; ++i) alternates &= server.messages[i].bytes[0] == std::byte(i % 2);
  EXPECT_FALSE(alternates);
}

TEST(SimNetwork, LostMessageEndsTheConnectionAndNothingAfterItArrives) {
  int lossy_runs = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SimOptions options = seeded(seed);
    options.loss_per_million = 20'000;
    SimNetwork network(options);
    SLUICE_TRACE_SEED(network);
    Recorder server(network.start("server"));
    Recorder client(network.start("client"));
    const PeerId peer = *client.transport().connect({"sim://server"});
    for (uint8_t i = 0; i < 50; ++i) ASSERT_TRUE(client.transport().send(peer, {std::byte{i}}).has_value());
    network.run_for(5000);
    for (size_t i = 0; i < server.messages.size(); ++i) ASSERT_EQ(server.messages[i].bytes[0], std::byte(i));
    if (server.messages.size() == 50) {
      EXPECT_THAT(server.disconnected, IsEmpty());
      continue;
    }
    ++lossy_runs;
    ASSERT_THAT(server.disconnected, SizeIs(1));
    ASSERT_THAT(client.disconnected, SizeIs(1));
    EXPECT_EQ(client.disconnected[0].second.code, ErrorCode::kUnavailable);
  }
  EXPECT_GT(lossy_runs, 0);
}

TEST(SimNetwork, PartitionHealedInTimeOnlyDelays) {
  SimNetwork network(seeded(4));
  SLUICE_TRACE_SEED(network);
  Recorder server(network.start("server"));
  Recorder client(network.start("client"));
  const PeerId peer = *client.transport().connect({"sim://server"});
  ASSERT_TRUE(network.run_until([&] { return server.connected.size() == 1; }, 1000));
  network.run_for(5);  // the answer arrives
  network.partition("server", "client");
  for (uint8_t i = 0; i < 20; ++i) ASSERT_TRUE(client.transport().send(peer, {std::byte{i}}).has_value());
  network.run_for(6000);
  EXPECT_THAT(server.messages, IsEmpty());
  network.heal("client", "server");
  ASSERT_TRUE(network.run_until([&] { return server.messages.size() == 20; }, 1000));
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(server.messages[i].bytes[0], std::byte(i));
  EXPECT_THAT(server.disconnected, IsEmpty());
  EXPECT_THAT(client.disconnected, IsEmpty());
}

TEST(SimNetwork, LongPartitionEndsBothEndsWithinTheTimeout) {
  SimNetwork network(seeded(5));
  SLUICE_TRACE_SEED(network);
  Recorder server(network.start("server"));
  Recorder client(network.start("client"));
  Recorder witness(network.start("witness"));
  const PeerId peer = *client.transport().connect({"sim://server"});
  ASSERT_TRUE(witness.transport().connect({"sim://server"}).has_value());
  ASSERT_TRUE(network.run_until([&] { return server.connected.size() == 2; }, 1000));
  network.run_for(5);  // the answer arrives
  network.partition("server", "client");
  ASSERT_TRUE(client.transport().send(peer, {std::byte{1}}).has_value());
  network.run_for(9000);
  EXPECT_THAT(client.disconnected, IsEmpty());
  network.run_for(4000);
  EXPECT_EQ(client.times_disconnected(peer), 1u);
  EXPECT_THAT(server.disconnected, SizeIs(1));
  EXPECT_THAT(witness.disconnected, IsEmpty());
  network.heal_all();
  network.run_for(20'000);
  EXPECT_THAT(server.messages, IsEmpty()) << "a message of a dead connection arrived";
}

TEST(SimNetwork, CrashedHostFallsSilentForGood) {
  SimNetwork network(seeded(6));
  SLUICE_TRACE_SEED(network);
  Recorder server(network.start("server"));
  Recorder client(network.start("client"));
  const PeerId peer = *client.transport().connect({"sim://server"});
  ASSERT_TRUE(network.run_until([&] { return server.connected.size() == 1; }, 1000));
  int ran = 0;
  server.transport().after_ms(50, [&] { ++ran; });
  server.transport().post([&] { ++ran; });
  ASSERT_TRUE(client.transport().send(peer, {std::byte{1}}).has_value());
  network.crash("server");
  EXPECT_FALSE(network.running("server"));
  const uint64_t before = network.now_ms();
  ASSERT_TRUE(network.run_until([&] { return client.times_disconnected(peer) == 1; }, 20'000));
  EXPECT_GE(network.now_ms() - before, 9000u);
  EXPECT_EQ(ran, 0);
  EXPECT_THAT(server.messages, IsEmpty());
  EXPECT_THAT(server.disconnected, IsEmpty());
  EXPECT_FALSE(server.transport().send(PeerId(1), {}).has_value());
  EXPECT_FALSE(server.transport().connect({"sim://client"}).has_value());
}

TEST(SimNetwork, KilledHostIsMissedAtOnceAndItsSuccessorIsAnother) {
  SimNetwork network(seeded(7));
  SLUICE_TRACE_SEED(network);
  Recorder server(network.start("server"));
  Recorder client(network.start("client"));
  const PeerId peer = *client.transport().connect({"sim://server"});
  ASSERT_TRUE(network.run_until([&] { return server.connected.size() == 1; }, 1000));
  network.kill("server");
  Recorder successor(network.start("server"));
  ASSERT_TRUE(network.run_until([&] { return client.times_disconnected(peer) == 1; }, 5));
  EXPECT_FALSE(client.transport().send(peer, {std::byte{1}}).has_value());
  const PeerId again = *client.transport().connect({"sim://server"});
  ASSERT_TRUE(client.transport().send(again, {std::byte{2}}).has_value());
  ASSERT_TRUE(network.run_until([&] { return successor.messages.size() == 1; }, 1000));
  EXPECT_THAT(server.messages, IsEmpty());
}

TEST(SimNetwork, RmaIsTornByWhatHappensMeanwhile) {
  SimOptions options = seeded(8);
  options.rma_piece_bytes = 1000;
  SimNetwork network(options);
  SLUICE_TRACE_SEED(network);
  Recorder server(network.start("server"));
  Recorder client(network.start("client"));
  const PeerId peer = *client.transport().connect({"sim://server"});
  ASSERT_TRUE(network.run_until([&] { return server.connected.size() == 1; }, 1000));
  std::vector<std::byte> memory(10'000, std::byte{1});
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> into(memory.size());
  bool done = false;
  server.transport().pull(server.connected[0], (*exposed)->remote(), 0, into, [&](Result<> r) {
    EXPECT_TRUE(r.has_value());
    done = true;
  });
  ASSERT_TRUE(network.run_until([&] { return into[3500] == std::byte{1}; }, 1000));
  std::ranges::fill(memory, std::byte{2});
  ASSERT_TRUE(network.run_until([&] { return done; }, 1000));
  EXPECT_EQ(into.front(), std::byte{1});
  EXPECT_EQ(into.back(), std::byte{2});
  EXPECT_TRUE(client.transport().send(peer, {}).has_value());
}

TEST(SimNetwork, MemoryOfACrashedHostIsNotTouchedAgain) {
  SimOptions options = seeded(9);
  options.rma_piece_bytes = 100;
  SimNetwork network(options);
  SLUICE_TRACE_SEED(network);
  Recorder server(network.start("server"));
  auto client = std::make_unique<Recorder>(network.start("client"));
  ASSERT_TRUE(client->transport().connect({"sim://server"}).has_value());
  ASSERT_TRUE(network.run_until([&] { return server.connected.size() == 1; }, 1000));
  auto memory = std::make_unique<std::array<std::byte, 10'000>>();
  auto exposed = client->transport().expose(*memory, Access::kRemoteWrite);
  ASSERT_TRUE(exposed.has_value());
  auto own = std::make_unique<std::array<std::byte, 10'000>>();
  auto theirs = server.transport().expose(*own, Access::kRemoteRead);
  ASSERT_TRUE(theirs.has_value());
  const std::vector<std::byte> from(10'000, std::byte{7});
  std::optional<Result<>> outcome;
  server.transport().push(server.connected[0], (*exposed)->remote(), 0, from,
                          [&](Result<> r) { outcome = r; });
  bool client_told = false;
  client->transport().pull(PeerId(1), (*theirs)->remote(), 0, *memory, [&](Result<>) { client_told = true; });
  ASSERT_TRUE(network.run_until([&] { return (*memory)[150] == std::byte{7}; }, 1000));
  network.crash("client");
  exposed->reset();
  client.reset();
  memory.reset();  // the address sanitizer sees any later access
  ASSERT_TRUE(network.run_until([&] { return outcome.has_value(); }, 30'000));
  EXPECT_FALSE(outcome->has_value());
  EXPECT_THAT(server.disconnected, SizeIs(1));
  EXPECT_FALSE(client_told);
}

TEST(SimNetwork, ExposureWithdrawnDuringAPullEndsItWithIo) {
  SimOptions options = seeded(10);
  options.rma_piece_bytes = 100;
  SimNetwork network(options);
  SLUICE_TRACE_SEED(network);
  Recorder server(network.start("server"));
  Recorder client(network.start("client"));
  ASSERT_TRUE(client.transport().connect({"sim://server"}).has_value());
  ASSERT_TRUE(network.run_until([&] { return server.connected.size() == 1; }, 1000));
  std::vector<std::byte> memory(10'000, std::byte{7});
  auto exposed = client.transport().expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(exposed.has_value());
  std::vector<std::byte> into(memory.size());
  std::optional<Result<>> outcome;
  server.transport().pull(server.connected[0], (*exposed)->remote(), 0, into,
                          [&](Result<> r) { outcome = r; });
  ASSERT_TRUE(network.run_until([&] { return into[150] == std::byte{7}; }, 1000));
  exposed->reset();
  ASSERT_TRUE(network.run_until([&] { return outcome.has_value(); }, 1000));
  ASSERT_FALSE(outcome->has_value());
  EXPECT_EQ(outcome->error().code, ErrorCode::kIo);
  EXPECT_EQ(into.back(), std::byte{0});
}

// Hosts that connect, talk, crash, part and heal at random; every connection sees a prefix of what was sent
// on it, in order, and its end exactly once.
TEST(SimNetwork, EveryConnectionSeesAPrefixOfWhatWasSentWhateverHappens) {
  uint64_t delivered = 0;
  uint64_t ended = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimOptions options = seeded(seed);
    options.loss_per_million = 500;
    options.peer_timeout_ms = 2000;
    options.keepalive_ms = 200;
    SimNetwork network(options);
    SLUICE_TRACE_SEED(network);
    Rng& rng = network.rng();
    auto server = std::make_unique<Recorder>(network.start("server"));
    struct Sender {
      std::unique_ptr<Recorder> recorder;
      PeerId peer;
      uint32_t next = 0;
    };
    std::vector<Sender> senders(4);
    std::vector<std::unique_ptr<Recorder>> graves;
    for (size_t i = 0; i < senders.size(); ++i) {
      senders[i].recorder = std::make_unique<Recorder>(network.start("c" + std::to_string(i)));
    }
    for (int turn = 0; turn < 400; ++turn) {
      const size_t i = rng.below(senders.size());
      Sender& sender = senders[i];
      const std::string name = "c" + std::to_string(i);
      switch (rng.below(40)) {
        case 0:
          network.partition("server", name);
          break;
        case 1:
          network.heal_all();
          break;
        case 2:
          graves.push_back(std::move(sender.recorder));
          sender.recorder = std::make_unique<Recorder>(network.restart(name));
          sender.peer = PeerId(0);
          break;
        case 3:
          graves.push_back(std::move(server));
          server = std::make_unique<Recorder>(network.restart("server"));
          break;
        default:
          if (sender.peer == PeerId(0) || sender.recorder->times_disconnected(sender.peer) > 0) {
            sender.peer = *sender.recorder->transport().connect({"sim://server"});
            sender.next = 0;
          }
          if (sender.recorder->transport().send(sender.peer, std::vector<std::byte>(sender.next)).has_value())
            ++sender.next;
      }
      network.run_for(rng.below(100));
    }
    network.heal_all();
    network.run_for(10'000);
    graves.push_back(std::move(server));
    for (auto& sender : senders) graves.push_back(std::move(sender.recorder));
    for (const auto& recorder : graves) {
      std::map<uint64_t, size_t> next;
      for (const Message& message : recorder->messages) {
        ASSERT_EQ(message.bytes.size(), next[message.peer.value]++);
        ++delivered;
      }
      for (const auto& [peer, reason] : recorder->disconnected) {
        ASSERT_EQ(recorder->times_disconnected(peer), 1u);
        ++ended;
      }
    }
  }
  EXPECT_GT(delivered, 5000u);
  EXPECT_GT(ended, 100u);
}

}  // namespace
}  // namespace sluice::transport
