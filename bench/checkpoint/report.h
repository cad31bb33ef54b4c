#pragma once

#include <string>
#include <vector>

#include "bench/checkpoint/options.h"
#include "bench/checkpoint/reader.h"
#include "bench/checkpoint/writer.h"

// What is printed, and the same as JSON. Pure.
namespace sluice::bench {

std::string step_line(const WrittenStep& step);
std::string step_line(const VerifiedStep& step);
std::string total_line(const std::vector<WrittenStep>& steps);
std::string total_line(const std::vector<VerifiedStep>& steps);

// {"benchmark": "checkpoint", "mode": "write" | "verify", "ranks", "size", "levels", "seed", "chunk_cells",
// "flush",
//  "path", "steps": [...], "total": {...}}; bytes are bytes, times seconds, rates bytes a second. A written
//  step has step, file, cells, cells_of_a_rank {least, most}, bytes, seconds {open, write, flush, close,
//  total} and bytes_per_second; a verified one step, file, cells, variables, bytes, seconds and
//  bytes_per_second.
std::string json_text(const Options& options, uint32_t ranks, const std::vector<WrittenStep>& steps);
std::string json_text(const Options& options, uint32_t ranks, const std::vector<VerifiedStep>& steps);

}  // namespace sluice::bench
