#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

// Hints of an MPI file: which there are, and what their values mean.
//
// A hint whose name begins with "sluice_" must exist and its value make sense: the error names it and the
// nearest valid one. Hints of other libraries are advice, taken where it fits ("striping_unit", Cray's and
// ROMIO's lock hints), else left alone. All functions are pure.
namespace sluice::adio {

using HintList = std::vector<std::pair<std::string, std::string>>;

// What a file's open acts on; empty and 0: the pool's default.
struct Hints {
  std::string object_class;
  uint64_t chunk_bytes = 0;
  std::string lock_mode;
  uint32_t lockahead_extents = 0;

  bool operator==(const Hints&) const = default;
};

// The error of the first hint that begins with "sluice_" and does not exist.
std::optional<Error> find_unknown_hint(const HintList& hints);

// kInvalidArgument for a value that a hint of Sluice's does not take. Later entries win over earlier ones of
// the same name.
Result<Hints> parse_hints(const HintList& hints);

// The hints that SLUICE_HINTS ("pattern:key=value:key=value,pattern:...") has for a path of a pool. A pattern
// is a shell pattern for the whole path or its last component. kInvalidArgument, with the part that is wrong.
Result<HintList> hints_for_path(std::string_view text, const std::string& path);

}  // namespace sluice::adio
