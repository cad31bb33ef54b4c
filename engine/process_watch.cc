#include "engine/process_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace sluice::engine {

ProcessWatch::ProcessWatch(uint32_t process)
    : process_(process),
      watched_(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0))) {}

bool ProcessWatch::ended() const {
  if (!watched_) return ::kill(static_cast<pid_t>(process_), 0) != 0 && errno == ESRCH;
  pollfd ended{watched_.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 1;
}

}  // namespace sluice::engine
