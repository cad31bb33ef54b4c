#include "client/control_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstring>

#include "base/os.h"
#include "client/service.h"

namespace sluice::client {
namespace {

constexpr size_t kMaxReplyBytes = 16 << 20;
constexpr int kAskAgainMs = 20;
using Time = std::chrono::steady_clock::time_point;

tl::unexpected<Error> unavailable(const std::filesystem::path& pool, std::string_view why) {
  Error error(ErrorCode::kUnavailable,
              fmt::format("no service answers for the pool {} ({}); start it with `sluice up --pool {}`",
                          pool.string(), why, pool.string()));
  return fail(error.mark_retryable());
}

tl::unexpected<Error> timed_out(const std::filesystem::path& pool) {
  Error error(ErrorCode::kTimedOut,
              fmt::format("the service of the pool {} did not answer in time; its log is {}", pool.string(),
                          (pool / "sluiced.log").string()));
  return fail(error.mark_retryable());
}

tl::unexpected<Error> unheard_holder(const std::filesystem::path& pool, int pid) {
  const std::string who = pid == 0 ? "a process" : fmt::format("process {}", pid);
  Error error(
      ErrorCode::kTimedOut,
      fmt::format("{} holds the pool {} and does not answer at {}; see its log {}, or end it with {}", who,
                  pool.string(), (pool / "control.sock").string(), (pool / "sluiced.log").string(),
                  pid == 0 ? "`kill`" : fmt::format("`kill {}`", pid)));
  return fail(error.mark_retryable());
}

// The connection ended before the answer: to be asked again.
tl::unexpected<Error> closed() {
  return fail(ErrorCode::kBusy, "the connection was closed");
}

// A socket address holds 107 bytes; /proc/self/fd shortens any directory.
Result<UniqueFd> connect_to(const std::filesystem::path& pool) {
  UniqueFd directory(::open(pool.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) {
    const int code = errno;
    if (code == ENOENT || code == ENOTDIR)
      return fail(
          ErrorCode::kNotFound,
          fmt::format("there is no pool in {} (no such directory); create one with `sluice up --pool {}`",
                      pool.string(), pool.string()));
    return fail(errno_error(code, "open", pool.string()));
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail(errno_error(errno, "create a socket for", pool.string()));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/control.sock", directory.get());
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int code = errno;
    if (code == EACCES || code == EPERM)
      return fail(ErrorCode::kAccess,
                  fmt::format("the service of the pool {} belongs to another user", pool.string()));
    return unavailable(pool, code == ENOENT ? "it has no control socket" : std::strerror(code));
  }
  return socket;
}

Result<> wait_for(int fd, short events, Time deadline, const std::filesystem::path& pool) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd waiting{fd, events, 0};
    const int ready = left <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
    if (ready > 0) return {};
    if (ready < 0 && errno == EINTR) continue;
    Error error(ErrorCode::kTimedOut,
                fmt::format("the service of the pool {} did not answer in time; its log is {}", pool.string(),
                            (pool / "sluiced.log").string()));
    return fail(error.mark_retryable());
  }
}

Result<> send_all(int fd, std::string_view text, Time deadline, const std::filesystem::path& pool) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (auto ready = wait_for(fd, POLLOUT, deadline, pool); !ready) return ready;
    } else if (errno != EINTR) {
      return closed();
    }
  }
  return {};
}

// The server closes the connection after its answer.
Result<std::string> receive_all(int fd, Time deadline, const std::filesystem::path& pool) {
  std::string text;
  std::string piece(64 * 1024, '\0');
  while (true) {
    const ssize_t got = ::recv(fd, piece.data(), piece.size(), 0);
    if (got == 0) return text;
    if (got > 0) {
      text.append(piece.data(), static_cast<size_t>(got));
      if (text.size() > kMaxReplyBytes)
        return fail(ErrorCode::kProtocol,
                    fmt::format("the service of the pool {} answers without an end", pool.string()));
    } else if (errno == EAGAIN) {
      if (auto ready = wait_for(fd, POLLIN, deadline, pool); !ready) return fail(ready.error());
    } else if (errno != EINTR) {
      return closed();
    }
  }
}

Result<ControlReply> parse_reply(const std::string& text, const std::filesystem::path& pool) {
  const auto wrong = [&] {
    return fail(ErrorCode::kProtocol,
                fmt::format("what answers at {} is not a sluice service", (pool / "control.sock").string()));
  };
  if (text.empty()) return closed();
  ControlReply reply;
  const size_t end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.") || end == std::string::npos || text.size() < 12) return wrong();
  if (std::from_chars(text.data() + 9, text.data() + 12, reply.status).ec != std::errc{}) return wrong();
  reply.body = text.substr(end + 4);
  return reply;
}

Result<ControlReply> ask_once(const std::filesystem::path& pool, const std::string& method,
                              const std::string& target, Time deadline) {
  auto socket = connect_to(pool);
  if (!socket) return fail(socket.error());
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail(errno_error(errno, "ask who serves", pool.string()));
  const std::string request = fmt::format(
      "{} {} HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", method, target);
  if (auto sent = send_all(socket->get(), request, deadline, pool); !sent) return fail(sent.error());
  auto text = receive_all(socket->get(), deadline, pool);
  if (!text) return fail(text.error());
  auto reply = parse_reply(*text, pool);
  if (reply) reply->server_pid = peer.pid;
  return reply;
}

}  // namespace

Result<ControlReply> control_request(const std::filesystem::path& pool, const std::string& method,
                                     const std::string& target, uint64_t timeout_ms, Unheard unheard) {
  const Time deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    auto reply = ask_once(pool, method, target, deadline);
    const bool late = std::chrono::steady_clock::now() >= deadline;
    if (!reply && reply.error().code == ErrorCode::kUnavailable && unheard == Unheard::kWaitForIt) {
      const auto holder = pool_holder(pool);
      if (!holder || !*holder) return reply;
      if (late) return unheard_holder(pool, **holder);
    } else if (reply || reply.error().code != ErrorCode::kBusy) {
      return reply;
    } else if (late) {
      return timed_out(pool);
    }
    // Every request may be made twice. A server that closed without an answer is overloaded, or ends; when it
    // has ended, the next connection is refused.
    ::poll(nullptr, 0, kAskAgainMs);
  }
}

}  // namespace sluice::client
