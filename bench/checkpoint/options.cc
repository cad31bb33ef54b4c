#include "bench/checkpoint/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <map>
#include <string_view>

namespace sluice::bench {
namespace {

// HDF5 holds a chunk to less than 4 GiB; this is 2 GiB of float64.
constexpr uint64_t kMaxChunkCells = uint64_t{1} << 28;
constexpr uint64_t kMaxSteps = 1'000'000;
constexpr std::string_view kStepPlaceholders[] = {"%d", "{step}"};

constexpr const char* kDescription =
    "Writes the checkpoints of a cell-based adaptive mesh with parallel HDF5, one file a step, and verifies "
    "them.";

constexpr const char* kFooter = R"(
A step's file holds /bootstrap, then /mesh/{i,j,level}, then /state/{H,U,V}, each written by one collective call. The
number of cells changes every step, and the ranks' shares are uneven. Every value is a function of seed, step and cell,
so any number of ranks can verify.

H5Fflush, which ends in MPI_File_sync, is called
  --flush group     after /bootstrap, after /mesh/level and after /state/V (the default)
  --flush variable  after /bootstrap and after each of the six variables
  --flush none      nowhere; H5Fclose alone makes the step visible

Exit code: 0 done or verified, 1 an I/O error or bytes that differ, 2 options that make no sense.

Examples:
  mpiexec -n 4 checkpoint --path /tmp/ckpt.%d.h5 --size 256 --steps 5
  mpiexec -n 3 checkpoint --path /tmp/ckpt.%d.h5 --size 256 --steps 5 --verify
  mpiexec -n 4 checkpoint --path sluice:/ckpt.{step}.h5 --flush variable --json result.json
Crash tests: rank 1 dies in the middle of H of step 2; afterwards that file must show just i, j and level:
  mpiexec -n 4 checkpoint --path sluice:/ckpt.%d.h5 --steps 3 --kill-self 2:H:1
  mpiexec -n 2 checkpoint --path sluice:/ckpt.%d.h5 --steps 3 --verify --synced-variables 3)";

// The texts that need more than CLI11's own conversions.
struct RawOptions {
  std::vector<std::string> hints;
  std::string synced;
  std::string kill_self;
  std::string pause_at;
  std::string pause_fifo;
};

void declare_run_options(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("--path", options.path_pattern,
                 "File of a step; %d or {step} stands for the step. Any MPI-IO path")
      ->required()
      ->type_name("PATTERN");
  app.add_option("--size", options.size, "Coarse cells along a side: a power of two, 128 to 2048")
      ->capture_default_str();
  app.add_option("--levels", options.levels, "How often a cell near the front is split, 1 to 4")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Number of steps")->capture_default_str();
  app.add_option("--first-step", options.first_step, "The first step")->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the values")->capture_default_str();
  app.add_option("--chunk", options.chunk_cells, "Cells in a chunk of a dataset; 0: contiguous")
      ->capture_default_str();
  const std::map<std::string, FlushPolicy> policies = {
      {"none", FlushPolicy::kNone}, {"group", FlushPolicy::kGroup}, {"variable", FlushPolicy::kVariable}};
  app.add_option("--flush", options.flush, "Where to flush: none, group or variable (see below) [group]")
      ->transform(CLI::CheckedTransformer(policies).description(""))
      ->type_name("WHERE");
  app.add_option("--hint", raw.hints, "MPI-IO hint; may be given several times")
      ->type_name("KEY=VALUE")
      ->take_all();
  app.add_option("--json", options.json_path, "Write the results to this file too")->type_name("FILE");
  app.add_flag("--debug", options.debug, "Let HDF5 print its error stack");
}

void declare_check_options(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_flag(
      "--verify", options.verify,
      "Read the steps back and compare bit for bit; needs the size, levels, steps and seed of the writer");
  app.add_option(
         "--synced-variables", raw.synced,
         "With --verify: the last step must hold exactly its first N variables, the others absent or "
         "unwritten (a missing or empty file holds 0); any: some number of whole variables and no more")
      ->type_name("N|any");
  app.add_option("--kill-self", raw.kill_self,
                 "In the middle of that variable, when every rank has written the first half of its cells, "
                 "that rank sends itself SIGKILL; the others carry on")
      ->type_name("STEP:VARIABLE:RANK");
  app.add_option("--pause-at", raw.pause_at,
                 "At that same place print a line PAUSED with every rank's pid, and wait for a byte from "
                 "--pause-fifo")
      ->type_name("STEP:VARIABLE");
  app.add_option("--pause-fifo", raw.pause_fifo, "The FIFO rank 0 reads when paused")->type_name("FIFO");
}

Error usage(const std::string& message) {
  return {ErrorCode::kInvalidArgument, message + "; see checkpoint --help"};
}

std::vector<std::string_view> split_at_colons(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t colon = text.find(':', begin);
    parts.push_back(text.substr(begin, colon - begin));
    if (colon == std::string_view::npos) return parts;
    begin = colon + 1;
  }
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<FaultPoint> parse_fault_point(const Options& options, std::string_view option,
                                     std::string_view step_text, std::string_view variable_text) {
  const auto step = parse_number<uint64_t>(step_text);
  if (!step || *step < options.first_step || *step - options.first_step >= options.steps) {
    return fail(usage(fmt::format("{}: step '{}' is not one of {} to {}", option, step_text,
                                  options.first_step, options.first_step + options.steps - 1)));
  }
  const auto variable = variable_named(variable_text);
  if (!variable) {
    return fail(
        usage(fmt::format("{}: variable '{}' is not one of i, j, level, H, U, V", option, variable_text)));
  }
  return FaultPoint{*step, *variable};
}

Result<> parse_kill_self(const std::string& text, Options& options) {
  if (text.empty()) return {};
  const auto parts = split_at_colons(text);
  if (parts.size() != 3) return fail(usage(fmt::format("--kill-self: '{}' is not STEP:VARIABLE:RANK", text)));
  const auto at = parse_fault_point(options, "--kill-self", parts[0], parts[1]);
  if (!at) return fail(at.error());
  const auto rank = parse_number<uint32_t>(parts[2]);
  if (!rank) return fail(usage(fmt::format("--kill-self: '{}' is not a rank", parts[2])));
  options.kill_self = KillSelf{*at, *rank};
  return {};
}

Result<> parse_pause(const RawOptions& raw, Options& options) {
  if (raw.pause_at.empty() != raw.pause_fifo.empty()) {
    return fail(usage("--pause-at and --pause-fifo need each other"));
  }
  if (raw.pause_at.empty()) return {};
  const auto parts = split_at_colons(raw.pause_at);
  if (parts.size() != 2)
    return fail(usage(fmt::format("--pause-at: '{}' is not STEP:VARIABLE", raw.pause_at)));
  const auto at = parse_fault_point(options, "--pause-at", parts[0], parts[1]);
  if (!at) return fail(at.error());
  options.pause_at = PauseAt{*at, raw.pause_fifo};
  return {};
}

Result<> parse_synced(const std::string& text, Options& options) {
  if (text.empty()) return {};
  if (!options.verify) return fail(usage("--synced-variables goes with --verify"));
  if (text == "any") {
    options.synced = SyncedState{};
    return {};
  }
  const auto count = parse_number<uint32_t>(text);
  if (!count || *count > kVariables.size()) {
    return fail(
        usage(fmt::format("--synced-variables: '{}' is neither 0 to {} nor any", text, kVariables.size())));
  }
  options.synced = SyncedState{*count};
  return {};
}

Result<> parse_hints(const std::vector<std::string>& texts, Options& options) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
      return fail(usage(fmt::format("--hint: '{}' is not KEY=VALUE", text)));
    }
    options.hints.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return {};
}

Result<> check_numbers(const Options& options) {
  if (!MeshSpec{options.size, kMinLevels, 0}.valid()) {
    return fail(usage(fmt::format("--size: {} is not a power of two from {} to {}", options.size,
                                  kMinMeshSize, kMaxMeshSize)));
  }
  if (!options.mesh_at(0).valid()) {
    return fail(
        usage(fmt::format("--levels: {} is not from {} to {}", options.levels, kMinLevels, kMaxLevels)));
  }
  if (options.steps == 0 || options.steps > kMaxSteps) {
    return fail(usage(fmt::format("--steps: {} is not from 1 to {}", options.steps, kMaxSteps)));
  }
  if (options.first_step > UINT64_MAX - kMaxSteps) {
    return fail(usage(fmt::format("--first-step: {} is too large", options.first_step)));
  }
  if (options.chunk_cells > kMaxChunkCells) {
    return fail(usage(fmt::format("--chunk: {} is more than {} cells", options.chunk_cells, kMaxChunkCells)));
  }
  if (options.steps > 1 && options.path_at(0) == options.path_at(1)) {
    return fail(
        usage(fmt::format("--path: '{}' has neither %d nor {{step}}, so all {} steps would share one file",
                          options.path_pattern, options.steps)));
  }
  return {};
}

Result<> check_together(const Options& options) {
  if (options.verify && (options.kill_self || options.pause_at)) {
    return fail(usage("--kill-self and --pause-at are for writing, not for --verify"));
  }
  if (options.kill_self && options.pause_at)
    return fail(usage("--kill-self and --pause-at exclude each other"));
  return {};
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

std::string Options::path_at(uint64_t step) const {
  std::string path;
  const std::string number = std::to_string(step);
  for (size_t at = 0; at < path_pattern.size();) {
    size_t matched = 0;
    for (const std::string_view placeholder : kStepPlaceholders) {
      if (path_pattern.compare(at, placeholder.size(), placeholder) == 0) matched = placeholder.size();
    }
    path += matched > 0 ? number : path_pattern.substr(at, 1);
    at += std::max<size_t>(matched, 1);
  }
  return path;
}

Result<std::variant<Options, HelpText>> parse_options(int argc, const char* const* argv) {
  Options options;
  RawOptions raw;
  CLI::App app(kDescription, "checkpoint");
  app.footer(kFooter);
  declare_run_options(app, options, raw);
  declare_check_options(app, options, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return HelpText{app.help()};
  } catch (const CLI::Error& error) {
    return fail(usage(first_line(error.what())));
  }
  for (const Result<>& checked :
       {check_numbers(options), parse_hints(raw.hints, options), parse_synced(raw.synced, options),
        parse_kill_self(raw.kill_self, options), parse_pause(raw, options), check_together(options)}) {
    if (!checked) return fail(checked.error());
  }
  return options;
}

Result<> check_ranks(const Options& options, uint32_t ranks) {
  if (options.kill_self && options.kill_self->rank >= ranks) {
    return fail(
        usage(fmt::format("--kill-self: rank {} is not one of 0 to {}", options.kill_self->rank, ranks - 1)));
  }
  return {};
}

const char* to_string(FlushPolicy policy) {
  switch (policy) {
    case FlushPolicy::kNone:
      return "none";
    case FlushPolicy::kGroup:
      return "group";
    case FlushPolicy::kVariable:
      return "variable";
  }
  return "none";
}

}  // namespace sluice::bench
