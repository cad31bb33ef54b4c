#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice::bench {

using Hints = std::vector<std::pair<std::string, std::string>>;

// From the command line's KEY=VALUE; kInvalidArgument for anything else.
inline Result<Hints> parse_hints(const std::vector<std::string>& texts) {
  Hints hints;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
      return fail(ErrorCode::kInvalidArgument, fmt::format("--hint: '{}' is not KEY=VALUE", text));
    hints.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return hints;
}

}  // namespace sluice::bench
