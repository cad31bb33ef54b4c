#include "tools/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace sluice::tools {
namespace fs = std::filesystem;
namespace {

// Owns what posix_spawn needs.
class Spawn {
 public:
  Spawn() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }

  Result<pid_t> run(const std::vector<std::string>& command, const std::vector<char*>& environment) {
    posix_spawnattr_setflags(&attributes, flags);
    std::vector<char*> arguments;
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_t pid = 0;
    const int code =
        ::posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environment.data());
    if (code != 0) return fail(errno_error(code, "run", command[0]));
    return pid;
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  short flags = 0;
};

std::vector<char*> environment_without(std::string_view name) {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(name) || text.size() <= name.size() || text[name.size()] != '=')
      kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

}  // namespace

Result<fs::path> program_directory() {
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec);
  if (ec) return fail(errno_error(ec.value(), "read", "/proc/self/exe"));
  return self.parent_path();
}

Result<fs::path> library(const std::string& name) {
  auto here = program_directory();
  if (!here) return here;
  std::error_code ec;
  const fs::path path = here->parent_path() / "lib" / name;
  if (fs::exists(path, ec)) return path;
  return fail(
      ErrorCode::kNotFound,
      fmt::format("{} is not there; build it with ./bootstrap build, or keep bin/ and lib/ side by side",
                  path.string()));
}

std::optional<std::string> find_program(const std::vector<std::string>& names) {
  const char* path = std::getenv("PATH");
  for (const auto& name : names) {
    std::istringstream directories(path == nullptr ? "/usr/bin:/bin" : path);
    for (std::string directory; std::getline(directories, directory, ':');) {
      const fs::path candidate = fs::path(directory.empty() ? "." : directory) / name;
      if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
    }
  }
  return std::nullopt;
}

Result<pid_t> spawn_detached(const std::vector<std::string>& command, int pass) {
  Spawn spawn;
  posix_spawn_file_actions_addopen(&spawn.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&spawn.actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&spawn.actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&spawn.actions, pass, 3);
  posix_spawn_file_actions_addclosefrom_np(&spawn.actions, 4);
  spawn.flags |= POSIX_SPAWN_SETSID;
  return spawn.run(command, environment_without("LD_PRELOAD"));
}

Result<pid_t> spawn_attached(const std::vector<std::string>& command) {
  Spawn spawn;
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(nullptr);
  return spawn.run(command, environment);
}

int shell_exit_code(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Result<UniqueFd> watch_process(pid_t pid) {
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return fail(errno_error(errno, "watch", fmt::format("process {}", pid)));
  return process;
}

bool wait_for_end(const UniqueFd& process, uint64_t timeout_ms) {
  pollfd waiting{process.get(), POLLIN, 0};
  while (true) {
    const int ready = ::poll(&waiting, 1, static_cast<int>(timeout_ms));
    if (ready >= 0 || errno != EINTR) return ready == 1;
  }
}

void pause_ms(uint64_t ms) {
  ::poll(nullptr, 0, static_cast<int>(ms));
}

}  // namespace sluice::tools
