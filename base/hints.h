#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hint_table.h"
#include "base/result.h"

// Hints as programs, variables and pools give them: which of several says, and whether it makes sense.
//
// A hint whose name begins with "sluice_" must exist and its value make sense: the error names it and the
// nearest valid one. Names and values of other libraries are advice, taken where it fits, else left alone.
// All functions are pure.
namespace sluice {

using HintList = std::vector<std::pair<std::string, std::string>>;

// The error of the first hint that begins with "sluice_" and does not exist.
std::optional<Error> find_unknown_hint(const HintList& hints);

// One list out of several, of which later ones win: each hint at most once, by its own name where another
// library's was taken, numbers of bytes as plain numbers. Advice that says nothing to Sluice is passed on.
// Within one list a hint's own name wins over its aliases, and later entries over earlier ones. Resolving the
// answer again, under the same later lists, changes nothing. A value of ROMIO's hints that ROMIO would take
// for another one is left out, for its default. kInvalidArgument for a value that a "sluice_"
// hint does not take.
Result<HintList> resolve_hints(std::span<const HintList> lists);

// Advice with a value that its hint does not take here: a sentence for each, with the values that it takes.
std::vector<std::string> unusable_advice(const HintList& hints);

// What a resolved list says to Sluice.
HintSettings settings_of(const HintList& resolved);

// A resolved or effective list, with the aliases that say the same behind each hint that has some.
HintList with_aliases(const HintList& hints);

struct HintRule {
  std::string pattern;
  HintList hints;
};

// A text of rules; hints_for_path() reads it. Patterns without ':' and ',', values without ','.
std::string print_rules(std::span<const HintRule> rules);

// The hints that a text of rules, "pattern:key=value:key=value,pattern:...", has for a path of a pool. A
// pattern is a shell pattern for the whole path or its last component. A part without "=" belongs to the
// value before it, as in cb_config_list=*:4. kInvalidArgument, with `where` (a variable's name) and the part
// that is wrong.
Result<HintList> hints_for_path(std::string_view where, std::string_view rules, const std::string& path);

}  // namespace sluice
