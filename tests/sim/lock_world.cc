#include "tests/sim/lock_world.h"

#include "base/assert.h"
#include "tests/sim/lock_world_parts.h"

namespace sluice::sim {
namespace {

transport::SimOptions weather(const Schedule& schedule) {
  transport::SimOptions options;
  options.seed = schedule.seed;
  options.min_delay_us = 20;
  options.max_delay_us = 2'000;
  options.loss_per_million = schedule.disturbed ? 200 : 0;
  options.keepalive_ms = 50;
  options.peer_timeout_ms = 250;
  options.connect_timeout_ms = 150;
  return options;
}

std::string client_host(uint64_t number) {
  return "c" + std::to_string(number);
}

// Something goes wrong now and then, until the clients begin nothing new.
void disturb(World& world) {
  if (!world.busy) return;
  const uint64_t what = world.rng.below(10);
  const uint64_t victim = world.rng.below(world.schedule.clients);
  if (what == 0) {
    ++world.met.restarts;
    world.start_server(true);
  } else if (what <= 2 && world.clients[victim]->alive() && world.met.deaths < 1'000'000) {
    if (world.rng.below(3) == 0) {
      ++world.met.deaths;
      world.clients[victim]->die();
      world.network.kill(client_host(victim));
    }
  } else if (what <= 6) {
    ++world.met.partitions;
    world.network.partition("server", client_host(victim));
    // Short ones are waited out, long ones end the lease.
    world.network.after_us((1 + world.rng.below(2'500)) * 1000,
                           [&world, victim] { world.network.heal("server", client_host(victim)); });
  } else if (what == 7) {
    world.server->locks().reclaim(kContended, 1 + world.rng.below(4));
  }
  world.network.after_us((10 + world.rng.below(300)) * 1000, [&world] { disturb(world); });
}

std::string waiting_text(const World& world) {
  std::string text = "somebody waits for ever:";
  for (const auto& client : world.clients) {
    if (!client->quiet()) text += " " + client->state() + ";";
  }
  return text;
}

}  // namespace

void Met::add(const Met& other) {
  uses += other.uses;
  waits += other.waits;
  reads += other.reads;
  applied += other.applied;
  refused += other.refused;
  syncs += other.syncs;
  revokes += other.revokes;
  dropped += other.dropped;
  deaths += other.deaths;
  evictions += other.evictions;
  restarts += other.restarts;
  partitions += other.partitions;
  reconnects += other.reconnects;
  replayed += other.replayed;
}

World::World(const Schedule& s, Met& m) : schedule(s), met(m), rng(s.seed * 7919 + 1), network(weather(s)) {}

std::vector<std::byte> World::put(Packet packet) {
  const uint64_t number = next_packet++;
  packets.emplace(number, std::move(packet));
  std::vector<std::byte> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

Packet World::take(std::span<const std::byte> bytes) {
  uint64_t number = 0;
  SLUICE_ASSERT(bytes.size() == sizeof number);
  std::memcpy(&number, bytes.data(), sizeof number);
  auto node = packets.extract(number);
  SLUICE_ASSERT(!node.empty());
  return std::move(node.mapped());
}

void World::start_server(bool again) {
  if (again) dead_servers.push_back(std::move(server));
  transport::Transport& transport = again ? network.restart("server") : network.start("server");
  server = std::make_unique<Server>(*this, transport, again);
}

std::string run_schedule(const Schedule& schedule, Met& met) {
  constexpr uint64_t kEndMs = 60'000;
  World world(schedule, met);
  world.start_server(false);
  for (uint32_t i = 0; i < schedule.clients; ++i)
    world.clients.push_back(std::make_unique<Client>(world, i, world.network.start(client_host(i))));
  if (schedule.disturbed) world.network.after_us(100'000, [&world] { disturb(world); });
  const auto broken = [&world] { return !world.ledger.breach().empty(); };
  world.network.run_until(broken, schedule.busy_ms);
  world.busy = false;
  world.network.heal_all();
  const auto quiet = [&world] {
    for (const auto& client : world.clients) {
      if (!client->quiet()) return false;
    }
    return true;
  };
  // Looked at now and then: with thousands of clients it takes longer than a step.
  for (uint64_t at = 0; at < kEndMs && !broken() && !quiet(); at += 20) world.network.run_until(broken, 20);
  if (!broken() && !quiet()) world.ledger.report(waiting_text(world));
  if (!broken()) world.server->check_tables();
  world.ledger.check_synced();
  return world.ledger.breach();
}

Schedule schedule_of(uint64_t seed) {
  SeededRng rng(seed);
  Schedule schedule;
  schedule.seed = seed;
  schedule.clients = static_cast<uint32_t>(2 + rng.below(8));
  schedule.busy_ms = 300 + rng.below(1'500);
  schedule.disturbed = rng.below(10) != 0;
  return schedule;
}

}  // namespace sluice::sim
