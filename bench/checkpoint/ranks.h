#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

#ifndef MPICH_VERSION
#error "this benchmark is built with MPICH's mpi.h; another MPI's was found first"
#endif

namespace sluice::bench {

// A communicator and this process's place in it. Borrowed: the communicator outlives it. One thread.
struct Ranks {
  MPI_Comm comm = MPI_COMM_NULL;
  uint32_t rank = 0;
  uint32_t size = 1;

  static Ranks of(MPI_Comm comm);
  bool first() const { return rank == 0; }
};

// Collective. Success if every rank succeeded; otherwise the error of the lowest rank that failed, on every
// rank, so that no rank goes on into a collective call that another will never join.
//
// Stock MPI-IO fails a collective write on some ranks only, and HDF5 then leaves the others waiting inside it
// for ever: a rank with an error that waits kAgreementLimit_s for them prints it and ends the job with
// MPI_Abort, exit code 1.
inline constexpr double kAgreementLimit_s = 10.0;
Result<> agree(const Ranks& ranks, const Result<>& mine);

template <class T>
Result<T> agree_on(const Ranks& ranks, Result<T> mine) {
  const Result<> agreed = agree(ranks, mine ? Result<>() : Result<>(fail(mine.error())));
  if (!agreed) return fail(agreed.error());
  return mine;
}

// Collective.
uint64_t sum_over(const Ranks& ranks, uint64_t mine);
uint64_t min_over(const Ranks& ranks, uint64_t mine);
uint64_t max_over(const Ranks& ranks, uint64_t mine);
void max_over(const Ranks& ranks, std::span<double> values);

// Owns an MPI_Info with these pairs. Move-only; must die before MPI_Finalize.
class HintInfo {
 public:
  explicit HintInfo(const std::vector<std::pair<std::string, std::string>>& hints);
  HintInfo(const HintInfo&) = delete;
  HintInfo& operator=(const HintInfo&) = delete;
  ~HintInfo();

  MPI_Info get() const { return info_; }

 private:
  MPI_Info info_ = MPI_INFO_NULL;
};

// Collective: is there anything to open at `path`? False when the file is missing or holds no byte.
Result<bool> file_has_bytes(const Ranks& ranks, const std::string& path, MPI_Info info);

}  // namespace sluice::bench
