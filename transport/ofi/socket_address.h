#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace sluice::transport {

// A numeric IPv4 or IPv6 address and port.
class SocketAddress {
 public:
  static constexpr size_t kCapacity = sizeof(sockaddr_storage);

  // "127.0.0.1" or "::1". Names are not looked up: that may block.
  static Result<SocketAddress> parse(const std::string& node, uint16_t port);
  // "tcp://127.0.0.1:4000" or "tcp://[::1]:4000".
  static Result<SocketAddress> parse_url(const std::string& url);

  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage_); }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  uint16_t port() const;
  // "127.0.0.1:4000" or "[::1]:4000".
  std::string text() const;
  bool operator==(const SocketAddress& other) const;

 private:
  sockaddr_storage storage_{};
};

// This process's connected TCP sockets: descriptor, and the addresses of both ends.
void for_each_connection(
    const std::function<void(int fd, const SocketAddress& local, const SocketAddress& remote)>& visit);
// Shuts down this process's connected TCP socket between these two addresses, if there is one.
void shut_down_socket(const SocketAddress& local, const SocketAddress& remote);

// A random number, never 0, that strangers do not guess: names connections and memory.
uint64_t random_name();

}  // namespace sluice::transport
