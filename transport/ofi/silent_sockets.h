#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace sluice::transport {

// Ends connections that libfabric accepted and that never said what its handshake wants: it waits for that
// forever and tells nobody of them, so they are found among the descriptors of this process. libfabric closes
// a socket that was shut down. On the thread that drives libfabric.
class SilentSockets {
 public:
  // `port` is the listener's. A connection may be silent for `patience_ms`.
  SilentSockets(uint16_t port, uint64_t patience_ms);

  // Looks when it is time to: twice in that time, and not while nothing happens. `known` says whether the
  // connection from this address was told of; asked for each one at the port. True when it looked.
  bool look(uint64_t now_ms, const std::function<bool(const std::string& remote)>& known);
  // How long the loop may sleep at most before look() is called again.
  std::chrono::milliseconds wait_limit(uint64_t now_ms) const;

 private:
  const uint16_t port_;
  const uint64_t patience_ms_;
  const uint64_t interval_ms_;
  uint64_t next_look_ms_ = 0;
  bool look_again_ = false;
  std::map<std::string, uint64_t> silent_since_;  // by the address of the other end
};

}  // namespace sluice::transport
