#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

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

// spdlog keeps the process's default logger; ours has its own name, so a host program that uses spdlog keeps
// its own.
std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance = [] {
    auto fresh =
        std::make_shared<spdlog::logger>("sluice", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    fresh->set_pattern("sluice: %l: %v");
    fresh->set_level(spdlog::level::warn);
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
  const char* wanted = std::getenv("SLUICE_LOG");
  logger()->set_level(wanted != nullptr ? spdlog::level::from_str(wanted) : to_spdlog(fallback_level));
  return opened;
}

bool enabled(Level level) {
  return logger()->should_log(to_spdlog(level));
}

void write(Level level, std::string_view line) {
  logger()->log(to_spdlog(level), "{}", line);
}

}  // namespace sluice::log
