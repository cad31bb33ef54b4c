#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

// Log lines go to stderr, or to the file named at init_log(). Thread-safe. The level comes from SLUICE_LOG
// (trace, debug, info, warn, error, off; default warn in clients, info in the server). Any other value is
// told of once in a process, at its first use of the log.
namespace sluice::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff };

// Call once, early, from main(); without it, as in libraries, lines go to stderr, of warn and above when
// SLUICE_LOG does not say otherwise. An empty path means stderr. Answers false when the file cannot be opened
// (stderr is used then).
bool init_log(std::string_view program, Level fallback_level, const std::string& path = {});

bool enabled(Level level);
void write(Level level, std::string_view line);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarn)) write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError)) write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice::log
