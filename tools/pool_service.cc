#include "tools/pool_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "client/control_client.h"
#include "client/service.h"
#include "tools/process.h"
#include "tools/settings.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Steady = std::chrono::steady_clock;

constexpr uint64_t kStartTimeoutMs = 60'000;
constexpr int kMaxStartTries = 5;
constexpr uint64_t kAnswerTimeoutMs = 10'000;
constexpr uint64_t kLookAgainMs = 20;
constexpr uint64_t kGoneClientMs = 3'000;  // until the connection of a process that is gone is found broken
constexpr uint64_t kDrainSliceMs = 250;
constexpr std::string_view kReady = "ready", kReadyMade = "ready made";  // see server/main.cc

Steady::time_point after_ms(uint64_t ms) {
  return Steady::now() + std::chrono::milliseconds(ms);
}

// The one line that sluiced writes when it is ready or has given up; empty when it died without a word.
Result<std::string> run_sluiced(const ServiceRequest& request) {
  auto directory = program_directory();
  if (!directory) return fail(directory.error());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno_error(errno, "make", "a pipe"));
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  std::vector<std::string> command{*directory / "sluiced", "--pool", request.pool, "--ready-fd", "3"};
  if (!request.permanent) command.push_back("--private");
  if (!request.may_create) command.push_back("--existing");
  command.insert(command.end(), request.options.begin(), request.options.end());
  auto pid = spawn_detached(command, write_end.get());
  if (!pid) return fail_with_context("cannot start the service", pid.error());
  write_end.reset();
  std::string line;
  std::array<char, 4096> piece{};
  while (true) {
    const ssize_t got = ::read(read_end.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    line.append(piece.data(), static_cast<size_t>(got));
  }
  while (!line.empty() && line.back() == '\n') line.pop_back();
  if (line != kReady && line != kReadyMade) {
    // It ends by itself now; as its parent we take note of that.
    while (::waitpid(*pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  return line;
}

Error error_from_line(const std::string& line, const std::string& pool) {
  // "error CODE WHY"
  unsigned code = 0;
  constexpr std::string_view kHead = "error ";
  const auto [end, wrong] = std::from_chars(line.data() + kHead.size(), line.data() + line.size(), code);
  if (wrong != std::errc{} || code == 0 || code > kLastErrorCode || end == line.data() + line.size())
    return Error(ErrorCode::kInternal, fmt::format("the service on {} said '{}'", pool, line));
  return Error(static_cast<ErrorCode>(code), std::string(end + 1, line.data() + line.size()));
}

Result<json> ask(const std::string& pool, const char* method, const std::string& target, uint64_t timeout_ms,
                 client::Unheard unheard = client::Unheard::kWaitForIt) {
  auto reply = client::control_request(pool, method, target, timeout_ms, unheard);
  if (!reply) return fail(reply.error());
  json body = json::parse(reply->body, nullptr, /*allow_exceptions=*/false);
  if (reply->status != 200 || !body.is_object())
    return fail(ErrorCode::kProtocol,
                fmt::format("the service on {} refused {} {}: {}", pool, method, target,
                            body.is_object() ? body.value("error", std::string("no reason given"))
                                             : std::string("no sense in its answer")));
  return body;
}

// Why the drain is blocked, of what matters to a user: a full, a forbidden or a damaged place, or anything
// else.
std::optional<ErrorCode> blocked_code(const json& report) {
  const auto blocked = report.find("blocked");
  if (blocked == report.end() || !blocked->is_number_unsigned()) return std::nullopt;
  for (const ErrorCode code : {ErrorCode::kNoSpace, ErrorCode::kAccess, ErrorCode::kCorrupt})
    if (*blocked == static_cast<unsigned>(code)) return code;
  return ErrorCode::kIo;
}

bool answers(const std::string& pool) {
  return ask(pool, "GET", "/status", kAnswerTimeoutMs).has_value();
}

// Another process holds the pool: it is ready, still starting, or about to end. True when it answers in the
// end.
bool wait_for_other(const std::string& pool, Steady::time_point deadline, int pid) {
  auto other = watch_process(pid);
  while (Steady::now() < deadline) {
    if (answers(pool)) return true;
    if (!other || wait_for_end(*other, kLookAgainMs)) return false;
  }
  return false;
}

}  // namespace

Result<StartOutcome> start_service(const ServiceRequest& request) {
  const auto deadline = after_ms(kStartTimeoutMs);
  constexpr std::string_view kRunning = "running ";
  while (true) {
    auto line = run_sluiced(request);
    if (!line) return fail(line.error());
    if (*line == kReady) return StartOutcome::kStarted;
    if (*line == kReadyMade) return StartOutcome::kMade;
    if (line->starts_with(kRunning)) {
      int pid = 0;
      std::from_chars(line->data() + kRunning.size(), line->data() + line->size(), pid);
      if (wait_for_other(request.pool, deadline, pid)) {
        auto status = ask(request.pool, "GET", "/status", kAnswerTimeoutMs);
        if (status) {
          if (auto agreed = agree_with_running(request.pool, request.options, *status); !agreed)
            return fail(agreed.error());
          if (!request.permanent) return StartOutcome::kWasRunning;
        }
        if (status && ask(request.pool, "POST", "/keep", kAnswerTimeoutMs)) {
          if (auto found = ask(request.pool, "POST", "/announce", kAnswerTimeoutMs); !found)
            return fail(found.error());
          return StartOutcome::kWasRunning;
        }
      }
      if (Steady::now() >= deadline)
        return fail(
            ErrorCode::kTimedOut,
            fmt::format(
                "process {} holds the pool {} and does not answer; see its log {}, or end it with `kill {}`",
                pid, request.pool, (fs::path(request.pool) / "sluiced.log").string(), pid));
      pause_ms(kLookAgainMs);
      continue;
    }
    if (line->starts_with("error ")) return fail(error_from_line(*line, request.pool));
    return fail(ErrorCode::kInternal,
                fmt::format("the service on {} ended without a word; see its log {}", request.pool,
                            (fs::path(request.pool) / "sluiced.log").string()));
  }
}

Result<> drain_service(const std::string& pool, const std::function<void(uint64_t)>& on_progress,
                       const std::function<bool()>& interrupted) {
  auto patience = after_ms(kBlockedPatienceMs);
  uint64_t least_left = std::numeric_limits<uint64_t>::max();
  while (true) {
    auto report =
        ask(pool, "POST", fmt::format("/drain?wait_ms={}", kDrainSliceMs), kDrainSliceMs + kAnswerTimeoutMs);
    if (!report) return fail(report.error());
    const uint64_t left = report->value("bytes_left", uint64_t{0});
    const std::string state = report->value("state", std::string());
    if (left == 0) return {};
    on_progress(left);
    if (interrupted())
      return fail(
          ErrorCode::kAborted,
          fmt::format("interrupted with {} bytes not drained; they stay in the hot tier of the pool {}", left,
                      pool));
    const auto blocked = blocked_code(*report);
    if (!blocked || left < least_left) patience = after_ms(kBlockedPatienceMs);
    least_left = std::min(least_left, left);
    if (!blocked) continue;
    if (Steady::now() >= patience)
      return fail(
          *blocked,
          fmt::format("{} bytes of the pool {} cannot be drained ({}); they stay in the hot tier, see "
                      "`sluice status --pool {}`",
                      left, pool, state, pool));
    pause_ms(kDrainSliceMs);
  }
}

Result<UniqueFd> watch_holder(const std::string& pool) {
  auto holder = client::pool_holder(pool);
  if (!holder) return fail(holder.error());
  if (!*holder || **holder == 0) return UniqueFd();
  // One that ended since holds nothing any more.
  auto process = watch_process(**holder);
  return process ? std::move(*process) : UniqueFd();
}

Result<> stop_service(const std::string& pool) {
  auto reply = client::control_request(pool, "GET", "/status", kAnswerTimeoutMs);
  if (!reply) return fail(reply.error());
  const auto process = watch_process(reply->server_pid);
  auto asked = ask(pool, "POST", "/shutdown", kAnswerTimeoutMs, client::Unheard::kFail);
  if (!asked && asked.error().code != ErrorCode::kUnavailable) return fail(asked.error());
  // A process that cannot be watched is gone, or is out of our sight: then its lock has to do.
  const auto deadline = after_ms(kStopTimeoutMs);
  bool ended = process && wait_for_end(*process, kStopTimeoutMs);
  while (!process && !ended && Steady::now() < deadline) {
    const auto holder = client::pool_holder(pool);
    if (!holder) return fail(holder.error());
    ended = !*holder || (**holder != 0 && **holder != reply->server_pid);
    if (!ended) pause_ms(kLookAgainMs);
  }
  if (ended) return {};
  return fail(
      ErrorCode::kTimedOut,
      fmt::format("the service on {} (pid {}) was told to stop and did not end in {} s; see its log {}", pool,
                  reply->server_pid, kStopTimeoutMs / 1000, (fs::path(pool) / "sluiced.log").string()));
}

Result<ServiceUse> ServiceUse::begin(ServiceRequest request) {
  request.permanent = false;
  for (int tries = 1;; ++tries) {
    // Options may contradict the pool, which only sluiced can tell; without them, a service that answers will
    // do.
    if (!request.options.empty() || !answers(request.pool)) {
      if (auto started = start_service(request); !started) return fail(started.error());
    }
    const fs::path file = fs::path(request.pool) / "users";
    auto users = open_file(file, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (!users) return fail(users.error());
    while (::flock(users->get(), LOCK_SH) != 0)
      if (errno != EINTR) return fail(errno_error(errno, "lock", file.string()));
    // Its last user may have stopped it before we were one.
    if (answers(request.pool)) return ServiceUse(std::move(request.pool), std::move(*users));
    if (tries == kMaxStartTries)
      return fail(ErrorCode::kUnavailable,
                  fmt::format("the service on {} starts and stops again; see its log {}", request.pool,
                              (fs::path(request.pool) / "sluiced.log").string()));
  }
}

// A private service that no program is connected to. The session of a program that was killed goes on for its
// lease; its connection ends with it, or a moment later.
bool ServiceUse::is_forsaken(const std::string& pool) {
  const auto deadline = after_ms(kGoneClientMs);
  while (true) {
    const auto status = ask(pool, "GET", "/status", kAnswerTimeoutMs);
    if (!status || !status->value("private", false)) return false;
    if (status->value("/counters/clients"_json_pointer, 0) == 0) return true;
    if (Steady::now() >= deadline) return false;
    pause_ms(kLookAgainMs);
  }
}

Result<bool> ServiceUse::end(Drain drain, const std::function<void(uint64_t)>& on_progress,
                             const std::function<bool()>& interrupted) {
  UniqueFd users = std::move(users_);
  if (!users) return false;
  auto status = ask(pool_, "GET", "/status", kAnswerTimeoutMs);
  if (!status) {
    if (status.error().code == ErrorCode::kUnavailable) return true;  // somebody stopped it
    return fail(status.error());
  }
  const bool is_private = status->value("private", false);
  Result<> drained;
  if (is_private || drain == Drain::kAlways) drained = drain_service(pool_, on_progress, interrupted);
  if (!is_private) {
    if (!drained) return fail(drained.error());
    return false;
  }
  // Without our share first: two last users must not wait for each other. Whoever gets the whole lock stops
  // the service.
  ::flock(users.get(), LOCK_UN);
  bool stopped = false;
  if (::flock(users.get(), LOCK_EX | LOCK_NB) == 0 && is_forsaken(pool_)) {
    if (auto done = stop_service(pool_); !done) return fail(done.error());
    stopped = true;
  }
  if (!drained) return fail(drained.error());
  return stopped;
}

ServiceUse::~ServiceUse() {
  if (!users_) return;
  auto ended = end(
      Drain::kWhenPrivate, [](uint64_t) {}, [] { return false; });
  if (!ended) std::fprintf(stderr, "sluice: %s\n", ended.error().message.c_str());
}

}  // namespace sluice::tools
