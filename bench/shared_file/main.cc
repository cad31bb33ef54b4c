// shared_file: IOR's shared-file and file-per-process patterns over any MPI-IO path. See --help.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/shared_file/options.h"
#include "bench/shared_file/phase.h"

namespace sluice::bench {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

double mib_per_s(const SharedFileOptions& options, const Job& job, const PhaseTimes& times) {
  return static_cast<double>(options.bytes_of_a_rank()) * job.ranks / kMiB / times.spans.total_s;
}

void print_header(const SharedFileOptions& options, const Job& job) {
  fmt::print("api {}  file {}  ranks {}  block {}  transfer {}  segments {}  repetitions {}\n\n",
             options.api == Api::kPosix ? "POSIX" : "MPIIO", options.path, job.ranks, options.block_bytes,
             options.transfer_bytes, options.segments, options.repetitions);
  fmt::print(
      "access    bw(MiB/s)   block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter\n");
  fmt::print(
      "------    ---------   ---------- ---------  --------   --------   --------   --------   ----\n");
}

void print_line(const SharedFileOptions& options, const Job& job, const PhaseTimes& times) {
  fmt::print("{:<9} {:<11.2f} {:<10.2f} {:<10.2f} {:<10.6f} {:<10.6f} {:<10.6f} {:<10.6f} {}\n", times.access,
             mib_per_s(options, job, times), static_cast<double>(options.block_bytes) / 1024,
             static_cast<double>(options.transfer_bytes) / 1024, times.spans.open_s, times.spans.transfer_s,
             times.spans.close_s, times.spans.total_s, times.repetition);
  std::fflush(stdout);
}

void print_summary(const SharedFileOptions& options, const Job& job, const std::vector<PhaseTimes>& all) {
  for (const char* access : {"write", "read"}) {
    std::vector<double> rates;
    for (const PhaseTimes& times : all) {
      if (times.access == access) rates.push_back(mib_per_s(options, job, times));
    }
    if (rates.empty()) continue;
    std::ranges::sort(rates);
    fmt::print("{}: min {:.2f}  median {:.2f}  max {:.2f} MiB/s\n", access, rates.front(),
               rates[rates.size() / 2], rates.back());
  }
}

nlohmann::json report_of(const SharedFileOptions& options, const Job& job,
                         const std::vector<PhaseTimes>& all) {
  nlohmann::json results = nlohmann::json::array();
  for (const PhaseTimes& times : all) {
    results.push_back({{"access", times.access},
                       {"repetition", times.repetition},
                       {"mib_per_s", mib_per_s(options, job, times)},
                       {"wrong_bytes", times.wrong_bytes},
                       {"seconds", to_json(times.spans)}});
  }
  return {{"benchmark", "shared_file"},
          {"api", options.api == Api::kPosix ? "POSIX" : "MPIIO"},
          {"path", options.path},
          {"ranks", job.ranks},
          {"block", options.block_bytes},
          {"transfer", options.transfer_bytes},
          {"segments", options.segments},
          {"collective", options.collective},
          {"file_per_process", options.file_per_process},
          {"results", results}};
}

bool report_wrong(const Job& job, const PhaseTimes& times, const char* when) {
  if (times.wrong_bytes > 0 && job.rank == 0) {
    std::fprintf(stderr, "shared_file: %llu bytes differ in the %s of repetition %llu\n",
                 static_cast<unsigned long long>(times.wrong_bytes), when,
                 static_cast<unsigned long long>(times.repetition));
  }
  return times.wrong_bytes > 0;
}

int run(const Job& job, int argc, char** argv) {
  const auto parsed = parse_shared_file_options(argc, argv);
  if (!parsed) {
    if (job.rank == 0) std::fprintf(stderr, "shared_file: %s\n", parsed.error().message.c_str());
    return 2;
  }
  if (const auto* help = std::get_if<SharedFileHelp>(&*parsed)) {
    if (job.rank == 0) std::puts(help->text.c_str());
    return 0;
  }
  const auto& options = std::get<SharedFileOptions>(*parsed);
  if (job.rank == 0) print_header(options, job);
  std::vector<PhaseTimes> all;
  bool wrong = false;
  const auto keep_result = [&](const PhaseTimes& times) {
    if (job.rank == 0) print_line(options, job, times);
    all.push_back(times);
  };
  for (uint64_t i = 0; i < options.repetitions; ++i) {
    if (options.write) {
      remove_files(options, job);
      keep_result(write_phase(options, job, i));
    }
    if (options.check_write)
      wrong |= report_wrong(job, read_phase(options, job, i, /*check=*/true), "check of the write");
    if (options.read) {
      keep_result(read_phase(options, job, i, options.check_read));
      wrong |= report_wrong(job, all.back(), "read");
    }
    if (!options.keep) remove_files(options, job);
  }
  if (job.rank == 0) print_summary(options, job, all);
  const bool saved = save_report(job, options.json_path, report_of(options, job, all));
  return wrong || !saved ? 1 : 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::run_as_job(argc, argv, sluice::bench::run);
}
