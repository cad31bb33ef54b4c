#pragma once

#include <string>

#include "base/result.h"
#include "bench/checkpoint/options.h"
#include "bench/checkpoint/ranks.h"

namespace sluice::bench {

// Seconds of the slowest rank. `open` is H5Fcreate and the bootstrap, `write` the creation, writing and
// closing of the groups and datasets, `flush` every H5Fflush, `close` H5Fclose. Making the mesh and its
// values is in none of them.
struct StepSeconds {
  double open = 0;
  double write = 0;
  double flush = 0;
  double close = 0;

  double total() const { return open + write + flush + close; }
};

struct WrittenStep {
  uint64_t step = 0;
  std::string path;
  uint64_t cells = 0;
  uint64_t least_cells_of_a_rank = 0;
  uint64_t most_cells_of_a_rank = 0;
  uint64_t bytes = 0;  // of application data: cells * kCellBytes
  StepSeconds seconds;
};

// Collective. Creates or replaces the step's file. On return all of it has been given to H5Fclose without an
// error; that it is on a medium is what the file system makes of MPI_File_sync and MPI_File_close. After an
// error, which is the same on every rank, the file is in no known state.
Result<WrittenStep> write_step(const Ranks& ranks, const Options& options, uint64_t step);

}  // namespace sluice::bench
