#include "bench/checkpoint/verdict.h"

#include <fmt/format.h>

namespace sluice::bench {
namespace {

std::string describe(const Finding& finding, const Variable& variable) {
  switch (finding.shows) {
    case Shows::kAbsent:
      return fmt::format("dataset {} is missing", variable.dataset);
    case Shows::kUnwritten:
      return fmt::format("dataset {} was never written", variable.dataset);
    case Shows::kWhole:
      return fmt::format("dataset {} is whole", variable.dataset);
    case Shows::kDiffers:
      return finding.detail;
  }
  return finding.detail;
}

Error corrupt(const std::string& path, const std::string& what) {
  return {ErrorCode::kCorrupt, fmt::format("{}: {}", path, what)};
}

}  // namespace

uint32_t whole_prefix(const Findings& findings) {
  uint32_t count = 0;
  while (count < findings.size() && findings[count].shows == Shows::kWhole) ++count;
  return count;
}

Result<uint32_t> judge(const std::string& path, const Findings& findings,
                       const std::optional<SyncedState>& synced) {
  const uint32_t whole = whole_prefix(findings);
  const uint32_t wanted =
      synced ? synced->variables.value_or(whole) : static_cast<uint32_t>(kVariables.size());
  if (whole < wanted) {
    const std::string what = describe(findings[whole], kVariables[whole]);
    if (!synced) return fail(corrupt(path, what));
    return fail(corrupt(path, fmt::format("{}; the first {} variables were synced", what, wanted)));
  }
  for (uint32_t n = wanted; n < findings.size(); ++n) {
    if (findings[n].shows == Shows::kAbsent || findings[n].shows == Shows::kUnwritten) continue;
    return fail(corrupt(path, fmt::format("{}, but only the first {} variables were synced",
                                          describe(findings[n], kVariables[n]), wanted)));
  }
  return wanted;
}

}  // namespace sluice::bench
