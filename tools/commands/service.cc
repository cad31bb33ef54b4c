// up, down, status
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "client/control_client.h"
#include "tools/commands/commands.h"
#include "tools/exit_code.h"
#include "tools/process.h"
#include "tools/progress.h"
#include "tools/sizes.h"

namespace sluice::tools {
namespace {

using nlohmann::json;
constexpr uint64_t kStatusTimeoutMs = 10'000;

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>())
                                                     : std::string("?");
}
uint64_t number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}
const json& part_of(const json& object, const char* key) {
  static const json kNone = json::object();
  const auto found = object.find(key);
  return found != object.end() ? *found : kNone;
}

Result<json> ask_status(const std::string& pool) {
  auto reply = client::control_request(pool, "GET", "/status", kStatusTimeoutMs);
  std::error_code ec;
  if (!reply && reply.error().code == ErrorCode::kUnavailable &&
      !std::filesystem::exists(std::filesystem::path(pool) / "pool.toml", ec))
    return fail(
        ErrorCode::kNotFound,
        fmt::format("there is no pool in {} (no pool.toml); make one with `sluice up --pool DIR`", pool));
  if (!reply) return fail(reply.error());
  json status = json::parse(reply->body, nullptr, /*allow_exceptions=*/false);
  if (reply->status != 200 || !status.is_object())
    return fail(ErrorCode::kProtocol,
                fmt::format("what answers for the pool {} is not a sluice service of this version", pool));
  return status;
}

void print_status(const json& status) {
  fmt::print("pool     {}\n", text_of(status, "pool"));
  fmt::print("state    {}\n", text_of(status, "state"));
  fmt::print("class    {}\n", text_of(status, "class"));
  for (const json& server : part_of(status, "servers"))
    fmt::print("server   {}  {}  pid {}{}\n", text_of(server, "address"), text_of(server, "state"),
               number_of(server, "pid"), status.value("private", false) ? "  (for one command)" : "");
  for (const json& target : part_of(status, "targets"))
    fmt::print("target   {}  {}  {} used, {} free  {}\n", number_of(target, "id"), text_of(target, "state"),
               print_bytes(number_of(target, "bytes_used")), print_bytes(number_of(target, "bytes_free")),
               text_of(target, "path") +
                   (target.value("why", "").empty() ? "" : "\n         " + text_of(target, "why")));
  const json& hot = part_of(status, "hot");
  fmt::print("hot tier {} of {} used, {} of writes, {} kept for readers; on a {}, survives a {}\n",
             print_bytes(number_of(hot, "bytes_used")), print_bytes(number_of(hot, "bytes_total")),
             print_bytes(number_of(hot, "bytes_undrained")), print_bytes(number_of(hot, "bytes_clean")),
             text_of(hot, "medium"), text_of(hot, "survives"));
  const json& drain = part_of(status, "drain");
  fmt::print("drain    {}, {} left\n", text_of(drain, "state"), print_bytes(number_of(drain, "bytes_left")));
  fmt::print("files    {}\n", number_of(status, "files"));
}

// Programs that start a service read it (client/service.cc).
const char* outcome_word(StartOutcome outcome) {
  return outcome == StartOutcome::kMade ? "made" : outcome == StartOutcome::kStarted ? "started" : "running";
}
const char* outcome_text(StartOutcome outcome) {
  return outcome == StartOutcome::kMade      ? "made and ready"
         : outcome == StartOutcome::kStarted ? "ready"
                                             : "running already";
}

// The service has read it when it started.
bool pool_file_changed(const std::string& pool, const json& status) {
  std::error_code ec;
  const auto changed = std::filesystem::last_write_time(std::filesystem::path(pool) / "pool.toml", ec);
  const auto& servers = part_of(status, "servers");
  if (ec || !servers.is_array() || servers.empty()) return false;
  return changed > std::filesystem::file_time_type::clock::now() -
                       std::chrono::seconds(number_of(servers[0], "uptime"));
}

}  // namespace

int run_up(const UpOptions& options) {
  auto pool = pool_of(options.common);
  if (!pool) return report(pool.error());
  auto words = sluiced_words(options.pool);
  if (!words) return report(words.error());
  auto started =
      start_service({.pool = *pool, .options = std::move(*words), .may_create = true, .permanent = true});
  if (!started) return report(started.error());
  auto status = ask_status(*pool);
  if (!status) return report(status.error());
  if (options.common.json) {
    (*status)["outcome"] = outcome_word(*started);
    fmt::print("{}\n", status->dump(2));
    return kOk;
  }
  if (*started == StartOutcome::kWasRunning && pool_file_changed(*pool, *status))
    say(fmt::format(
        "{0}/pool.toml was changed since the service started, and takes effect at its next start: "
        "`sluice down --pool {0}`, then `sluice up --pool {0}`",
        *pool));
  fmt::print("{} {}: class {}, {} targets\n", outcome_text(*started), *pool, text_of(*status, "class"),
             part_of(*status, "targets").size());
  if (const std::string state = text_of(*status, "state"); state != "ok") say("the pool is " + state);
  return kOk;
}

namespace {

// `stopped`: by this very command; otherwise none runs, or somebody else stopped it.
void print_stopped(const std::string& pool, bool stopped) {
  const json told{{"pool", pool}, {"stopped", stopped}};
  fmt::print("{}\n", told.dump(2, ' ', false, json::error_handler_t::replace));
}

// Somebody else stopped it, or it died, while we had it drain: all is well when the mark of a drained hot
// tier (server/pool.h) is there.
int report_gone(const std::string& pool, bool as_json) {
  std::error_code ec;
  if (std::filesystem::exists(std::filesystem::path(pool) / "drained", ec)) {
    if (as_json)
      print_stopped(pool, false);
    else
      say(fmt::format("the service on {} was stopped by somebody else; all was drained", pool));
    return kOk;
  }
  return report(
      Error(ErrorCode::kUnavailable,
            fmt::format(
                "the service on {0} ended before all was drained; what was not stays in the hot tier: start "
                "it again with `sluice up --pool {0}`, or see its log {0}/sluiced.log",
                pool)));
}

// Programs do not see that it stops, but wait for it.
void say_who_waits(const json& status) {
  const json& counters = part_of(status, "counters");
  const uint64_t programs = number_of(counters, "clients"), files = number_of(counters, "open_files");
  if (files == 0) return;
  say(fmt::format("{} {} {} open; the next access waits up to 30 s for the service (`sluice up`), then fails",
                  programs == 1 ? "1 process" : fmt::format("{} processes", programs),
                  programs == 1 ? "has" : "have", files == 1 ? "1 file" : fmt::format("{} files", files)));
}

Result<> drain_with_progress(const std::string& pool, uint64_t total) {
  Progress progress("draining", total);
  return drain_service(
      pool, [&](uint64_t left) { progress.show(total > left ? total - left : 0); }, [] { return false; });
}

}  // namespace

int run_down(const DownOptions& options) {
  auto pool = pool_of(options.common);
  if (!pool) return report(pool.error());
  // Before it is asked: one that is ending already is waited for as well.
  auto holder = watch_holder(*pool);
  if (!holder) return report(holder.error());
  const auto gone = [&](const Error& error) {
    return error.code == ErrorCode::kUnavailable && (!*holder || wait_for_end(*holder, kStopTimeoutMs));
  };
  auto status = ask_status(*pool);
  if (!status && gone(status.error())) {
    if (options.common.json)
      print_stopped(*pool, false);
    else
      say(fmt::format("no service runs on the pool {}", *pool));
    return kOk;
  }
  if (!status) return report(status.error());
  if (!options.no_drain) {
    auto drained = drain_with_progress(*pool, number_of(part_of(*status, "drain"), "bytes_left"));
    if (!drained && gone(drained.error())) return report_gone(*pool, options.common.json);
    if (!drained) {
      Error error = drained.error();
      error.message +=
          fmt::format("; `sluice down --no-drain --pool {}` stops the service all the same", *pool);
      return report(error);
    }
  }
  if (auto now = ask_status(*pool)) say_who_waits(*now);
  if (auto stopped = stop_service(*pool); !stopped && !gone(stopped.error())) return report(stopped.error());
  if (options.common.json)
    print_stopped(*pool, true);
  else
    fmt::print("stopped {}\n", *pool);
  return kOk;
}

int run_status(const Common& options, bool metrics) {
  auto pool = pool_of(options);
  if (!pool) return report(pool.error());
  if (metrics) {
    auto reply = client::control_request(*pool, "GET", "/metrics", kStatusTimeoutMs);
    if (!reply) return report(reply.error());
    fmt::print("{}", reply->body);
    return kOk;
  }
  auto status = ask_status(*pool);
  if (!status) return report(status.error());
  if (options.json)
    fmt::print("{}\n", status->dump(2));
  else
    print_status(*status);
  return kOk;
}

}  // namespace sluice::tools
