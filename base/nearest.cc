#include "base/nearest.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace sluice {

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_edits = std::numeric_limits<size_t>::max();
  for (const auto candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < word.size(); ++i) {
      size_t diagonal = row[0]++;
      for (size_t j = 0; j < candidate.size(); ++j) {
        const size_t replaced = diagonal + (word[i] == candidate[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_edits) {
      best_edits = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace sluice
