#include <mpi.h>

#include <cstdio>

#include "base/os.h"
#include "bench/checkpoint/h5.h"
#include "bench/checkpoint/options.h"
#include "bench/checkpoint/ranks.h"
#include "bench/checkpoint/reader.h"
#include "bench/checkpoint/report.h"
#include "bench/checkpoint/writer.h"

namespace sluice::bench {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

int complain(const Ranks& ranks, const Error& error, int exit_code) {
  if (ranks.first()) std::fprintf(stderr, "checkpoint: %s\n", error.message.c_str());
  return exit_code;
}

void say(const Ranks& ranks, const std::string& line) {
  if (!ranks.first()) return;
  std::puts(line.c_str());
  std::fflush(stdout);
}

Result<WrittenStep> run_step(const Ranks& ranks, const Options& options, uint64_t step, WrittenStep*) {
  return write_step(ranks, options, step);
}

Result<VerifiedStep> run_step(const Ranks& ranks, const Options& options, uint64_t step, VerifiedStep*) {
  const bool last = step + 1 == options.first_step + options.steps;
  return verify_step(ranks, options, step, last ? options.synced : std::nullopt);
}

template <class Step>
int run_steps(const Ranks& ranks, const Options& options) {
  std::vector<Step> steps;
  for (uint64_t n = 0; n < options.steps; ++n) {
    auto step = run_step(ranks, options, options.first_step + n, static_cast<Step*>(nullptr));
    if (!step) return complain(ranks, step.error(), kExitFailed);
    say(ranks, step_line(*step));
    steps.push_back(std::move(*step));
  }
  say(ranks, total_line(steps));
  Result<> saved;
  if (!options.json_path.empty() && ranks.first()) {
    saved = replace_file(options.json_path, json_text(options, ranks.size, steps));
  }
  if (saved = agree(ranks, saved); !saved) return complain(ranks, saved.error(), kExitFailed);
  return kExitDone;
}

int run(const Ranks& ranks, int argc, char** argv) {
  const auto parsed = parse_options(argc, argv);
  if (!parsed) return complain(ranks, parsed.error(), kExitUsage);
  if (const auto* help = std::get_if<HelpText>(&*parsed)) {
    say(ranks, help->text);
    return kExitDone;
  }
  const Options& options = std::get<Options>(*parsed);
  if (const auto checked = check_ranks(options, ranks.size); !checked) {
    return complain(ranks, checked.error(), kExitUsage);
  }
  h5_print_errors(options.debug);
  return options.verify ? run_steps<VerifiedStep>(ranks, options) : run_steps<WrittenStep>(ranks, options);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::h5_start_without_cleanup();
  MPI_Init(&argc, &argv);
  const int exit_code = sluice::bench::run(sluice::bench::Ranks::of(MPI_COMM_WORLD), argc, argv);
  MPI_Finalize();
  return exit_code;
}
