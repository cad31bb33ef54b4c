#pragma once

#include <array>
#include <optional>
#include <string>

#include "base/result.h"
#include "bench/checkpoint/format.h"
#include "bench/checkpoint/options.h"

// What the variables of a step's file were found to be, and whether that is what was asked for. Pure.
namespace sluice::bench {

enum class Shows {
  kAbsent,     // no such dataset
  kUnwritten,  // a dataset of the right shape that is all zero bytes
  kWhole,      // every cell as written
  kDiffers,    // anything else
};

struct Finding {
  Shows shows = Shows::kAbsent;
  std::string detail;  // for kDiffers: "dataset /state/H differs at cell 17: ..."
};

using Findings = std::array<Finding, kVariables.size()>;

// Variables that are whole, counted from the first.
uint32_t whole_prefix(const Findings& findings);

// Without `synced`: all must be whole. With it: exactly the first N (or, without N, some prefix) must be
// whole and the rest absent or unwritten. Answers the number of variables shown, or kCorrupt.
Result<uint32_t> judge(const std::string& path, const Findings& findings,
                       const std::optional<SyncedState>& synced);

}  // namespace sluice::bench
