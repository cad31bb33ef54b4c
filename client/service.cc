#include "client/service.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/os.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace sluice::client {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxServiceFileBytes = 64 * 1024;

Error not_running(const std::string& pool) {
  return Error(ErrorCode::kUnavailable,
               "no service runs on the pool " + pool + "; start one with `sluice up --pool " + pool + "`")
      .mark_retryable();
}

bool process_lives(uint32_t pid) {
  return pid != 0 && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
}

// The command that belongs to this very library: build/bin/sluice beside build/lib/libsluice*.so, or beside a
// program that links the library statically.
std::string sluice_command() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&find_service), &self) != 0 && self.dli_fname != nullptr) {
    std::error_code ignored;
    const fs::path here = fs::canonical(self.dli_fname, ignored).parent_path();
    for (const auto& candidate : {here / "sluice", here.parent_path() / "bin" / "sluice"}) {
      if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
    }
  }
  return "sluice";
}

// The environment without what would preload us into the service.
std::vector<char*> clean_environment() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

struct Output {
  int status = 0;
  std::string text;
};

Result<Output> run(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno_error(errno, "make", "a pipe"));
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  auto environment = clean_environment();
  pid_t pid = 0;
  const int spawned =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) return fail(errno_error(spawned, "run", command[0]));
  write_end.reset();
  Output output;
  std::array<char, 4096> piece{};
  while (true) {
    const ssize_t got = ::read(read_end.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.text.append(piece.data(), static_cast<size_t>(got));
  }
  while (::waitpid(pid, &output.status, 0) < 0 && errno == EINTR) {
  }
  return output;
}

}  // namespace

Result<ServiceRecord> find_service(const std::string& pool) {
  const fs::path file = fs::path(pool) / "service.json";
  auto text = read_file(file, kMaxServiceFileBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return fail(not_running(pool));
  if (!text) return fail(text.error());
  const auto record = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto addresses =
      record.is_object() ? record.value("addresses", nlohmann::json::array()) : nlohmann::json::array();
  if (!addresses.is_array() || addresses.empty() || !addresses[0].is_string() || !record.contains("pid") ||
      !record["pid"].is_number_unsigned()) {
    return fail(
        ErrorCode::kCorrupt,
        file.string() + " is not a service record; restart the service with `sluice up --pool " + pool + "`");
  }
  ServiceRecord found;
  found.address.text = addresses[0].get<std::string>();
  found.pid = record["pid"].get<uint32_t>();
  if (!process_lives(found.pid)) return fail(not_running(pool));
  return found;
}

Result<> start_service(const std::string& pool) {
  auto output = run({sluice_command(), "up", "--pool", pool});
  if (!output) return fail_with_context("cannot start a service on " + pool, output.error());
  if (WIFEXITED(output->status) && WEXITSTATUS(output->status) == 0) return {};
  std::string said = output->text;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return fail(ErrorCode::kUnavailable,
              "cannot start a service on " + pool + ": " + (said.empty() ? "no reason given" : said));
}

}  // namespace sluice::client
