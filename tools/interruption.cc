#include "tools/interruption.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>

namespace sluice::tools {

Result<std::unique_ptr<Interruption>> Interruption::begin(uint64_t grace_ms) {
  sigset_t set, before;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    // One that is ignored (nohup, a shell's background) would be delivered all the same once it is blocked.
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return fail(errno_error(errno, "open", "an event descriptor"));
  if (::pthread_sigmask(SIG_BLOCK, &set, &before) != 0) return fail(errno_error(errno, "block", "signals"));
  UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) {
    const int code = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return fail(errno_error(code, "open", "the signal descriptor"));
  }
  return std::unique_ptr<Interruption>(
      new Interruption(grace_ms, before, std::move(signals), std::move(stop)));
}

Interruption::Interruption(uint64_t grace_ms, sigset_t before, UniqueFd signals, UniqueFd stop)
    : grace_ms_(grace_ms),
      before_(before),
      signals_(std::move(signals)),
      stop_(std::move(stop)),
      thread_([this] { watch(); }) {}

Interruption::~Interruption() {
  const uint64_t one = 1;
  const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  static_cast<void>(written);  // an event descriptor takes 2^64 - 2 of them
  thread_.join();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interruption::guard(const std::filesystem::path& file) {
  const std::lock_guard lock(mutex_);
  guarded_.insert(file);
}

void Interruption::release(const std::filesystem::path& file) {
  const std::lock_guard lock(mutex_);
  guarded_.erase(file);
}

void Interruption::watch() {
  using Steady = std::chrono::steady_clock;
  Steady::time_point end{};
  while (true) {
    const bool in_grace = signal_ != 0 && !done_;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Steady::now()).count();
    if (in_grace && left <= 0) return end_by_signal();
    pollfd waiting[] = {{signals_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(waiting, 2, in_grace ? static_cast<int>(left) : -1) < 0) continue;
    if (waiting[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) != sizeof info) continue;
    if (signal_ != 0) return end_by_signal();
    end = Steady::now() + std::chrono::milliseconds(grace_ms_);
    signal_ = static_cast<int>(info.ssi_signo);
  }
}

void Interruption::end_by_signal() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& file : guarded_) ::unlink(file.c_str());
    guarded_.clear();
  }
  const int signal = signal_;
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::kill(::getpid(), signal);
}

}  // namespace sluice::tools
