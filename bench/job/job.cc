#include "bench/job/job.h"

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/os.h"

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

nlohmann::json to_json(const Spans& spans) {
  return {{"open", spans.open_s},
          {"transfer", spans.transfer_s},
          {"close", spans.close_s},
          {"total", spans.total_s}};
}

bool save_report(const Job& job, const std::string& path, const nlohmann::json& report) {
  int saved = 1;
  if (job.rank == 0 && !path.empty()) {
    const auto outcome = replace_file(path, report.dump(2) + "\n");
    if (!outcome)
      std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, outcome.error().message.c_str());
    saved = outcome ? 1 : 0;
  }
  MPI_Bcast(&saved, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return saved != 0;
}

int run_as_job(int argc, char** argv, int (*run)(const Job&, int, char**)) {
  MPI_Init(&argc, &argv);
  const int exit_code = run(Job::of_this_rank(), argc, argv);
  MPI_Finalize();
  return exit_code;
}

}  // namespace sluice::bench
