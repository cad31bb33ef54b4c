#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/pool.h"

// The text of pool.toml. Pure.
namespace sluice::server {

// Paths inside the pool are written relative to it, so that a pool may be moved.
std::string print_pool_file(const PoolConfig& config, const PoolPaths& paths);

// kInvalidArgument with the line, or the key, and the reason. A newer format is kUnsupported.
Result<PoolConfig> parse_pool_file(std::string_view text, const PoolPaths& paths);

}  // namespace sluice::server
