// The long runs of the lock protocol's simulation:
//
//   lock_sim [--schedules N] [--minutes M] [--first SEED] [--clients C]    until both are reached
//   lock_sim --seed SEED                                                   one schedule again
//
// Prints the seeds it runs and what they met. Ends with 1 at the first schedule that breaks a promise, with
// its seed.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/sim/lock_world.h"

namespace {

using namespace sluice::sim;

constexpr uint64_t kTellEvery = 5'000;

struct Options {
  uint64_t schedules = 1'000;
  uint64_t minutes = 0;
  uint64_t first = 0;
  uint64_t clients = 0;  // 0: few, by the seed
};

int run(const Options& options) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(options.minutes);
  Met met;
  uint64_t done = 0;
  std::printf("lock_sim: seeds from %llu on\n", static_cast<unsigned long long>(options.first));
  std::fflush(stdout);
  for (; done < options.schedules || std::chrono::steady_clock::now() < end; ++done) {
    Schedule schedule = schedule_of(options.first + done);
    if (options.clients != 0) schedule.clients = static_cast<uint32_t>(options.clients);
    const std::string breach = run_schedule(schedule, met);
    if ((done + 1) % kTellEvery == 0) {
      std::printf("lock_sim: %llu schedules so far\n", static_cast<unsigned long long>(done + 1));
      std::fflush(stdout);
    }
    if (breach.empty()) continue;
    std::printf("lock_sim: --seed %llu --clients %llu: %s\n",
                static_cast<unsigned long long>(options.first + done),
                static_cast<unsigned long long>(options.clients), breach.c_str());
    return 1;
  }
  std::printf(
      "lock_sim: %llu schedules, all clean: %llu uses, %llu writes, %llu reads, %llu waits, %llu revokes, "
      "%llu deaths, %llu evictions, %llu restarts, %llu partitions\n",
      static_cast<unsigned long long>(done), static_cast<unsigned long long>(met.uses),
      static_cast<unsigned long long>(met.applied), static_cast<unsigned long long>(met.reads),
      static_cast<unsigned long long>(met.waits), static_cast<unsigned long long>(met.revokes),
      static_cast<unsigned long long>(met.deaths), static_cast<unsigned long long>(met.evictions),
      static_cast<unsigned long long>(met.restarts), static_cast<unsigned long long>(met.partitions));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.first = (uint64_t{std::random_device{}()} << 16) + 1;
  bool one = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (word == "--schedules") {
      options.schedules = value;
    } else if (word == "--minutes") {
      options.minutes = value;
    } else if (word == "--first" || word == "--seed") {
      options.first = value;
      one = one || word == "--seed";
    } else if (word == "--clients") {
      options.clients = value;
    } else {
      std::fprintf(
          stderr, "lock_sim: there is no option %s; use --schedules, --minutes, --first, --clients, --seed\n",
          word.c_str());
      return 2;
    }
  }
  if (one) options.schedules = 1;
  return run(options);
}
