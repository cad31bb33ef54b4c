#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/lock_modes/options.h"
#include "bench/lock_modes/simulation.h"

// What is printed, and the same as JSON. Pure.
namespace sluice::bench::lock_modes {

struct Row {
  uint64_t delay_us = 0;
  uint64_t transfer_bytes = 0;
  Scheme scheme = Scheme::kStandard;
  Outcome outcome;
};

std::string size_text(uint64_t bytes);
// The row of that place, or null.
const Row* find_row(const std::vector<Row>& rows, uint64_t delay_us, uint64_t transfer_bytes, Scheme scheme);

std::string table_text(const std::vector<Row>& rows);
// {"benchmark": "lock_modes", "aggregators", "servers", "writes", "model": {...}, "rows": [...]}; bytes are
// bytes, rates bytes a second, times microseconds. "of_file_per_process" is there when that mode was run.
std::string json_text(const Options& options, const std::vector<Row>& rows);

// The floors of --check.
struct Floor {
  uint64_t transfer_bytes = 0;
  Scheme than = Scheme::kStandard;
  double wanted = 0;  // lockahead's throughput over that of `than`
  double ratio = 0;
  bool held() const { return ratio >= wanted; }
};
inline constexpr uint64_t kFloorDelayUs = 200;
bool covers_floors(const Options& options);
std::vector<Floor> judge(const std::vector<Row>& rows);
std::string floors_text(const std::vector<Floor>& floors);

}  // namespace sluice::bench::lock_modes
