// What the lock table costs: grant + cancel pairs with many live extents, and bytes per granted extent.
//
//   bench/lock_table [--check] [--json FILE] [--help] [Google Benchmark's own --benchmark_* options]

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "lockmgr/lock_table.h"

namespace sluice::lockmgr {
namespace {

constexpr size_t kLiveExtents = 100'000;
constexpr size_t kPlaces = 2 * kLiveExtents;  // half of the places are held at any time
constexpr uint64_t kPlaceBytes = 64 << 10;
constexpr uint64_t kOwners = 64;
constexpr double kPairsFloor = 1e6;      // per second, on one core
constexpr double kBytesCeiling = 128.0;  // per granted extent
constexpr uint64_t kSeed = 20240607;
// The best of these counts: whoever else runs on the machine takes speed away and never adds any.
constexpr int kRepetitions = 10;

// Live extents at random places of one file, of many owners, kept at the same number.
class LiveTable {
 public:
  explicit LiveTable(LockMode mode) : mode_(mode), places_(kPlaces), held_(kLiveExtents) {
    SeededRng rng(kSeed);
    std::iota(places_.begin(), places_.end(), 0);
    for (size_t i = kPlaces - 1; i > 0; --i) std::swap(places_[i], places_[rng.below(i + 1)]);
    for (size_t i = 0; i < kLiveExtents; ++i) held_[i] = grant(places_[i], kBlocking | kNoExpand);
    // Not given back in the order taken, or the table's memory would be walked in order.
    for (size_t i = kLiveExtents - 1; i > 0; --i) {
      const size_t other = rng.below(i + 1);
      std::swap(places_[i], places_[other]);
      std::swap(held_[i], held_[other]);
    }
  }

  // One pair that leaves another set of places held: the victim's place goes free, a free one is taken.
  // Places were shuffled, so going through them in order is going through the file at random.
  void replace(uint32_t flags) {
    const size_t victim = step_ % kLiveExtents;
    const size_t taken = kLiveExtents + step_ % (kPlaces - kLiveExtents);
    ++step_;
    cancel(held_[victim]);
    held_[victim] = grant(places_[taken], flags);
    std::swap(places_[victim], places_[taken]);
  }

  // One pair whose lock grows into the gap around it and is given back.
  void grow_and_cancel() {
    cancel(grant(places_[kLiveExtents + step_++ % (kPlaces - kLiveExtents)], kBlocking));
  }

  double bytes_per_extent() const {
    return static_cast<double>(table_.memory_bytes()) / static_cast<double>(table_.granted_count());
  }

 private:
  struct Held {
    OwnerId owner;
    LockHandle handle;
  };

  // PR extents reach into the places behind them, so that they overlap; PW extents leave their place's tail
  // free.
  Held grant(uint32_t place, uint32_t flags) {
    const OwnerId owner(1 + place % kOwners);
    const uint64_t bytes = mode_ == LockMode::kPr ? kPlaceBytes * (1 + place % 8) : kPlaceBytes / 2;
    const Extent extent = Extent::at(Offset(place * kPlaceBytes), Length(bytes));
    const auto ok = table_.request({owner, mode_, GroupId(0), flags, {&extent, 1}}, reply_, events_);
    SLUICE_ASSERT(ok && !reply_.waiting && reply_.extents[0].handle != kNoLock);
    return {owner, reply_.extents[0].handle};
  }
  void cancel(const Held& held) {
    const auto ok = table_.cancel(held.owner, held.handle, events_);
    SLUICE_ASSERT(ok);
  }

  LockMode mode_;
  size_t step_ = 0;
  std::vector<uint32_t> places_;
  std::vector<Held> held_;
  LockTable table_;
  LockReply reply_;
  LockEvents events_;
};

template <class Step>
void run(benchmark::State& state, LockMode mode, Step step) {
  LiveTable live(mode);
  for (auto _ : state) step(live);
  state.SetItemsProcessed(state.iterations());
  state.counters["bytes_per_extent"] = live.bytes_per_extent();
}

void exact(benchmark::State& state) {
  run(state, LockMode::kPw, [](LiveTable& live) { live.replace(kBlocking | kNoExpand); });
}
void speculative(benchmark::State& state) {
  run(state, LockMode::kPw, [](LiveTable& live) { live.replace(kSpeculative); });
}
void grown(benchmark::State& state) {
  run(state, LockMode::kPw, [](LiveTable& live) { live.grow_and_cancel(); });
}
void shared_overlapping(benchmark::State& state) {
  run(state, LockMode::kPr, [](LiveTable& live) { live.replace(kSpeculative); });
}
BENCHMARK(exact)->Name("lock_table/exact")->MinTime(0.2)->Repetitions(kRepetitions);
BENCHMARK(speculative)->Name("lock_table/speculative")->MinTime(0.2)->Repetitions(kRepetitions);
BENCHMARK(grown)->Name("lock_table/grown")->MinTime(0.2)->Repetitions(kRepetitions);
BENCHMARK(shared_overlapping)->Name("lock_table/shared_overlapping")->MinTime(0.2)->Repetitions(kRepetitions);

// Prints the usual table and keeps what --check judges.
class Judge : public benchmark::ConsoleReporter {
 public:
  Judge() : ConsoleReporter(OO_Tabular) {}

  struct Figure {
    double pairs_per_second = 0;
    double bytes_per_extent = 0;
  };

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred || run.run_type != Run::RT_Iteration) continue;
      Figure& best = figures_[run.run_name.function_name];
      best.pairs_per_second = std::max(best.pairs_per_second, run.counters.at("items_per_second").value);
      best.bytes_per_extent = std::max(best.bytes_per_extent, run.counters.at("bytes_per_extent").value);
    }
    ConsoleReporter::ReportRuns(runs);
  }

  // Every figure of every benchmark must hold; none at all is a failure too.
  bool holds() const {
    bool good = !figures_.empty();
    for (const auto& [name, f] : figures_) {
      const bool fast = f.pairs_per_second >= kPairsFloor;
      const bool small = f.bytes_per_extent <= kBytesCeiling;
      std::printf("%-32s %6.2f M pairs/s (floor %.2f) %s   %6.1f B/extent (ceiling %.0f) %s\n", name.c_str(),
                  f.pairs_per_second / 1e6, kPairsFloor / 1e6, fast ? "held" : "MISSED", f.bytes_per_extent,
                  kBytesCeiling, small ? "held" : "MISSED");
      good = good && fast && small;
    }
    return good;
  }

 private:
  std::map<std::string, Figure> figures_;
};

void print_help() {
  std::printf(
      "bench/lock_table: grant + cancel pairs per second with %zu live extents, and bytes per granted "
      "extent\n\n"
      "  --check      exit 0 only if every benchmark made %.0f pairs/s and at most %.0f bytes per extent in "
      "this run\n"
      "  --json FILE  also write Google Benchmark's JSON to FILE\n"
      "  --help       this text\n\n"
      "Options that begin with --benchmark_ are passed on to Google Benchmark.\n",
      kLiveExtents, kPairsFloor, kBytesCeiling);
}

int bench_main(int argc, char** argv) {
  bool check = false;
  std::vector<std::string> passed_on = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help") {
      print_help();
      return 0;
    }
    if (word == "--check") {
      check = true;
    } else if (word == "--json") {
      if (++i == argc) {
        std::fprintf(stderr, "bench/lock_table: --json needs a file name\n");
        return 2;
      }
      passed_on.push_back(std::string("--benchmark_out=") + argv[i]);
      passed_on.push_back("--benchmark_out_format=json");
    } else {
      passed_on.emplace_back(word);
    }
  }
  std::vector<char*> words;
  for (std::string& word : passed_on) words.push_back(word.data());
  int count = static_cast<int>(words.size());
  benchmark::Initialize(&count, words.data());
  if (benchmark::ReportUnrecognizedArguments(count, words.data())) return 2;
  Judge judge;
  benchmark::RunSpecifiedBenchmarks(&judge);
  benchmark::Shutdown();
  return check && !judge.holds() ? 1 : 0;
}

}  // namespace
}  // namespace sluice::lockmgr

int main(int argc, char** argv) {
  return sluice::lockmgr::bench_main(argc, argv);
}
