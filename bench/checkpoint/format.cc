#include "bench/checkpoint/format.h"

#include <cmath>
#include <cstring>

#include "base/assert.h"

namespace sluice::bench {
namespace {

// The splitmix64 finalizer: every input bit reaches every output bit.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// In [0, 1), another for each cell, step, seed and variable: a value that turns up in the wrong place is
// seen.
double noise(uint64_t seed, uint64_t step, const Cell& cell, VariableIndex index) {
  uint64_t hash = mix(seed);
  hash = mix(hash ^ step);
  hash = mix(hash ^ (uint64_t{index.value} << 32 | static_cast<uint32_t>(cell.level)));
  hash = mix(hash ^ (uint64_t{static_cast<uint32_t>(cell.i)} << 32 | static_cast<uint32_t>(cell.j)));
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

struct Wave {
  double height;
  double velocity_x;
  double velocity_y;
};

// A bump that is highest on the front, moving outwards.
Wave wave_at(const Mesh& mesh, const Cell& cell) {
  const Front& front = mesh.front();
  const auto side =
      static_cast<double>(int64_t{1} << (mesh.spec().levels - static_cast<uint32_t>(cell.level)));
  const double dx = (cell.i + 0.5) * side - static_cast<double>(front.center_x);
  const double dy = (cell.j + 0.5) * side - static_cast<double>(front.center_y);
  const double distance = std::sqrt(dx * dx + dy * dy);
  const double from_front =
      (distance - static_cast<double>(front.radius)) / static_cast<double>(4 << mesh.spec().levels);
  const double bump = 1.0 / (1.0 + from_front * from_front);
  const double inverse = distance > 0 ? 1.0 / distance : 0.0;
  return {1.0 + bump, bump * dx * inverse, bump * dy * inverse};
}

int32_t integer_value(const Cell& cell, VariableIndex index) {
  switch (index.value) {
    case 0:
      return cell.i;
    case 1:
      return cell.j;
    default:
      return cell.level;
  }
}

double real_value(const Mesh& mesh, uint64_t seed, const Cell& cell, VariableIndex index) {
  const Wave wave = wave_at(mesh, cell);
  const double grain = noise(seed, mesh.spec().step, cell, index) * 0x1p-10;
  switch (index.value) {
    case 3:
      return wave.height + grain;
    case 4:
      return wave.velocity_x + grain;
    default:
      return wave.velocity_y + grain;
  }
}

}  // namespace

std::optional<VariableIndex> variable_named(std::string_view name) {
  for (uint32_t n = 0; n < kVariables.size(); ++n) {
    if (kVariables[n].name == name) return VariableIndex(n);
  }
  return std::nullopt;
}

bool flushes_bootstrap(FlushPolicy policy) {
  return policy != FlushPolicy::kNone;
}

bool flushes_after(FlushPolicy policy, VariableIndex index) {
  if (policy == FlushPolicy::kNone) return false;
  if (policy == FlushPolicy::kVariable) return true;
  const VariableIndex next(index.value + 1);
  return next.value == kVariables.size() || variable_at(next).group != variable_at(index).group;
}

uint32_t synced_variables_during(FlushPolicy policy, VariableIndex index) {
  for (uint32_t n = index.value; n > 0; --n) {
    if (flushes_after(policy, VariableIndex(n - 1))) return n;
  }
  return 0;
}

Bootstrap bootstrap_of(const Mesh& mesh, uint64_t seed) {
  const MeshSpec& spec = mesh.spec();
  return {kFormatVersion,
          spec.size,
          spec.levels,
          spec.step,
          seed,
          mesh.cell_count(),
          static_cast<double>(spec.step) / 64.0};
}

std::vector<std::byte> variable_bytes(const Mesh& mesh, uint64_t seed, std::span<const Cell> cells,
                                      VariableIndex index) {
  const Variable& variable = variable_at(index);
  const size_t element_bytes = variable.element_bytes();
  std::vector<std::byte> bytes(cells.size() * element_bytes);
  std::byte* out = bytes.data();
  for (const Cell& cell : cells) {
    if (variable.type == ElementType::kInt32) {
      const int32_t value = integer_value(cell, index);
      std::memcpy(out, &value, sizeof(value));
    } else {
      const double value = real_value(mesh, seed, cell, index);
      std::memcpy(out, &value, sizeof(value));
    }
    out += element_bytes;
  }
  SLUICE_ASSERT(out == bytes.data() + bytes.size());
  return bytes;
}

}  // namespace sluice::bench
