#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "server/pool.h"

namespace sluice::server {

struct CommandLine {
  std::string pool;
  PoolRequest request;
  bool foreground = false;  // log to stderr instead of POOL/sluiced.log
  bool accept_lost_hot_tier = false;
  bool existing = false;         // a directory without a pool is an error
  bool private_service = false;  // see ServiceOptions
  bool help = false;
  int ready_fd = -1;  // see server/main.cc
};

// kInvalidArgument with what is wrong.
Result<CommandLine> parse_command_line(int argc, char** argv);

extern const char* const kUsage;

}  // namespace sluice::server
