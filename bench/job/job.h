#pragma once

#include <mpi.h>

#include <cstdint>
#include <nlohmann/json.hpp>
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

// The main() of a program: MPI from begin to end, with the exit code of `run`.
int run_as_job(int argc, char** argv, int (*run)(const Job& job, int argc, char** argv));

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
nlohmann::json to_json(const Spans& spans);

// Rank 0 writes the report there, if anywhere. Collective; false on every rank when it could not, and said
// why.
bool save_report(const Job& job, const std::string& path, const nlohmann::json& report);

}  // namespace sluice::bench
