#include "bench/job/job.h"

#include <array>
#include <cerrno>
#include <cstdio>

namespace sluice::bench {

Job Job::of_this_rank() {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return {static_cast<uint32_t>(rank), static_cast<uint32_t>(ranks)};
}

void give_up(const std::string& what, const std::string& why) {
  std::fprintf(stderr, "%s: cannot %s: %s\n", program_invocation_short_name, what.c_str(), why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  __builtin_unreachable();
}

void check_mpi(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  give_up(what, std::string(text.data(), static_cast<size_t>(length)));
}

MPI_Info make_info(const Hints& hints) {
  MPI_Info info = MPI_INFO_NULL;
  if (!hints.empty()) MPI_Info_create(&info);
  for (const auto& [key, value] : hints) MPI_Info_set(info, key.c_str(), value.c_str());
  return info;
}

Spans spans_of_all(const Stamps& mine) {
  std::array<double, 4> first = {mine.open, mine.opened, mine.moved, mine.closed};
  std::array<double, 4> last = first;
  MPI_Allreduce(MPI_IN_PLACE, first.data(), 4, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, last.data(), 4, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return {last[1] - first[0], last[2] - first[1], last[3] - first[2], last[3] - first[0]};
}

}  // namespace sluice::bench
