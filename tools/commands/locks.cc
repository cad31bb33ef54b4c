// locks
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/commands/commands.h"
#include "tools/exit_code.h"

namespace sluice::tools {
namespace {

using client::LockReport;
using nlohmann::json;

json to_json(const std::string& path, const LockReport& report) {
  json held = json::array();
  json waiting = json::array();
  for (const auto& lock : report.locks) {
    json one = {{"begin", lock.extent.begin.value},
                {"end", lock.extent.end.value},
                {"mode", lock.mode},
                {"pid", lock.pid},
                {"session", lock.session}};
    if (lock.waiting) {
      waiting.push_back(std::move(one));
    } else {
      one["revoked"] = lock.revoked;
      one["ahead"] = lock.ahead;
      held.push_back(std::move(one));
    }
  }
  return {{"file", path},
          {"held", report.held},
          {"waiting", report.waiting},
          {"revokes_under_way", report.revoked},
          {"holders", std::move(held)},
          {"waiters", std::move(waiting)},
          {"counters",
           {{"grants", report.grants},
            {"expansions", report.expansions},
            {"revokes", report.revokes},
            {"reclaimed", report.reclaimed},
            {"asked_ahead", report.ahead_extents},
            {"dropped_ahead", report.ahead_dropped},
            {"waits", report.waits},
            {"wait_s", static_cast<double>(report.wait_ms) / 1000}}}};
}

std::string end_text(Offset end) {
  return end.value == kMaxFileBytes ? "end" : std::to_string(end.value);
}

void print(const std::string& path, const LockReport& report) {
  fmt::print("{}: {} held, {} waiting, {} asked back\n", path, report.held, report.waiting, report.revoked);
  fmt::print(
      "since the service started: {} granted ({} expanded), {} asked back ({} to make room), {} asked ahead "
      "({} dropped), {} waited {:.3f} s in all\n",
      report.grants, report.expansions, report.revokes, report.reclaimed, report.ahead_extents,
      report.ahead_dropped, report.waits, static_cast<double>(report.wait_ms) / 1000);
  if (report.locks.empty()) return;
  fmt::print("{:<8} {:<10} {:>20} {:>20} {:>8}\n", "state", "mode", "begin", "end", "process");
  for (const auto& lock : report.locks) {
    fmt::print("{:<8} {:<10} {:>20} {:>20} {:>8}{}\n", lock.waiting ? "waits" : "holds", lock.mode,
               lock.extent.begin.value, end_text(lock.extent.end), lock.pid,
               lock.revoked ? "  asked back"
               : lock.ahead ? "  ahead"
                            : "");
  }
  const uint64_t all = report.held + report.waiting;
  if (all > report.locks.size()) fmt::print("... and {} more\n", all - report.locks.size());
}

}  // namespace

int run_locks(const PathsOptions& options) {
  auto connection = connect(options.common);
  if (!connection) return report(connection.error());
  int code = kOk;
  json all = json::array();
  for (const auto& word : options.paths) {
    const auto path = path_in_pool(word);
    const auto locks = path ? connection->client->locks(*path) : Result<LockReport>(fail(path.error()));
    if (!locks) {
      const int failed = report(locks.error());
      if (code == kOk) code = failed;
    } else if (options.common.json) {
      all.push_back(to_json(*path, *locks));
    } else {
      print(*path, *locks);
    }
  }
  // One path: its object; several: a list of those that are there.
  if (options.common.json && !all.empty()) {
    fmt::print(
        "{}\n",
        (options.paths.size() == 1 ? all[0] : all).dump(2, ' ', false, json::error_handler_t::replace));
  }
  return disconnect(std::move(*connection), code);
}

}  // namespace sluice::tools
