#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// The hints of an MPI file, each once: what checks and parses them, what `sluice hints` prints and what the
// README shows comes from this table. Pure.
namespace sluice {

// What a file's open acts on; empty and 0: nothing was said.
struct HintSettings {
  std::string object_class;
  uint64_t chunk_bytes = 0;
  uint64_t striping_factor = 0;
  std::string lock_mode;
  uint64_t lockahead_extents = 0;

  bool operator==(const HintSettings&) const = default;
};

enum class HintKind {
  kBytes,   // a number of bytes, a power of two from `least` to `most`; "64k", "1M" and the like are taken
  kCount,   // a number from `least` to `most`
  kChoice,  // one of `choices`
  kText,    // `form` says which; whoever acts on it judges it
  kTold,    // told by MPI_File_get_info only; what a program gives back is not looked at
};

enum class HintOwner { kSluice, kMpi, kRomio };

// Another library's name for a hint.
struct HintAlias {
  std::string_view name;
  // Its values in the hint's own words; empty: they are the same. One that is not here says nothing.
  std::vector<std::pair<std::string_view, std::string_view>> values;
};

struct HintRow {
  std::string_view name;
  HintOwner owner = HintOwner::kSluice;
  HintKind kind = HintKind::kText;
  uint64_t least = 0;
  uint64_t most = 0;
  std::vector<std::string_view> choices = {};
  std::string_view form = {};           // of kText
  bool number = false;                  // kText: a whole number above 0
  std::string_view default_value = {};  // when nobody says anything
  std::string_view meaning = {};        // what Sluice does with it
  std::vector<HintAlias> aliases = {};
  // Where its value goes; nowhere for those that are only checked, told, or ROMIO's.
  std::variant<std::monostate, std::string HintSettings::*, uint64_t HintSettings::*> setting = {};
};

std::span<const HintRow> hint_table();

// By its own name, or null.
const HintRow* find_hint(std::string_view name);
struct AliasedHint {
  const HintRow* row = nullptr;
  const HintAlias* alias = nullptr;
};
// By another library's name; null members when it is none.
AliasedHint find_aliased_hint(std::string_view name);

std::string_view to_string(HintKind kind);
std::string_view to_string(HintOwner owner);
// The values that a hint takes, for people.
std::string hint_values(const HintRow& row);
std::string join_words(std::span<const std::string_view> words);

}  // namespace sluice
