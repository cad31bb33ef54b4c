#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>

#include "bench/job/hint.h"

// What the benchmark programs share of MPI. An I/O error ends the job: a benchmark has nothing to go on with.
namespace sluice::bench {

// A rank of MPI_COMM_WORLD.
struct Job {
  uint32_t rank = 0;
  uint32_t ranks = 1;

  static Job of_this_rank();
};

// Says so on stderr, under the program's name, and aborts the job.
[[noreturn]] void give_up(const std::string& what, const std::string& why);
void check_mpi(int code, const std::string& what);

// MPI_INFO_NULL for no hints; otherwise the caller frees it.
MPI_Info make_info(const Hints& hints);

// When one rank did the steps of an access, by MPI_Wtime().
struct Stamps {
  double open = 0;
  double opened = 0;
  double moved = 0;
  double closed = 0;
};
// Seconds, each from the first rank's begin to the last one's end.
struct Spans {
  double open_s = 0;
  double transfer_s = 0;
  double close_s = 0;
  double total_s = 0;
};
// Collective.
Spans spans_of_all(const Stamps& mine);

}  // namespace sluice::bench
