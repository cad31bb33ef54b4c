#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/hint_table.h"
#include "tools/commands/commands.h"
#include "tools/exit_code.h"

namespace sluice::tools {
namespace {

std::string quoted(std::string_view name) {
  return fmt::format("`{}`", name);
}

// "`1` lockahead, `true` lockahead": what another library's values mean.
std::string other_names(const HintRow& row) {
  std::string text;
  for (const HintAlias& alias : row.aliases) {
    text += (text.empty() ? "" : ", ") + quoted(alias.name);
    std::string values;
    for (const auto& [theirs, ours] : alias.values)
      values += fmt::format("{}{} {}", values.empty() ? "" : ", ", theirs, ours);
    if (!values.empty()) text += " (" + values + ")";
  }
  return text;
}

std::string described(const HintRow& row) {
  const std::string others = other_names(row);
  return std::string(row.meaning) + (others.empty() ? "" : "; also by " + others);
}

std::string markdown() {
  std::string text = "| hint | values | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const HintRow& row : hint_table())
    text += fmt::format("| {} | {} | {} | {} |\n", quoted(row.name), hint_values(row), row.default_value,
                        described(row));
  return text;
}

std::string plain(std::string text) {
  std::erase(text, '`');
  return text;
}

std::string for_people() {
  std::string text;
  for (const HintRow& row : hint_table())
    text += fmt::format("{}{}\n  values: {}; default: {}\n  {}\n", row.name,
                        row.owner == HintOwner::kRomio ? " (ROMIO's)" : "", plain(hint_values(row)),
                        plain(std::string(row.default_value)), plain(described(row)));
  return text;
}

nlohmann::json json() {
  auto rows = nlohmann::json::array();
  for (const HintRow& row : hint_table()) {
    nlohmann::json told{{"name", row.name},
                        {"owner", to_string(row.owner)},
                        {"kind", to_string(row.kind)},
                        {"values", plain(hint_values(row))},
                        {"default", plain(std::string(row.default_value))},
                        {"meaning", plain(std::string(row.meaning))},
                        {"aliases", nlohmann::json::array()}};
    if (row.kind == HintKind::kBytes || row.kind == HintKind::kCount) {
      told["least"] = row.least;
      told["most"] = row.most;
    }
    if (row.kind == HintKind::kChoice) told["choices"] = row.choices;
    for (const HintAlias& alias : row.aliases) {
      nlohmann::json other{{"name", alias.name}};
      for (const auto& [theirs, ours] : alias.values) other["values"][std::string(theirs)] = ours;
      told["aliases"].push_back(other);
    }
    rows.push_back(told);
  }
  return rows;
}

}  // namespace

int run_hints(const HintsOptions& options) {
  const std::string text = options.json       ? json().dump(2) + "\n"
                           : options.markdown ? markdown()
                                              : for_people();
  std::fputs(text.c_str(), stdout);
  return kOk;
}

}  // namespace sluice::tools
