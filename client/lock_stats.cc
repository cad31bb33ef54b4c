#include "client/lock_stats.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace sluice::client {

std::string stats_line(const LockStats& stats) {
  const auto& c = stats.counts;
  const auto number = [](uint64_t value) { return std::to_string(value); };
  std::string line = "sluice: " + stats.path + ": locks " + stats.settings.explain();
  if (c.acquires == 0) return line;
  line += "; " + number(c.acquires) + " accesses, " + number(stats.waited) + " waited " +
          number(stats.wait_us) + " us in all; " + number(c.grants) + " locks granted (" +
          number(c.expansions) + " expanded), " + number(c.revokes) + " revoked; " + number(c.ahead_extents) +
          " asked ahead, " + number(c.ahead_dropped) + " dropped; " + number(c.messages()) + " lock messages";
  return line;
}

std::string stats_json(const LockStats& stats, int pid) {
  const auto& c = stats.counts;
  return nlohmann::json{{"file", stats.path},
                        {"pid", pid},
                        {"lock_mode", stats.settings.name()},
                        {"lock_reason", stats.settings.explain()},
                        {"accesses", c.acquires},
                        {"waited", stats.waited},
                        {"wait_us", stats.wait_us},
                        {"grants", c.grants},
                        {"expansions", c.expansions},
                        {"revokes", c.revokes},
                        {"asked_ahead", c.ahead_extents},
                        {"dropped_ahead", c.ahead_dropped},
                        {"messages", c.messages()}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<> tell_stats(const std::string& destination, const LockStats& stats) {
  if (destination.empty()) return {};
  const bool to_stderr = destination == "1";
  const int file = to_stderr ? STDERR_FILENO
                             : ::open(destination.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const std::string text = (to_stderr ? stats_line(stats) : stats_json(stats, ::getpid())) + "\n";
  const bool told = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int why = errno;
  if (!to_stderr && file >= 0) ::close(file);
  if (told) return {};
  return fail(ErrorCode::kIo, "the file named by SLUICE_STATS, " + destination + ", cannot be written (" +
                                  std::strerror(why) + ")");
}

}  // namespace sluice::client
