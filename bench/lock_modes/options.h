#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/lock_modes/simulation.h"

namespace sluice::bench::lock_modes {

struct Options {
  uint32_t aggregators = 8;
  uint32_t servers = 2;
  uint64_t writes = 256;
  std::vector<uint64_t> sizes_bytes = {64 << 10, 256 << 10, 1 << 20, 8 << 20};
  std::vector<uint64_t> delays_us = {0, 50, 200};
  std::vector<Scheme> schemes = {std::begin(kSchemes), std::end(kSchemes)};
  Model model;
  std::string json_path;
  std::string svg_path;
  bool check = false;
};

inline constexpr uint32_t kMaxAggregators = 100'000;

// What the command line asks for, or the exit code when that is already all: --help, or a word that makes no
// sense, of which is said on stderr.
struct Parsed {
  Options options;
  std::optional<int> exit_code;
};
Parsed parse_options(int argc, const char* const* argv);

// A size as people write it, "64k", "1m"; kInvalidArgument otherwise.
Result<uint64_t> parse_size(const std::string& text);

}  // namespace sluice::bench::lock_modes
