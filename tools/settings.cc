#include "tools/settings.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct HostAndPort {
  std::string_view host, port;
};

HostAndPort split(std::string_view address) {
  constexpr std::string_view kScheme = "tcp://";
  if (address.starts_with(kScheme)) address.remove_prefix(kScheme.size());
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return {address, {}};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

// `is` was asked for when the service was started; `address` is what came of it.
bool same_listen(const std::string& asked, const std::string& is, const std::string& address) {
  const auto wanted = split(asked), given = split(is), real = split(address);
  if (wanted.host != given.host && wanted.host != real.host) return false;
  return wanted.port == "0" || wanted.port == given.port || wanted.port == real.port;
}

bool same_directory(const std::string& asked, const std::string& is) {
  std::error_code ec;
  // The empty last part makes "dir" and "dir/" one.
  return (fs::path(asked) / "").lexically_normal() == (fs::path(is) / "").lexically_normal() ||
         fs::equivalent(asked, is, ec);
}

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

struct Setting {
  const char* option;
  const char* key;      // in the status's "settings"
  bool until_it_stops;  // otherwise it is the pool's for good
};
constexpr Setting kSettings[] = {{"--targets", "targets", false}, {"--class", "class", false},
                                 {"--hot-dir", "hot_dir", false}, {"--hot-size", "hot_size", false},
                                 {"--listen", "listen", true},    {"--drain", "drain", true}};

}  // namespace

Result<> agree_with_running(const std::string& pool, const std::vector<std::string>& words,
                            const json& status) {
  const json settings = status.value("settings", json::object());
  const std::string address = status.value("/servers/0/address"_json_pointer, std::string());
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    for (const Setting& setting : kSettings) {
      if (words[i] != setting.option || !settings.contains(setting.key)) continue;
      const std::string& asked = words[i + 1];
      const std::string is = text_of(settings[setting.key]);
      const std::string_view option = setting.option;
      const bool same = option == "--listen"    ? same_listen(asked, is, address)
                        : option == "--hot-dir" ? same_directory(asked, is)
                                                : asked == is;
      if (same) continue;
      return fail(
          ErrorCode::kConflict,
          fmt::format("{} {} contradicts the service that runs on the pool {} with {} {}; leave the option "
                      "out, or {}",
                      option, asked, pool, option, is,
                      setting.until_it_stops ? fmt::format("stop it first with `sluice down --pool {}`", pool)
                                             : std::string("make another pool")));
    }
  }
  return {};
}

}  // namespace sluice::tools
