#pragma once

#include <cstdint>
#include <memory>
#include <string>

// The lock and write-back protocol under bad weather: real LockServer, LockCache and strategies over the
// simulated network, with delay, loss, partitions, clients that die or fall silent, and servers that start
// again. One thread, virtual time; a schedule is told by its seed.
namespace sluice::sim {

struct Schedule {
  uint64_t seed = 1;
  uint32_t clients = 6;
  uint64_t busy_ms = 1'500;  // how long clients begin new work
  bool disturbed = true;
};

// What schedules met; a set of them that met nothing tests nothing.
struct Met {
  uint64_t uses = 0, waits = 0, reads = 0, applied = 0, refused = 0, syncs = 0, revokes = 0, dropped = 0;
  uint64_t deaths = 0, evictions = 0, restarts = 0, partitions = 0, reconnects = 0, replayed = 0;
  void add(const Met& other);
};

// Runs the schedule; answers what it found broken, or nothing.
std::string run_schedule(const Schedule& schedule, Met& met);
// The schedule that a seed stands for in the long runs: sizes and weather differ from seed to seed.
Schedule schedule_of(uint64_t seed);

}  // namespace sluice::sim
