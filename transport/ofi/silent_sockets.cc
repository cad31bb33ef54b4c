#include "transport/ofi/silent_sockets.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"
#include "transport/ofi/socket_address.h"

namespace sluice::transport {

SilentSockets::SilentSockets(uint16_t port, uint64_t patience_ms)
    : port_(port), patience_ms_(patience_ms), interval_ms_(std::max<uint64_t>(patience_ms / 2, 1)) {}

bool SilentSockets::look(uint64_t now_ms, const std::function<bool(const std::string& remote)>& known) {
  if (now_ms < next_look_ms_) {
    look_again_ = true;  // what woke the loop now may be a connection
    return false;
  }
  next_look_ms_ = now_ms + interval_ms_;
  std::map<std::string, uint64_t> silent;
  for_each_connection([&](int fd, const SocketAddress& local, const SocketAddress& remote) {
    if (local.port() != port_) return;
    std::string from = remote.text();
    if (known(from)) return;
    const auto seen = silent_since_.find(from);
    const uint64_t since = seen == silent_since_.end() ? now_ms : seen->second;
    if (now_ms - since >= patience_ms_) {
      log::warn("a connection from {} was closed: it did not introduce itself in {} ms", from, patience_ms_);
      shutdown(fd, SHUT_RDWR);
    }
    silent.emplace(std::move(from), since);
  });
  silent_since_ = std::move(silent);
  look_again_ = !silent_since_.empty();
  return true;
}

std::chrono::milliseconds SilentSockets::wait_limit(uint64_t now_ms) const {
  if (!look_again_) return std::chrono::hours(1);
  return std::chrono::milliseconds(next_look_ms_ > now_ms ? next_look_ms_ - now_ms : 0);
}

}  // namespace sluice::transport
