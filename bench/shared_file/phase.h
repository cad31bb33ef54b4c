#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>

#include "bench/job/job.h"
#include "bench/shared_file/options.h"

namespace sluice::bench {

// One file open on every rank, or on each rank alone. An I/O error ends the job: a benchmark has nothing to
// go on with.
class BenchFile {
 public:
  virtual ~BenchFile() = default;
  virtual void write(uint64_t offset, const void* data, uint64_t bytes) = 0;
  // Every byte, or the job ends.
  virtual void read(uint64_t offset, void* data, uint64_t bytes) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;
};

// What all ranks took.
struct PhaseTimes {
  std::string access;  // "write" or "read"
  uint64_t repetition = 0;
  Spans spans;
  uint64_t wrong_bytes = 0;  // of all ranks; counted where it was asked for
};

PhaseTimes write_phase(const SharedFileOptions& options, const Job& job, uint64_t repetition);
// Reads what rank `job.rank`, or the one after it, wrote; `check` compares outside of the times.
PhaseTimes read_phase(const SharedFileOptions& options, const Job& job, uint64_t repetition, bool check);
// A file that is not there is no error.
void remove_files(const SharedFileOptions& options, const Job& job);

}  // namespace sluice::bench
