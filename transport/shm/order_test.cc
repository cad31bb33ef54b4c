// Messages of several processes of one host, told in the order in which they were sent.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/rng.h"
#include "transport/contract_rig.h"
#include "transport/ofi/ofi_transport.h"

namespace sluice::transport {
namespace {

constexpr uint64_t kLimitMs = 30'000;
constexpr size_t kClients = 3;

std::vector<std::byte> number(uint64_t value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
uint64_t number_of(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

// By one thread: while the receiver looks away, several say something.
TEST(OrderAmongPeers, what_waits_in_several_queues_is_told_in_the_order_sent) {
  auto rig = make_shm_rig();
  Recorder server(rig->start("server"));
  std::vector<std::unique_ptr<Recorder>> clients;
  std::vector<PeerId> peers;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Recorder>(rig->start("client" + std::to_string(i))));
    peers.push_back(clients.back()->transport().connect(server.transport().address()).value());
  }
  // Before a connection stands nothing is put anywhere.
  for (size_t i = 0; i < kClients; ++i) {
    ASSERT_TRUE(clients[i]->transport().send(peers[i], number(i)));
    ASSERT_TRUE(rig->run_until([&] { return server.messages.size() == i + 1; }, kLimitMs));
  }
  SeededRng rng(5);
  uint64_t sent = kClients;
  for (unsigned round = 0; round < 500; ++round) {
    for (uint64_t i = rng.below(12); i > 0; --i) {
      const uint64_t who = rng.below(kClients);
      ASSERT_TRUE(clients[who]->transport().send(peers[who], number(sent++)));
    }
    ASSERT_TRUE(rig->run_until([&] { return server.messages.size() == sent; }, kLimitMs));
  }
  for (uint64_t i = 0; i < sent; ++i) ASSERT_EQ(number_of(server.messages[i].bytes), i);
}

// While the receiver looks at its queues, one thread sends for all of them, at once one after the other. The
// last one may be connected over tcp: what it says comes after all that the others said before.
void speak_one_after_the_other(bool last_over_tcp) {
  OfiOptions options;
  options.scheme = "any";
  options.peer_timeout_ms = 60'000;
  auto receiver = OfiTransport::create(options).value();
  Recorder server(*receiver);
  std::atomic<bool> over{false};
  std::atomic<uint64_t> told{0};
  server.answer = [&](PeerId, std::span<const std::byte>) { ++told; };
  std::thread loop([&] {
    while (!over) receiver->run_once(50);
  });
  std::vector<std::unique_ptr<OfiTransport>> clients;
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<PeerId> peers;
  uint64_t sent = 0;
  const auto wait = [&] {
    while (told < sent) {
      for (const auto& client : clients) client->run_ready();
    }
  };
  for (size_t i = 0; i < kClients; ++i) {
    const bool over_tcp = last_over_tcp && i + 1 == kClients;
    clients.push_back(OfiTransport::create(options).value());
    recorders.push_back(std::make_unique<Recorder>(*clients[i]));
    peers.push_back(clients[i]->connect(over_tcp ? receiver->address() : receiver->local_address()).value());
    ASSERT_TRUE(clients[i]->send(peers[i], number(sent++)));
    wait();  // before a connection stands nothing is put anywhere
  }
  SeededRng rng(7);
  for (unsigned round = 0; round < 20'000; ++round) {
    for (uint64_t i = rng.below(6); i > 0; --i) {
      const uint64_t who = rng.below(last_over_tcp ? kClients - 1 : kClients);
      auto message = number(sent++);
      if (rng.below(4) == 0) message.resize(rng.below(20'000) + sizeof sent);  // takes a while to collect
      ASSERT_TRUE(clients[who]->send(peers[who], std::move(message)));
    }
    if (last_over_tcp) {
      ASSERT_TRUE(clients.back()->send(peers.back(), number(sent++)));
    }
    wait();
  }
  over = true;
  loop.join();
  for (uint64_t i = 0; i < sent; ++i) ASSERT_EQ(number_of(server.messages[i].bytes), i) << "out of turn";
}

TEST(OrderAmongPeers, who_speaks_after_another_is_heard_after_it) {
  speak_one_after_the_other(/*last_over_tcp=*/false);
}

TEST(OrderAmongPeers, who_speaks_over_tcp_is_heard_after_who_spoke_before_over_shared_memory) {
  speak_one_after_the_other(/*last_over_tcp=*/true);
}

}  // namespace
}  // namespace sluice::transport
