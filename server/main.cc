// sluiced: serves one pool.
//
// Exit codes: 0 stopped in order, 1 failed (the reason is the last line on stderr, and in the log), 2 wrong
// usage.
// --ready-fd: one line, then the descriptor is closed: "ready", "ready made" (and the pool is new), "running
// PID" (another process serves the pool; this one ends with 1), or "error CODE WHY" with CODE as in
// base/error.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "base/os.h"
#include "server/command_line.h"
#include "server/service.h"
#include "storage/target.h"

namespace {

using namespace sluice;
namespace fs = std::filesystem;

constexpr off_t kLogLimitBytes = 16 << 20;  // at a start a longer log is put aside as sluiced.log.1

// Blocked before the first thread exists, so that every thread inherits it and the signals arrive here only.
Result<UniqueFd> block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of file sizes fails as any other
  if (::pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0)
    return fail(errno_error(errno, "block", "signals"));
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!fd) return fail(errno_error(errno, "open", "the signal descriptor"));
  return fd;
}

// Each client and each shard that is open takes a descriptor; the limit that shells set is for their own
// kind.
void raise_descriptor_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    log::warn("cannot raise the limit of open files to {}: {}", limit.rlim_max, std::strerror(errno));
}

// stderr, and with it whatever a library or a broken assertion prints, goes to the log.
Result<> redirect_output(const fs::path& log_file) {
  struct stat info {};
  if (::stat(log_file.c_str(), &info) == 0 && info.st_size > kLogLimitBytes) {
    std::error_code ignored;
    fs::rename(log_file, log_file.string() + ".1", ignored);
  }
  auto log = open_file(log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (!log) return fail(log.error());
  if (::dup2(log->get(), STDOUT_FILENO) < 0 || ::dup2(log->get(), STDERR_FILENO) < 0)
    return fail(errno_error(errno, "redirect output to", log_file.string()));
  return {};
}

void say_ready(int fd, const std::string& line) {
  if (fd < 0) return;
  const ssize_t written = ::write(fd, line.data(), line.size());
  static_cast<void>(written);  // whoever waits sees the end of the pipe all the same
  ::close(fd);
}

void wait_for_stop(int signals, int shutdown_request) {
  while (true) {
    pollfd waiting[] = {{signals, POLLIN, 0}, {shutdown_request, POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0) continue;
    if (waiting[1].revents != 0) {
      log::info("stopping: asked by the control plane");
      return;
    }
    signalfd_siginfo info{};
    if (waiting[0].revents != 0 && ::read(signals, &info, sizeof info) == sizeof info) {
      log::info("stopping: signal {} from process {}", info.ssi_signo, info.ssi_pid);
      return;
    }
  }
}

Result<server::PoolConfig> open_pool(const server::PoolPaths& paths, const server::PoolRequest& request) {
  std::error_code ec;
  if (!fs::exists(paths.config(), ec)) {
    auto formatted =
        server::format_pool(paths, request, [](const fs::path& path, uint64_t pool_id, uint32_t target) {
          return storage::format_file_target(path, pool_id, TargetId(target));
        });
    if (!formatted)
      return fail_with_context("cannot make a pool in " + paths.pool.string(), formatted.error());
    return formatted;
  }
  auto config = server::load_pool(paths);
  if (!config) return config;
  return server::apply_request(std::move(*config), request);
}

struct Failure {
  Error error;
  std::optional<int> holder;  // another server's pid
};

// Everything between the first lock and the last byte. Answers why it could not start.
std::optional<Failure> serve(const server::CommandLine& line, int signals) {
  std::error_code ec;
  const server::PoolPaths paths(fs::absolute(line.pool, ec).lexically_normal());
  if (line.existing) {
    if (auto there = server::load_pool(paths); !there) return Failure{there.error(), {}};
  }
  if (auto sane = server::check_request(paths, line.request); !sane) return Failure{sane.error(), {}};
  std::optional<int> holder;
  // Given back by the kernel only: who finds the pool free finds no process any more that ends.
  static const auto& lock = *new auto(server::PoolLock::acquire(paths, &holder));
  if (!lock)
    return Failure{lock.error(),
                   lock.error().code == ErrorCode::kBusy ? std::optional(holder.value_or(0)) : std::nullopt};
  fs::remove(paths.service(), ec);  // of a server that died: nobody is to look for it while this one starts

  const bool is_new = !fs::exists(paths.config(), ec);
  auto config = open_pool(paths, line.request);
  if (!config) return Failure{config.error(), {}};
  UniqueFd shutdown_request(::eventfd(0, EFD_CLOEXEC));
  if (!shutdown_request) return Failure{errno_error(errno, "open", "an event descriptor"), {}};

  // What goes wrong while starting is told on stderr as it was given to us; the log has it too.
  UniqueFd told_stderr(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!line.foreground) {
    if (auto redirected = redirect_output(paths.log()); !redirected) return Failure{redirected.error(), {}};
  }
  log::init_log("sluiced", log::Level::kInfo);
  raise_descriptor_limit();
  server::ServiceOptions options;
  options.accept_lost_hot_tier = line.accept_lost_hot_tier;
  options.private_service = line.private_service;
  options.on_shutdown_request = [fd = shutdown_request.get()] {
    const uint64_t one = 1;
    const ssize_t written = ::write(fd, &one, sizeof one);
    static_cast<void>(written);  // an event descriptor takes 2^64 - 2 of them
  };
  auto service = server::Service::start(paths, *config, options);
  if (!service) {
    log::error("cannot start: {}", service.error().message);
    if (!line.foreground) ::dup2(told_stderr.get(), STDERR_FILENO);
    return Failure{service.error(), {}};
  }
  told_stderr.reset();
  say_ready(line.ready_fd, is_new ? "ready made\n" : "ready\n");
  wait_for_stop(signals, shutdown_request.get());
  (*service)->stop();
  log::info("stopped");
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  auto line = server::parse_command_line(argc, argv);
  if (!line) {
    std::fprintf(stderr, "sluiced: %s\n", line.error().message.c_str());
    return 2;
  }
  if (line->help) {
    std::fputs(server::kUsage, stdout);
    return 0;
  }
  if (line->ready_fd >= 0) ::fcntl(line->ready_fd, F_SETFD, FD_CLOEXEC);
  auto signals = block_signals();
  if (!signals) {
    std::fprintf(stderr, "sluiced: %s\n", signals.error().message.c_str());
    return 1;
  }
  const auto failure = serve(*line, signals->get());
  if (!failure) return 0;
  const Error& error = failure->error;
  say_ready(line->ready_fd,
            failure->holder ? fmt::format("running {}\n", *failure->holder)
                            : fmt::format("error {} {}\n", static_cast<unsigned>(error.code), error.message));
  std::fprintf(stderr, "sluiced: %s\n", error.message.c_str());
  return 1;
}
