#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <optional>

#include "base/printable.h"

namespace sluice::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace:
      return spdlog::level::trace;
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

struct Named {
  std::string_view name;
  Level level;
};
constexpr Named kLevels[] = {{"trace", Level::kTrace}, {"debug", Level::kDebug}, {"info", Level::kInfo},
                             {"warn", Level::kWarn},   {"error", Level::kError}, {"off", Level::kOff}};

// What SLUICE_LOG says; empty counts as not set.
std::string_view wanted_level() {
  const char* wanted = std::getenv("SLUICE_LOG");
  return wanted == nullptr ? std::string_view() : std::string_view(wanted);
}

std::optional<Level> level_named(std::string_view name) {
  for (const Named& known : kLevels)
    if (known.name == name) return known.level;
  return std::nullopt;
}

// spdlog keeps the process's default logger; ours has its own name, so a host program that uses spdlog keeps
// its own.
std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance = [] {
    auto fresh =
        std::make_shared<spdlog::logger>("sluice", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    fresh->set_pattern("sluice: %l: %v");
    fresh->set_level(spdlog::level::warn);
    const std::string_view wanted = wanted_level();
    if (const auto level = level_named(wanted)) {
      fresh->set_level(to_spdlog(*level));
    } else if (!wanted.empty()) {
      std::string names;
      for (const Named& known : kLevels) names.append(names.empty() ? "" : ", ").append(known.name);
      fresh->warn("SLUICE_LOG={} is no log level and is not followed; set it to one of {}", printable(wanted),
                  names);
    }
    return fresh;
  }();
  return instance;
}

}  // namespace

bool init_log(std::string_view program, Level fallback_level, const std::string& path) {
  bool opened = true;
  if (!path.empty()) {
    try {
      logger() = std::make_shared<spdlog::logger>(std::string(program),
                                                  std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
      logger()->set_pattern("%Y-%m-%dT%H:%M:%S.%e %P %l %v");
      logger()->flush_on(spdlog::level::trace);
    } catch (const spdlog::spdlog_ex&) {
      opened = false;
    }
  }
  logger()->set_level(to_spdlog(level_named(wanted_level()).value_or(fallback_level)));
  return opened;
}

bool enabled(Level level) {
  return logger()->should_log(to_spdlog(level));
}

void write(Level level, std::string_view line) {
  logger()->log(to_spdlog(level), "{}", line);
}

}  // namespace sluice::log
