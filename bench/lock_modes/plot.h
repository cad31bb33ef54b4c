#pragma once

#include <string>
#include <vector>

#include "bench/lock_modes/report.h"

namespace sluice::bench::lock_modes {

// Throughput over the size of a transfer as SVG, a panel for each delay, a line for each mode, with a title
// that names aggregators and servers. Pure.
std::string svg_text(const Options& options, const std::vector<Row>& rows);

}  // namespace sluice::bench::lock_modes
