#include "client/file_stats.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"

namespace sluice::client {
namespace {

// The ways that requests went, by name.
using Ways = std::initializer_list<std::pair<const char*, const Tally*>>;

std::string number(uint64_t value) {
  return std::to_string(value);
}

uint64_t bytes_of(Ways ways) {
  uint64_t bytes = 0;
  for (const auto& [name, tally] : ways) bytes += tally->bytes.get();
  return bytes;
}

// "4096 bytes in 2 accesses (1 slab, 1 inline)".
std::string direction_line(const Counter& accesses, Ways ways) {
  std::string detail;
  for (const auto& [name, tally] : ways) {
    if (tally->requests.get() == 0) continue;
    detail += (detail.empty() ? "" : ", ") + number(tally->requests.get()) + " " + name;
  }
  return number(bytes_of(ways)) + " bytes in " + number(accesses.get()) + " accesses" +
         (detail.empty() ? "" : " (" + detail + ")");
}

nlohmann::json direction_json(const Counter& accesses, Ways ways) {
  nlohmann::json told{{"accesses", accesses.get()}, {"bytes", bytes_of(ways)}};
  for (const auto& [name, tally] : ways)
    told[name] = {{"requests", tally->requests.get()}, {"bytes", tally->bytes.get()}};
  return told;
}

nlohmann::json wait_json(const WaitTally& waits) {
  return {{"count", waits.count.get()}, {"us", waits.us.get()}};
}

std::string wait_line(const WaitTally& waits, const char* what) {
  return number(waits.count.get()) + " times " + number(waits.us.get()) + " us for " + what;
}

std::string lock_line(const LockStats& locks) {
  const auto& c = locks.counts;
  if (c.acquires == 0) return "";
  return "; " + number(c.acquires) + " accesses under locks, " + number(locks.waited) + " waited " +
         number(locks.wait_us) + " us in all; " + number(c.grants) + " locks granted (" +
         number(c.expansions) + " expanded), " + number(c.revokes) + " revoked; " + number(c.ahead_extents) +
         " asked ahead, " + number(c.ahead_dropped) + " dropped; " + number(c.messages()) + " lock messages";
}

nlohmann::json lock_json(const LockStats& locks) {
  const auto& c = locks.counts;
  return {{"accesses", c.acquires},         {"waited", locks.waited},
          {"wait_us", locks.wait_us},       {"grants", c.grants},
          {"expansions", c.expansions},     {"revokes", c.revokes},
          {"asked_ahead", c.ahead_extents}, {"dropped_ahead", c.ahead_dropped},
          {"messages", c.messages()}};
}

Result<> append(const std::string& destination, const std::string& text, bool to_stderr) {
  const int file = to_stderr ? STDERR_FILENO
                             : ::open(destination.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const bool told = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int why = errno;
  if (!to_stderr && file >= 0) ::close(file);
  if (told) return {};
  return fail(ErrorCode::kIo, "the file named by SLUICE_STATS, " + destination + ", cannot be written (" +
                                  std::strerror(why) + ")");
}

}  // namespace

std::string stats_line(const FileStats& stats) {
  const FileCounters& c = stats.counters;
  std::string line = "sluice: " + stats.path + ": wrote ";
  line += direction_line(
      c.writes, {{"slab", &c.written_slab}, {"remote", &c.written_remote}, {"inline", &c.written_inline}});
  if (const uint64_t gathered = c.gathered.requests.get(); gathered != 0)
    line += ", " + number(gathered) + " gathered under locks";
  line += "; read " + direction_line(c.reads, {{"told before", &c.read_told},
                                               {"mapped", &c.read_mapped},
                                               {"remote", &c.read_remote},
                                               {"inline", &c.read_inline}});
  line += "; planned " + number(c.direct.get()) + " direct, " + number(c.two_phase.get()) + " two-phase, " +
          number(c.exchanged_bytes.get()) + " bytes to other ranks";
  line += "; " + number(c.messages.get()) + " messages; waited " + wait_line(c.for_answers, "answers") +
          ", " + wait_line(c.for_room, "room");
  line += "; locks " + stats.settings.explain();
  if (stats.locks) line += lock_line(*stats.locks);
  return line;
}

std::string stats_json(const FileStats& stats, int pid) {
  const FileCounters& c = stats.counters;
  nlohmann::json told{{"file", stats.path},
                      {"pid", pid},
                      {"written", direction_json(c.writes, {{"slab", &c.written_slab},
                                                            {"remote", &c.written_remote},
                                                            {"inline", &c.written_inline}})},
                      {"read", direction_json(c.reads, {{"told", &c.read_told},
                                                        {"mapped", &c.read_mapped},
                                                        {"remote", &c.read_remote},
                                                        {"inline", &c.read_inline}})},
                      {"planned",
                       {{"direct", c.direct.get()},
                        {"two_phase", c.two_phase.get()},
                        {"exchanged_bytes", c.exchanged_bytes.get()}}},
                      {"messages", c.messages.get()},
                      {"waited", {{"answers", wait_json(c.for_answers)}, {"room", wait_json(c.for_room)}}},
                      {"lock_mode", stats.settings.name()},
                      {"lock_reason", stats.settings.explain()}};
  told["written"]["gathered"] = {{"requests", c.gathered.requests.get()}, {"bytes", c.gathered.bytes.get()}};
  if (stats.locks) told["locks"] = lock_json(*stats.locks);
  return told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<> tell_stats(const std::string& destination, const FileStats& stats) {
  if (destination.empty()) return {};
  const bool to_stderr = destination == "1";
  return append(destination, (to_stderr ? stats_line(stats) : stats_json(stats, ::getpid())) + "\n",
                to_stderr);
}

void tell_stats_if_asked(const FileStats& stats) {
  const char* destination = std::getenv("SLUICE_STATS");
  if (destination == nullptr) return;
  if (auto told = tell_stats(destination, stats); !told) log::warn("{}", told.error().message);
}

}  // namespace sluice::client
