#include "transport/ofi/socket_address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <charconv>
#include <cstring>
#include <memory>

#include "base/assert.h"

namespace sluice::transport {

Result<SocketAddress> SocketAddress::parse(const std::string& node, uint16_t port) {
  SocketAddress out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage_);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage_);
  if (inet_pton(AF_INET, node.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    return out;
  }
  if (inet_pton(AF_INET6, node.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    return out;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is not a numeric address; give one like 127.0.0.1 or ::1", node));
}

Result<SocketAddress> SocketAddress::parse_url(const std::string& url) {
  const auto bad = [&] {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is not an address; expected tcp://127.0.0.1:4000 or tcp://[::1]:4000", url));
  };
  constexpr std::string_view kScheme = "tcp://";
  if (!url.starts_with(kScheme)) return bad();
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return bad();
  const std::string_view digits = rest.substr(colon + 1);
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size() || port == 0) return bad();
  auto parsed = parse(std::string(host), port);
  if (!parsed) return bad();
  return parsed;
}

uint16_t SocketAddress::port() const {
  // sin_port and sin6_port lie at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

std::string SocketAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (storage_.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
    inet_ntop(AF_INET6, &v6->sin6_addr, host.data(), host.size());
    return fmt::format("[{}]:{}", host.data(), ntohs(v6->sin6_port));
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
  inet_ntop(AF_INET, &v4->sin_addr, host.data(), host.size());
  return fmt::format("{}:{}", host.data(), ntohs(v4->sin_port));
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return storage_.ss_family == other.storage_.ss_family && text() == other.text();
}

void for_each_connection(
    const std::function<void(int, const SocketAddress& local, const SocketAddress& remote)>& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory.get())) {
    int fd = -1;
    const char* name = entry->d_name;
    if (std::from_chars(name, name + std::strlen(name), fd).ec != std::errc{}) continue;
    int type = 0;
    socklen_t length = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) continue;
    SocketAddress local;
    SocketAddress remote;
    length = SocketAddress::kCapacity;
    if (getsockname(fd, local.raw(), &length) != 0) continue;
    if (local.raw()->sa_family != AF_INET && local.raw()->sa_family != AF_INET6) continue;
    length = SocketAddress::kCapacity;
    if (getpeername(fd, remote.raw(), &length) == 0) visit(fd, local, remote);
  }
}

void shut_down_socket(const SocketAddress& local, const SocketAddress& remote) {
  for_each_connection([&](int fd, const SocketAddress& its_local, const SocketAddress& its_remote) {
    if (its_local == local && its_remote == remote) shutdown(fd, SHUT_RDWR);
  });
}

uint64_t random_name() {
  uint64_t name = 0;
  while (name == 0) SLUICE_ASSERT(getrandom(&name, sizeof name, 0) == sizeof name);
  return name;
}

}  // namespace sluice::transport
