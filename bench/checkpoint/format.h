#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bench/checkpoint/mesh.h"

// What a checkpoint file holds, in which order it is written, and what every value must be. Pure.
//
//   /bootstrap      scalar compound {version u32, size u32, levels u32, step u64, seed u64, n_cells u64, time
//   f64} /mesh           group; i, j, level: 1-D int32, little endian, n_cells long, in cell order /state
//   group; H, U, V: 1-D float64, little endian, n_cells long, in cell order both groups     attributes step
//   (u64) and n_cells (u64) /               attributes format ("sluice-checkpoint") and version (u32)
//
// Order of writing: root attributes and /bootstrap, then the variables in the order of kVariables; a group is
// made just before its first variable, a dataset just before its data. No fill values are written.
//
// Every value is a function of (seed, step, cell) alone, made of +, -, *, / and sqrt only, which IEEE 754
// fixes to the last bit: any rank on any machine can compute what any cell must hold.
namespace sluice::bench {

inline constexpr uint32_t kFormatVersion = 1;
inline constexpr std::string_view kFormatName = "sluice-checkpoint";

enum class ElementType { kInt32, kFloat64 };

struct Variable {
  std::string_view name;
  std::string_view group;    // "/mesh"
  std::string_view dataset;  // "/mesh/i"
  ElementType type;

  constexpr size_t element_bytes() const {
    return type == ElementType::kInt32 ? sizeof(int32_t) : sizeof(double);
  }
};

inline constexpr std::array<Variable, 6> kVariables = {{
    {"i", "/mesh", "/mesh/i", ElementType::kInt32},
    {"j", "/mesh", "/mesh/j", ElementType::kInt32},
    {"level", "/mesh", "/mesh/level", ElementType::kInt32},
    {"H", "/state", "/state/H", ElementType::kFloat64},
    {"U", "/state", "/state/U", ElementType::kFloat64},
    {"V", "/state", "/state/V", ElementType::kFloat64},
}};

// A place in kVariables.
using VariableIndex = Strong<struct VariableIndexTag, uint32_t>;

constexpr const Variable& variable_at(VariableIndex index) {
  return kVariables.at(index.value);
}
std::optional<VariableIndex> variable_named(std::string_view name);

// Bytes of application data a cell has in all variables together.
inline constexpr uint64_t kCellBytes = [] {
  uint64_t bytes = 0;
  for (const Variable& variable : kVariables) bytes += variable.element_bytes();
  return bytes;
}();

// Where the writer calls H5Fflush, which ends in MPI_File_sync. The close is not a flush and always follows.
enum class FlushPolicy {
  kNone,      // nowhere
  kGroup,     // after /bootstrap, after the last variable of /mesh, after the last of /state
  kVariable,  // after /bootstrap and after every variable
};

bool flushes_bootstrap(FlushPolicy policy);
bool flushes_after(FlushPolicy policy, VariableIndex index);
// How many variables are whole in the last flushed state at the moment variable `index` is being written.
uint32_t synced_variables_during(FlushPolicy policy, VariableIndex index);

struct Bootstrap {
  uint32_t version = kFormatVersion;
  uint32_t size = 0;
  uint32_t levels = 0;
  uint64_t step = 0;
  uint64_t seed = 0;
  uint64_t n_cells = 0;
  double time = 0;

  bool operator==(const Bootstrap&) const = default;
};
Bootstrap bootstrap_of(const Mesh& mesh, uint64_t seed);

// The bytes of one variable for these cells, in native order: what is written, and what a reader must find.
std::vector<std::byte> variable_bytes(const Mesh& mesh, uint64_t seed, std::span<const Cell> cells,
                                      VariableIndex index);

}  // namespace sluice::bench
