#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/printable.h"
#include "tools/commands/commands.h"
#include "tools/exit_code.h"
#include "tools/progress.h"
#include "tools/sizes.h"

namespace sluice::tools {

int report_as(const Error& error, int code) {
  // Sentences have names of files in them.
  std::fprintf(stderr, "sluice: %s\n", printable(error.message).c_str());
  if (error.outcome_unknown)
    std::fputs("sluice: whether it took effect is not known; look before you try again\n", stderr);
  return code;
}

int report(const Error& error) {
  return report_as(error, exit_code_of(error));
}

void say(const std::string& line) {
  std::fprintf(stderr, "sluice: %s\n", printable(line).c_str());
}

Result<std::string> pool_of(const Common& common) {
  std::error_code ec;
  std::string named = common.pool;
  // Where `run` without a name leaves its files.
  if (named.empty() && std::filesystem::exists(std::filesystem::path(kDefaultPool) / "pool.toml", ec))
    named = kDefaultPool;
  if (named.empty())
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("no pool is named, and ./{} is none; give --pool DIR or set SLUICE_POOL", kDefaultPool));
  const auto path = std::filesystem::absolute(named, ec).lexically_normal();
  if (ec) return fail(errno_error(ec.value(), "find", named));
  // "dir/" and "dir" are one pool.
  return (path.has_filename() ? path : path.parent_path()).string();
}

Result<std::vector<std::string>> sluiced_words(const PoolOptions& options) {
  if (options.servers && *options.servers != 1)
    return fail(ErrorCode::kUnsupported,
                fmt::format("--servers {}: this version runs one server for each pool; leave the option out",
                            *options.servers));
  std::vector<std::string> words;
  const auto add = [&](const char* name, const std::string& value) {
    words.emplace_back(name);
    words.push_back(value);
  };
  if (options.targets) add("--targets", std::to_string(*options.targets));
  if (options.object_class) add("--class", *options.object_class);
  if (options.listen) add("--listen", *options.listen);
  if (options.drain) add("--drain", *options.drain);
  if (options.hot_dir) {
    std::error_code ec;
    add("--hot-dir", std::filesystem::absolute(*options.hot_dir, ec).string());
  }
  if (options.hot_size) {
    auto bytes = parse_bytes(*options.hot_size);
    if (!bytes) return fail_with_context("--hot-size", bytes.error());
    add("--hot-size", std::to_string(*bytes));
  }
  if (options.accept_lost_hot_tier) words.emplace_back("--accept-lost-hot-tier");
  return words;
}

Result<std::string> path_in_pool(const std::string& text) {
  if (auto path = client::pool_path(text)) return *path;
  // Commands that only know the pool take "/a/b" as well.
  if (text.starts_with("/")) return text;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no path in the pool; write sluice:/{} or /{}", text, text, text));
}

Result<Connection> connect(const Common& common) {
  auto pool = pool_of(common);
  if (!pool) return fail(pool.error());
  auto use = ServiceUse::begin({.pool = *pool, .options = {}, .may_create = false, .permanent = false});
  if (!use) return fail(use.error());
  client::Options options;
  if (auto from_environment = client::options_from_environment(); from_environment)
    options = *from_environment;
  options.pool = *pool;
  options.start_service = false;
  auto client = client::Client::connect(options);
  if (!client) return fail(client.error());
  return Connection{std::move(*use), std::move(*client), std::move(*pool)};
}

int disconnect(Connection connection, int code, const std::function<bool()>& interrupted) {
  connection.client.reset();  // before the service is asked who is left
  uint64_t most = 0;
  std::optional<Progress> progress;
  auto ended = connection.use.end(
      ServiceUse::Drain::kWhenPrivate,
      [&](uint64_t left) {
        most = std::max(most, left);
        if (!progress) progress.emplace("draining", most);
        progress->set_total(most);
        progress->show(most - left);
      },
      interrupted);
  progress.reset();
  if (ended) return code;
  const int own = report(ended.error());
  return code != kOk ? code : own;
}

}  // namespace sluice::tools
