#include "server/pool_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace sluice::server {
namespace fs = std::filesystem;
namespace {

std::string relative_to_pool(const fs::path& path, const PoolPaths& paths) {
  const fs::path relative = path.lexically_relative(paths.pool);
  return relative.empty() || *relative.begin() == ".." ? path.string() : relative.string();
}

tl::unexpected<Error> bad(std::string_view key, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' {}; mend that line, or restore the file", key, why));
}

Result<uint64_t> parse_id(const std::optional<std::string>& text) {
  uint64_t id = 0;
  if (!text) return bad("pool_id", "is missing");
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), id, 16);
  if (error != std::errc{} || end != text->data() + text->size() || id == 0)
    return bad("pool_id", "is not a hexadecimal number");
  return id;
}

Result<std::vector<fs::path>> parse_targets(const toml::array* list, const PoolPaths& paths) {
  if (list == nullptr || list->empty()) return bad("targets", "is not a list of directories");
  if (list->size() > kMaxTargets)
    return bad("targets", fmt::format("names more than {} directories", kMaxTargets));
  std::vector<fs::path> targets;
  for (const auto& item : *list) {
    const auto path = item.value<std::string>();
    if (!path || path->empty()) return bad("targets", "holds something that is not the path of a directory");
    targets.push_back(
        (paths.pool / *path).lexically_normal());  // an absolute path replaces what is before it
    for (size_t i = 0; i + 1 < targets.size(); ++i)
      if (targets[i] == targets.back()) return bad("targets", fmt::format("names {} twice", *path));
  }
  return targets;
}

Result<std::string> value_text(const std::string& where, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* boolean = node.as_boolean()) return std::string(boolean->get() ? "true" : "false");
  return bad(where, "is no text, number or boolean");
}

// Only what Sluice itself acts on: ROMIO has read its own hints before the pool is asked for anything.
Result<> check_hint(const std::string& where, const std::string& name, const std::string& value,
                    size_t targets) {
  const HintList one = {{name, value}};
  if (auto unknown = find_unknown_hint(one)) return bad(where, unknown->message);
  const HintRow* row = find_hint(name);
  if (row == nullptr && find_aliased_hint(name).row == nullptr)
    return bad(where, "is no hint that Sluice knows (`sluice hints` lists them)");
  if (row != nullptr && row->owner == HintOwner::kRomio)
    return bad(
        where,
        "cannot be a pool's, since programs act on it before they ask the pool: it is for SLUICE_HINTS, or "
        "the program's MPI_Info");
  auto resolved = resolve_hints({&one, 1});
  if (!resolved) return bad(where, resolved.error().message);
  if (resolved->empty()) return bad(where, fmt::format("has the value {}, which means nothing", value));
  if (value.find_first_of(",") != std::string::npos) return bad(where, "has a comma in its value");
  if (const std::string name_of_class = settings_of(*resolved).object_class; !name_of_class.empty()) {
    auto object_class = storage::ObjectClass::parse(name_of_class);
    auto fits = object_class ? object_class->resolve(targets) : object_class;
    if (!fits) return bad(where, fits.error().message);
  }
  return {};
}

Result<std::vector<HintRule>> parse_hints(const toml::node* node, size_t targets) {
  std::vector<HintRule> rules;
  if (node == nullptr) return rules;
  if (!node->is_table()) return bad("hints", "is no table");
  std::vector<std::pair<uint32_t, HintRule>> by_line;
  for (const auto& [key, of_pattern] : *node->as_table()) {
    const std::string pattern(key.str());
    const std::string where = fmt::format("hints.\"{}\"", pattern);
    if (pattern.empty() || pattern.find_first_of(":,") != std::string::npos)
      return bad(where, "is no pattern for paths; one without ':' and ',' is wanted");
    const toml::table* pairs = of_pattern.as_table();
    if (pairs == nullptr || pairs->empty()) return bad(where, "is no table { hint = value, ... }");
    HintRule rule{pattern, {}};
    for (const auto& [name, value] : *pairs) {
      const std::string hint = fmt::format("{}.{}", where, name.str());
      auto text = value_text(hint, value);
      if (!text) return fail(text.error());
      if (auto ok = check_hint(hint, std::string(name.str()), *text, targets); !ok) return fail(ok.error());
      rule.hints.emplace_back(name.str(), *text);
    }
    by_line.emplace_back(key.source().begin.line, std::move(rule));
  }
  std::ranges::stable_sort(by_line, {}, &std::pair<uint32_t, HintRule>::first);
  for (auto& [line, rule] : by_line) rules.push_back(std::move(rule));
  return rules;
}

void print_hints(std::ostream& out, const std::vector<HintRule>& rules) {
  if (rules.empty()) return;
  out << "\n[hints]\n";
  for (const HintRule& rule : rules) {
    toml::table values;
    for (const auto& [name, value] : rule.hints) values.insert_or_assign(name, value);
    values.is_inline(true);
    toml::table line;
    line.insert_or_assign(rule.pattern, std::move(values));
    out << line << "\n";
  }
}

}  // namespace

std::string print_pool_file(const PoolConfig& config, const PoolPaths& paths) {
  toml::array targets;
  for (const fs::path& target : config.targets) targets.push_back(relative_to_pool(target, paths));
  const toml::table table{
      {"format", kPoolFormat},
      {"pool_id", fmt::format("{:016x}", config.pool_id)},
      {"class", config.object_class.name()},
      {"targets", std::move(targets)},
      {"listen", config.listen},
      {"drain", config.drain},
      {"hot", toml::table{{"file", relative_to_pool(config.hot_file, paths)},
                          {"bytes", static_cast<int64_t>(config.hot_bytes)}}},
  };
  std::ostringstream out;
  out << "# A Sluice pool. 'listen', 'drain' and a table [hints] (see the README) may be changed while no "
         "server runs; a\n"
         "# target that was moved to another directory is told here by its new path. The rest was fixed when "
         "the pool\n"
         "# was made.\n"
      << table << "\n";
  print_hints(out, config.hints);
  return out.str();
}

Result<PoolConfig> parse_pool_file(std::string_view text, const PoolPaths& paths) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("line {}: {}; mend that line, or restore the file",
                            parsed.error().source().begin.line, parsed.error().description()));
  const toml::table& table = parsed.table();
  const auto format = table["format"].value<int64_t>();
  if (!format) return bad("format", "is missing");
  if (*format != kPoolFormat)
    return fail(ErrorCode::kUnsupported,
                fmt::format("the pool has format {}, this version knows {}; use the version that made it",
                            *format, kPoolFormat));
  PoolConfig config;
  auto id = parse_id(table["pool_id"].value<std::string>());
  if (!id) return fail(id.error());
  config.pool_id = *id;
  auto targets = parse_targets(table["targets"].as_array(), paths);
  if (!targets) return fail(targets.error());
  config.targets = std::move(*targets);

  auto object_class = storage::ObjectClass::parse(table["class"].value_or(std::string()));
  if (!object_class) return bad("class", object_class.error().message);
  if (!object_class->fits(config.targets.size()))
    return bad("targets", fmt::format("names {} directories, and class {} needs {}", config.targets.size(),
                                      object_class->name(), object_class->width()));
  config.object_class = *object_class;

  const auto file = table["hot"]["file"].value<std::string>();
  const auto bytes = table["hot"]["bytes"].value<int64_t>();
  if (!file || file->empty()) return bad("hot.file", "is missing");
  if (!bytes || *bytes < static_cast<int64_t>(kMinHotBytes) || *bytes > static_cast<int64_t>(kMaxHotBytes))
    return bad("hot.bytes", "is missing or beyond the limits of a hot tier");
  config.hot_file = (paths.pool / *file).lexically_normal();
  config.hot_bytes = static_cast<uint64_t>(*bytes);
  config.listen = table["listen"].value_or(std::string("tcp://127.0.0.1:0"));
  config.drain = table["drain"].value_or(std::string("immediate"));
  auto hints = parse_hints(table.get("hints"), config.targets.size());
  if (!hints) return fail(hints.error());
  config.hints = std::move(*hints);
  return config;
}

}  // namespace sluice::server
