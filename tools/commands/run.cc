// run: a service for the time of one MPI program.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "client/control_client.h"
#include "tools/commands/commands.h"
#include "tools/exit_code.h"
#include "tools/process.h"
#include "tools/progress.h"

namespace sluice::tools {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// While it lives, signals that would end us are read from a descriptor.
class Signals {
 public:
  static Result<Signals> block() {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : kForwarded) sigaddset(&set, signal);
    if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return fail(errno_error(errno, "block", "signals"));
    UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd) return fail(errno_error(errno, "open", "the signal descriptor"));
    return Signals(std::move(fd));
  }
  int fd() const { return fd_.get(); }
  // The next one that came, if any.
  std::optional<signalfd_siginfo> next() const {
    signalfd_siginfo info{};
    if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
    return info;
  }

 private:
  explicit Signals(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

Result<std::vector<std::string>> mpirun_command(const RunOptions& options, const std::string& pool) {
  auto preload = library("libsluice_romio.so");
  if (!preload) return fail(preload.error());
  std::optional<std::string> mpirun = options.mpirun;
  // The plain name may be another MPI's.
  if (mpirun->empty())
    mpirun = find_program({"mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich", "mpirun", "mpiexec"});
  if (!mpirun)
    return fail(ErrorCode::kNotFound,
                "there is no mpirun on PATH; install MPICH (apt-get install mpich) or give --mpirun PROGRAM");
  std::string preloads = preload->string();
  if (const char* others = std::getenv("LD_PRELOAD"); others != nullptr && *others != 0)
    preloads += std::string(":") + others;
  std::vector<std::string> command{*mpirun, "-n",          std::to_string(options.ranks),
                                   "-genv", "LD_PRELOAD",  preloads,
                                   "-genv", "SLUICE_POOL", pool,
                                   "-genv", kServiceKind,  "private"};
  command.insert(command.end(), options.command.begin(), options.command.end());
  return command;
}

// Waits for our child and passes on what is sent to us. What the terminal sends, it sends to the child as
// well. Answers the child's exit code, or, since mpirun has no code of its own for that, what a shell would
// call the end by the signal.
int wait_passing_signals(pid_t child, const UniqueFd& process, const Signals& signals) {
  int signalled = 0;
  while (true) {
    pollfd waiting[] = {{process.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0) continue;
    while (auto signal = signals.next()) {
      signalled = static_cast<int>(signal->ssi_signo);
      if (signal->ssi_code != SI_KERNEL) ::kill(child, signalled);
    }
    int status = 0;
    if (waiting[0].revents != 0 && ::waitpid(child, &status, WNOHANG) == child)
      return signalled != 0 ? 128 + signalled : shell_exit_code(status);
  }
}

// Where the bytes are now, for the user of a pool that he may not have named.
void say_where(const std::string& pool) {
  auto reply = client::control_request(pool, "GET", "/status", 5'000);
  if (!reply) return;
  const auto status = nlohmann::json::parse(reply->body, nullptr, false);
  if (!status.is_object()) return;
  say(fmt::format("the pool {} holds {} file(s); see `sluice ls --pool {} /`", pool,
                  status.value("files", uint64_t{0}), pool));
}

}  // namespace

int run_run(const RunOptions& options) {
  Common common = options.common;
  if (common.pool.empty()) common.pool = kDefaultPool;
  auto pool = pool_of(common);
  if (!pool) return report(pool.error());
  auto words = sluiced_words(options.pool);
  if (!words) return report(words.error());
  auto command = mpirun_command(options, *pool);
  if (!command) return report_as(command.error(), kRunNoCommand);
  auto use = ServiceUse::begin(
      {.pool = *pool, .options = std::move(*words), .may_create = true, .permanent = false});
  if (!use) {
    const int code = exit_code_of(use.error());
    return report_as(use.error(), code == kUsage || code == kRefused ? code : kRunNoService);
  }

  auto signals = Signals::block();
  if (!signals) return report_as(signals.error(), kRunNoCommand);
  auto child = spawn_attached(*command);
  if (!child) return report_as(child.error(), kRunNoCommand);
  auto process = watch_process(*child);
  if (!process) return report_as(process.error(), kRunNoCommand);
  const int code = wait_passing_signals(*child, *process, *signals);

  if (code != 0)
    say(fmt::format("the program ended with code {}; what it had not synced or closed is dropped", code));
  say_where(*pool);
  uint64_t most = 0;
  std::optional<Progress> progress;
  auto ended = use->end(
      ServiceUse::Drain::kAlways,
      [&](uint64_t left) {
        most = std::max(most, left);
        if (!progress) progress.emplace("draining", most);
        progress->set_total(most);
        progress->show(most - left);
      },
      [&] { return signals->next().has_value(); });
  progress.reset();
  if (ended) return code;
  const int own = report_as(ended.error(), kRunNotDrained);
  return code != 0 ? code : own;
}

}  // namespace sluice::tools
