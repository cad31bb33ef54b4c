#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

// Amounts of bytes as people write and read them. Pure.
namespace sluice::tools {

// "512", "64K", "1.5G", "2GiB": powers of 1024. kInvalidArgument for anything else, also for what does not
// fit 64 bits.
Result<uint64_t> parse_bytes(std::string_view text);

// "0 B", "1023 B", "1.5 GiB".
std::string print_bytes(uint64_t bytes);

}  // namespace sluice::tools
