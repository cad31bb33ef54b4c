#pragma once

#include <string>

#include "base/result.h"
#include "bench/checkpoint/options.h"
#include "bench/checkpoint/ranks.h"

namespace sluice::bench {

struct VerifiedStep {
  uint64_t step = 0;
  std::string path;
  uint64_t cells = 0;
  uint32_t variables = 0;  // that the file shows whole
  uint64_t bytes = 0;      // of application data in these
  double seconds = 0;      // of the slowest rank: opening, reading and closing, without comparing
};

// Collective. Reads the step's file, each rank an even share of the cells, whatever number of ranks wrote it,
// and compares every element bit for bit. `synced` says which state is right (see judge()); without it all
// variables must be whole. kCorrupt names the file, the dataset and the first cell that differs; kIo is an
// error of HDF5 or below. The same on every rank.
Result<VerifiedStep> verify_step(const Ranks& ranks, const Options& options, uint64_t step,
                                 const std::optional<SyncedState>& synced);

}  // namespace sluice::bench
