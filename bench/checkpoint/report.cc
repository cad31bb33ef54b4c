#include "bench/checkpoint/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace sluice::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1024.0 * 1024.0;

double rate(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0.0;
}

std::string amount(uint64_t bytes, double seconds) {
  return fmt::format("{:.2f} MiB, {:.1f} MiB/s", static_cast<double>(bytes) / kMiB,
                     rate(bytes, seconds) / kMiB);
}

std::string times(const StepSeconds& seconds) {
  return fmt::format("open {:.4f} s, write {:.4f} s, flush {:.4f} s, close {:.4f} s", seconds.open,
                     seconds.write, seconds.flush, seconds.close);
}

Json times_json(const StepSeconds& seconds) {
  return {{"open", seconds.open},
          {"write", seconds.write},
          {"flush", seconds.flush},
          {"close", seconds.close},
          {"total", seconds.total()}};
}

WrittenStep sum(const std::vector<WrittenStep>& steps) {
  WrittenStep total;
  for (const WrittenStep& step : steps) {
    total.cells += step.cells;
    total.bytes += step.bytes;
    total.seconds.open += step.seconds.open;
    total.seconds.write += step.seconds.write;
    total.seconds.flush += step.seconds.flush;
    total.seconds.close += step.seconds.close;
  }
  return total;
}

VerifiedStep sum(const std::vector<VerifiedStep>& steps) {
  VerifiedStep total;
  for (const VerifiedStep& step : steps) {
    total.cells += step.cells;
    total.variables += step.variables;
    total.bytes += step.bytes;
    total.seconds += step.seconds;
  }
  return total;
}

Json head(const Options& options, uint32_t ranks) {
  return {{"benchmark", "checkpoint"},
          {"mode", options.verify ? "verify" : "write"},
          {"ranks", ranks},
          {"size", options.size},
          {"levels", options.levels},
          {"seed", options.seed},
          {"chunk_cells", options.chunk_cells},
          {"flush", to_string(options.flush)},
          {"path", options.path_pattern}};
}

Json amounts(const WrittenStep& step) {
  return {{"cells", step.cells},
          {"bytes", step.bytes},
          {"seconds", times_json(step.seconds)},
          {"bytes_per_second", rate(step.bytes, step.seconds.total())}};
}

Json amounts(const VerifiedStep& step) {
  return {{"cells", step.cells},
          {"variables", step.variables},
          {"bytes", step.bytes},
          {"seconds", step.seconds},
          {"bytes_per_second", rate(step.bytes, step.seconds)}};
}

void add_shares(const WrittenStep& step, Json& row) {
  row["cells_of_a_rank"] = {{"least", step.least_cells_of_a_rank}, {"most", step.most_cells_of_a_rank}};
}
void add_shares(const VerifiedStep&, Json&) {}

template <class Step>
std::string whole_text(const Options& options, uint32_t ranks, const std::vector<Step>& steps) {
  Json document = head(options, ranks);
  document["steps"] = Json::array();
  for (const Step& step : steps) {
    Json row = {{"step", step.step}, {"file", step.path}};
    row.update(amounts(step));
    add_shares(step, row);
    document["steps"].push_back(std::move(row));
  }
  document["total"] = amounts(sum(steps));
  // Paths are whatever bytes the user gave.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string step_line(const WrittenStep& step) {
  return fmt::format("step {}: {}: {} cells ({} to {} a rank), {}; {}", step.step, step.path, step.cells,
                     step.least_cells_of_a_rank, step.most_cells_of_a_rank,
                     amount(step.bytes, step.seconds.total()), times(step.seconds));
}

std::string step_line(const VerifiedStep& step) {
  return fmt::format("step {}: {}: {} of {} variables, {} cells, {}; verified", step.step, step.path,
                     step.variables, kVariables.size(), step.cells, amount(step.bytes, step.seconds));
}

std::string total_line(const std::vector<WrittenStep>& steps) {
  const WrittenStep total = sum(steps);
  return fmt::format("total: {} steps, {} cells, {}; {}", steps.size(), total.cells,
                     amount(total.bytes, total.seconds.total()), times(total.seconds));
}

std::string total_line(const std::vector<VerifiedStep>& steps) {
  const VerifiedStep total = sum(steps);
  return fmt::format("total: {} steps, {} variables, {} cells, {}; verified", steps.size(), total.variables,
                     total.cells, amount(total.bytes, total.seconds));
}

std::string json_text(const Options& options, uint32_t ranks, const std::vector<WrittenStep>& steps) {
  return whole_text(options, ranks, steps);
}

std::string json_text(const Options& options, uint32_t ranks, const std::vector<VerifiedStep>& steps) {
  return whole_text(options, ranks, steps);
}

}  // namespace sluice::bench
