#pragma once

#include <string_view>
#include <vector>

namespace sluice {

// The candidate with the least edits to `word`; of several the first. Pure. Empty when there are no
// candidates.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace sluice
