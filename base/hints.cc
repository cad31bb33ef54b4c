#include "base/hints.h"

#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "base/nearest.h"

namespace sluice {
namespace {

// A number of bytes: "65536", "64k", "1M", "1g".
std::optional<uint64_t> parse_bytes(std::string_view text) {
  uint64_t number = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (bad != std::errc()) return std::nullopt;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  int shift = 0;
  if (unit == "k" || unit == "K" || unit == "KiB")
    shift = 10;
  else if (unit == "m" || unit == "M" || unit == "MiB")
    shift = 20;
  else if (unit == "g" || unit == "G" || unit == "GiB")
    shift = 30;
  else if (!unit.empty())
    return std::nullopt;
  if (number > (std::numeric_limits<uint64_t>::max() >> shift)) return std::nullopt;
  return number << shift;
}

bool is_ours(std::string_view name) {
  return name.starts_with("sluice_");
}

tl::unexpected<Error> bad_value(const HintRow& row, const std::string& value, const std::string& advice) {
  return fail(ErrorCode::kInvalidArgument,
              "the hint " + std::string(row.name) + "=" + value + " is not valid; " + advice);
}

Result<std::string> take_bytes(const HintRow& row, const std::string& value) {
  const auto bytes = parse_bytes(value);
  if (bytes && std::has_single_bit(*bytes) && *bytes >= row.least && *bytes <= row.most)
    return std::to_string(*bytes);
  const uint64_t near = std::clamp(bytes ? std::bit_floor(*bytes) : row.least, row.least, row.most);
  return bad_value(row, value, "use " + hint_values(row) + "; the nearest below is " + std::to_string(near));
}

Result<std::string> take_choice(const HintRow& row, const std::string& value) {
  if (std::ranges::find(row.choices, value) != row.choices.end()) return value;
  return bad_value(row, value,
                   "the nearest value is " + std::string(nearest(value, row.choices)) + " (of " +
                       join_words(row.choices) + ")");
}

// A value as the table knows it.
Result<std::string> take(const HintRow& row, const std::string& value) {
  if (row.kind == HintKind::kBytes) return take_bytes(row, value);
  if (row.kind == HintKind::kChoice) return take_choice(row, value);
  if (row.kind != HintKind::kCount) return value;  // who acts on it judges it
  const auto count = parse_bytes(value);
  if (count && *count >= row.least && *count <= row.most) return std::to_string(*count);
  return bad_value(row, value,
                   "use a number from " + std::to_string(row.least) + " to " + std::to_string(row.most));
}

// What another library's hint says in this one's words; nothing when it says nothing here.
std::optional<std::string> take_advice(const AliasedHint& hint, const std::string& value) {
  if (!hint.alias->values.empty()) {
    const auto& values = hint.alias->values;
    const auto meant =
        std::ranges::find(values, value, &std::pair<std::string_view, std::string_view>::first);
    return meant == values.end() ? std::nullopt : std::optional<std::string>(meant->second);
  }
  std::string fitted = value;
  if (hint.row->kind == HintKind::kCount) {
    if (const auto count = parse_bytes(value)) fitted = std::to_string(std::min(*count, hint.row->most));
  }
  auto taken = take(*hint.row, fitted);
  return taken ? std::optional(std::move(*taken)) : std::nullopt;
}

// As ROMIO compares it; a number, which it reads as far as it goes, must be one to its end.
bool romio_takes(const HintRow& row, const std::string& value) {
  std::string lower = value;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (row.kind == HintKind::kChoice) return std::ranges::find(row.choices, lower) != row.choices.end();
  if (!row.number) return true;
  int64_t number = 0;
  const auto [end, bad] = std::from_chars(value.data(), value.data() + value.size(), number);
  return bad == std::errc() && end == value.data() + value.size() && number > 0;
}

// Words by which other libraries switch off what Sluice does not do anyway.
bool says_no(const std::string& value) {
  return value == "0" || value == "false" || value == "disable";
}

// The values that another library's name of a hint takes.
std::string alias_values(const AliasedHint& hint) {
  std::string text;
  for (const auto& [theirs, ours] : hint.alias->values)
    text += (text.empty() ? "" : ", ") + std::string(theirs) + " (" + std::string(ours) + ")";
  return text.empty() ? hint_values(*hint.row) : text;
}

void put(HintList& list, std::string_view name, const std::string& value) {
  const auto there = std::ranges::find(list, name, &HintList::value_type::first);
  if (there == list.end())
    list.emplace_back(name, value);
  else
    there->second = value;
}

Result<HintList> resolve_one(const HintList& list) {
  HintList resolved;
  for (const auto& [name, value] : list) {
    if (const auto hint = find_aliased_hint(name); hint.row != nullptr) {
      if (const auto said = take_advice(hint, value)) put(resolved, hint.row->name, *said);
    }
  }
  for (const auto& [name, value] : list) {
    const HintRow* row = find_hint(name);
    if (row == nullptr) {
      if (find_aliased_hint(name).row == nullptr) put(resolved, name, value);
      continue;
    }
    if (row->owner == HintOwner::kRomio) {
      if (romio_takes(*row, value)) put(resolved, name, value);
      continue;
    }
    auto taken = take(*row, value);
    if (!taken && is_ours(name)) return fail(taken.error());
    if (taken && row->kind != HintKind::kTold) put(resolved, name, *taken);
  }
  return resolved;
}

bool matches(const std::string& pattern, const std::string& path) {
  const std::string last = path.substr(path.rfind('/') + 1);
  return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0 || ::fnmatch(pattern.c_str(), last.c_str(), 0) == 0;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace

std::optional<Error> find_unknown_hint(const HintList& hints) {
  for (const auto& [name, value] : hints) {
    if (!is_ours(name) || find_hint(name) != nullptr) continue;
    std::vector<std::string_view> ours;
    for (const HintRow& row : hint_table()) {
      if (is_ours(row.name)) ours.push_back(row.name);
    }
    return Error(ErrorCode::kInvalidArgument,
                 "there is no hint " + name + "; the nearest is " + std::string(nearest(name, ours)));
  }
  return std::nullopt;
}

Result<HintList> resolve_hints(std::span<const HintList> lists) {
  HintList all;
  for (const HintList& list : lists) {
    auto resolved = resolve_one(list);
    if (!resolved) return resolved;
    for (const auto& [name, value] : *resolved) put(all, name, value);
  }
  return all;
}

std::vector<std::string> unusable_advice(const HintList& hints) {
  std::vector<std::string> sentences;
  const auto tell = [&](const std::string& name, const std::string& value, std::string values) {
    std::erase(values, '`');
    sentences.push_back("the hint " + name + "=" + value + " is passed over; it takes " + values);
  };
  for (const auto& [name, value] : hints) {
    if (const auto hint = find_aliased_hint(name); hint.row != nullptr) {
      if (!take_advice(hint, value) && !says_no(value)) tell(name, value, alias_values(hint));
      continue;
    }
    const HintRow* row = find_hint(name);
    if (row == nullptr || is_ours(name)) continue;
    const bool takes =
        row->owner == HintOwner::kRomio ? romio_takes(*row, value) : take(*row, value).has_value();
    if (!takes) tell(name, value, hint_values(*row));
  }
  return sentences;
}

HintSettings settings_of(const HintList& resolved) {
  HintSettings settings;
  for (const auto& [name, value] : resolved) {
    const HintRow* row = find_hint(name);
    if (row == nullptr) continue;
    if (const auto* text = std::get_if<std::string HintSettings::*>(&row->setting)) settings.*(*text) = value;
    if (const auto* number = std::get_if<uint64_t HintSettings::*>(&row->setting))
      settings.*(*number) = parse_bytes(value).value_or(0);
  }
  return settings;
}

HintList with_aliases(const HintList& hints) {
  HintList all;
  for (const auto& [name, value] : hints) {
    all.emplace_back(name, value);
    const HintRow* row = find_hint(name);
    if (row == nullptr) continue;
    for (const HintAlias& alias : row->aliases) {
      const auto said =
          std::ranges::find(alias.values, value, &std::pair<std::string_view, std::string_view>::second);
      if (alias.values.empty())
        all.emplace_back(alias.name, value);
      else if (said != alias.values.end())
        all.emplace_back(alias.name, said->first);
    }
  }
  return all;
}

std::string print_rules(std::span<const HintRule> rules) {
  std::string text;
  for (const HintRule& rule : rules) {
    text += (text.empty() ? "" : ",") + rule.pattern;
    for (const auto& [name, value] : rule.hints) text += ":" + name + "=" + value;
  }
  return text;
}

Result<HintList> hints_for_path(std::string_view where, std::string_view rules, const std::string& path) {
  HintList found;
  if (rules.empty()) return found;
  for (const auto& rule : split(rules, ',')) {
    const auto words = split(rule, ':');
    if (words.size() < 2 || words[0].empty()) {
      return fail(ErrorCode::kInvalidArgument, std::string(where) + " has the rule \"" + rule +
                                                   "\"; write pattern:key=value:key=value,pattern:...");
    }
    HintList of_rule;
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      if (equals == std::string::npos && i > 1 && !words[i].empty()) {
        of_rule.back().second += ":" + words[i];
      } else if (equals == 0 || equals == std::string::npos) {
        return fail(ErrorCode::kInvalidArgument,
                    std::string(where) + " has \"" + words[i] + "\" where key=value is wanted");
      } else {
        of_rule.emplace_back(words[i].substr(0, equals), words[i].substr(equals + 1));
      }
    }
    if (matches(words[0], path)) found.insert(found.end(), of_rule.begin(), of_rule.end());
  }
  return found;
}

}  // namespace sluice
