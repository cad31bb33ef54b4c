#include "server/pool_file.h"

#include <fmt/format.h>

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
  return fail(ErrorCode::kCorrupt, fmt::format("'{}' {}; restore the file or mend that line", key, why));
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
  out << "# A Sluice pool. 'listen' and 'drain' may be changed while no server runs; a target that was moved "
         "to another\n"
         "# directory is told here by its new path. The rest was fixed when the pool was made.\n"
      << table << "\n";
  return out.str();
}

Result<PoolConfig> parse_pool_file(std::string_view text, const PoolPaths& paths) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed)
    return fail(ErrorCode::kCorrupt,
                fmt::format("line {}: {}; restore the file or mend that line",
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
  if (auto fits = object_class->resolve(config.targets.size()); !fits)
    return bad("class", fits.error().message);
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
  return config;
}

}  // namespace sluice::server
