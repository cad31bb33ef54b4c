#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "bench/checkpoint/format.h"

// What the user asked for. Parsing is pure: it prints nothing and touches no file, so that every rank can do
// it and one can speak.
namespace sluice::bench {

// In the middle of writing this variable of this step.
struct FaultPoint {
  uint64_t step = 0;
  VariableIndex variable;
};

struct KillSelf {
  FaultPoint at;
  uint32_t rank = 0;
};

struct PauseAt {
  FaultPoint at;
  std::string fifo;
};

// What --synced-variables wants of the last step.
struct SyncedState {
  std::optional<uint32_t> variables;  // nothing: any number, so long as it is a prefix
};

struct Options {
  std::string path_pattern;
  uint32_t size = kMinMeshSize;
  uint32_t levels = 2;
  uint64_t first_step = 0;
  uint64_t steps = 4;
  uint64_t seed = 1;
  uint64_t chunk_cells = 0;  // 0: contiguous datasets
  FlushPolicy flush = FlushPolicy::kGroup;
  std::vector<std::pair<std::string, std::string>> hints;
  std::string json_path;
  bool debug = false;

  bool verify = false;
  std::optional<SyncedState> synced;

  std::optional<KillSelf> kill_self;
  std::optional<PauseAt> pause_at;

  MeshSpec mesh_at(uint64_t step) const { return {size, levels, step}; }
  std::string path_at(uint64_t step) const;
};

struct HelpText {
  std::string text;
};

// kInvalidArgument for anything that makes no sense, in one line.
Result<std::variant<Options, HelpText>> parse_options(int argc, const char* const* argv);

// Checks what needs the number of ranks.
Result<> check_ranks(const Options& options, uint32_t ranks);

const char* to_string(FlushPolicy policy);

}  // namespace sluice::bench
