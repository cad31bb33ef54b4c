#include "server/control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.h"
#include "base/os.h"

namespace sluice::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Local = asio::local::stream_protocol;
using Stream = beast::basic_stream<Local, asio::any_io_executor>;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;
using boost::system::error_code;

Response make_response(const Request& request, http::status status, std::string body,
                       const char* type = "application/json") {
  Response response(status, request.version());
  response.set(http::field::content_type, type);
  response.keep_alive(false);
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

Response refusal(const Request& request, http::status status, std::string_view why) {
  return make_response(request, status, nlohmann::json{{"error", std::string(why)}}.dump() + "\n");
}

// N of "?wait_ms=N"; nothing when that is no number.
std::optional<uint64_t> wait_of(std::string_view query) {
  if (query.empty()) return 0;
  constexpr std::string_view kName = "wait_ms=";
  if (!query.starts_with(kName)) return std::nullopt;
  query.remove_prefix(kName.size());
  uint64_t wait_ms = 0;
  const auto [end, error] = std::from_chars(query.data(), query.data() + query.size(), wait_ms);
  if (error != std::errc{} || end != query.data() + query.size()) return std::nullopt;
  return std::min(wait_ms, kMaxDrainWaitMs);
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == 0 || peer.uid == ::geteuid());
}

// One connection: one request, one answer. Keeps itself alive through its pending operation.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Local::socket socket, asio::io_context& io, const ControlCalls& calls, size_t& count,
             std::chrono::milliseconds timeout)
      : calls_(calls), timeout_(timeout), count_(count), stream_(std::move(socket)), timer_(io) {
    ++count_;
  }
  ~Connection() { --count_; }

  void start() {
    stream_.expires_after(timeout_);
    parser_.header_limit(kMaxControlHeaderBytes);
    parser_.body_limit(kMaxControlRequestBytes);
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](error_code ec, size_t) { self->received(ec); });
  }

 private:
  void received(error_code ec) {
    if (ec) log::debug("control: a request was dropped: {}", ec.message());
    if (ec == http::error::body_limit || ec == http::error::header_limit) {
      reply(refusal({}, http::status::payload_too_large, "the request is too large"));
      return;
    }
    if (ec) return;
    request_ = parser_.release();
    const std::string_view target(request_.target().data(), request_.target().size());
    const std::string_view path = target.substr(0, target.find('?'));
    const std::string_view query =
        path.size() < target.size() ? target.substr(path.size() + 1) : std::string_view();
    dispatch(path, query);
  }

  void dispatch(std::string_view path, std::string_view query) {
    const bool get = request_.method() == http::verb::get, post = request_.method() == http::verb::post;
    if (path == "/status" && get) {
      reply(make_response(request_, http::status::ok, calls_.status_json()));
    } else if (path == "/metrics" && get) {
      reply(make_response(request_, http::status::ok, calls_.metrics(), "text/plain; version=0.0.4"));
    } else if (path == "/shutdown" && post) {
      stop_after_reply_ = true;
      reply(make_response(request_, http::status::ok, "{\"stopping\": true}\n"));
    } else if (path == "/keep" && post) {
      calls_.keep();
      reply(make_response(request_, http::status::ok, "{\"private\": false}\n"));
    } else if (path == "/announce" && post) {
      auto announced = calls_.announce();
      reply(announced ? make_response(request_, http::status::ok, "{\"announced\": true}\n")
                      : refusal(request_, http::status::internal_server_error, announced.error().message));
    } else if (path == "/drain" && post) {
      const auto wait_ms = wait_of(query);
      if (!wait_ms) return reply(refusal(request_, http::status::bad_request, "write /drain?wait_ms=N"));
      stream_.expires_never();
      drain_end_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(*wait_ms);
      calls_.kick_drain();
      watch_drain();
    } else if (path == "/status" || path == "/metrics" || path == "/shutdown" || path == "/drain" ||
               path == "/keep" || path == "/announce") {
      reply(refusal(request_, http::status::method_not_allowed, "not with this method"));
    } else {
      reply(refusal(request_, http::status::not_found,
                    "there are /status, /metrics, /drain, /keep, /announce and /shutdown"));
    }
  }

  void watch_drain() {
    const DrainState state = calls_.drain_state();
    if (state.bytes_left == 0 || state.blocked || std::chrono::steady_clock::now() >= drain_end_) {
      const nlohmann::json body{
          {"bytes_left", state.bytes_left},
          {"state", state.state},
          {"blocked",
           state.blocked ? nlohmann::json(static_cast<unsigned>(*state.blocked)) : nlohmann::json()}};
      reply(make_response(request_, http::status::ok,
                          body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
      return;
    }
    timer_.expires_after(std::chrono::milliseconds(20));
    timer_.async_wait([self = shared_from_this()](error_code ec) {
      if (!ec) self->watch_drain();
    });
  }

  void reply(Response response) {
    response_ = std::move(response);
    stream_.expires_after(timeout_);
    http::async_write(stream_, response_, [self = shared_from_this()](error_code, size_t) {
      error_code ignored;
      self->stream_.socket().shutdown(Local::socket::shutdown_send, ignored);
      if (self->stop_after_reply_) self->calls_.shut_down();
    });
  }

  const ControlCalls& calls_;
  const std::chrono::milliseconds timeout_;
  size_t& count_;
  Stream stream_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_{kMaxControlHeaderBytes + kMaxControlRequestBytes};
  http::request_parser<http::string_body> parser_;
  Request request_;
  Response response_;
  std::chrono::steady_clock::time_point drain_end_;
  bool stop_after_reply_ = false;
};

class HttpControl final : public Control {
 public:
  HttpControl(std::filesystem::path socket, ControlCalls calls, uint64_t timeout_ms)
      : socket_(std::move(socket)), calls_(std::move(calls)), timeout_(timeout_ms) {}

  ~HttpControl() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    ::unlink(socket_.c_str());
  }

  Result<> start() {
    if (auto bound = bind(); !bound) return bound;
    accept();
    watch();
    thread_ = std::thread([this] { io_.run(); });
    return {};
  }

 private:
  // A socket address holds 107 bytes; /proc/self/fd shortens any directory. The socket gets its name only
  // when its mode is right.
  Result<> bind() {
    auto directory = open_file(socket_.parent_path(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (!directory) return fail(directory.error());
    const std::string name = socket_.filename().string();
    const std::string scratch = fmt::format("{}.{}", name, ::getpid());
    const std::string address = fmt::format("/proc/self/fd/{}/{}", directory->get(), scratch);
    const auto wrong = [&](const char* what, int code) {
      ::unlinkat(directory->get(), scratch.c_str(), 0);
      return fail(errno_error(code, what, socket_.string()));
    };
    ::unlinkat(directory->get(), scratch.c_str(), 0);
    error_code ec;
    acceptor_.open(Local(), ec);
    if (!ec) acceptor_.bind(Local::endpoint(address), ec);
    if (ec) return wrong("listen at", ec.value());
    if (::fchmodat(directory->get(), scratch.c_str(), 0600, 0) != 0) return wrong("set the mode of", errno);
    acceptor_.listen(kMaxControlConnections, ec);
    if (ec) return wrong("listen at", ec.value());
    struct stat made {};
    if (::fstatat(directory->get(), scratch.c_str(), &made, AT_SYMLINK_NOFOLLOW) != 0)
      return wrong("look at", errno);
    if (::renameat(directory->get(), scratch.c_str(), directory->get(), name.c_str()) != 0)
      return wrong("create", errno);
    device_ = made.st_dev;
    inode_ = made.st_ino;
    return {};
  }

  bool has_its_name() const {
    struct stat there {};
    return ::lstat(socket_.c_str(), &there) == 0 && there.st_dev == device_ && there.st_ino == inode_;
  }

  void watch() {
    watch_.expires_after(std::chrono::milliseconds(kControlWatchMs));
    watch_.async_wait([this](error_code ec) {
      if (ec) return;
      if (!has_its_name()) bind_again();
      if (auto announced = calls_.announce(); !announced) complain(announced.error());
      watch();
    });
  }

  void bind_again() {
    ++generation_;
    error_code ignored;
    acceptor_.close(ignored);
    if (auto bound = bind(); !bound) return complain(bound.error());
    log::warn("control: {} was gone and is made anew", socket_.string());
    accept();
  }

  // Once for each new reason: it is met again every second.
  void complain(const Error& error) {
    if (complaint_ != error.message) log::warn("control: {}", error.message);
    complaint_ = error.message;
  }

  void accept() {
    acceptor_.async_accept([this, generation = generation_](error_code ec, Local::socket socket) {
      if (ec == asio::error::operation_aborted || generation != generation_) return;
      if (ec) {
        // Out of descriptors, most likely: others finish, then there are some again.
        log::warn("control: cannot accept a connection: {}", ec.message());
        pause_.expires_after(std::chrono::milliseconds(100));
        pause_.async_wait([this, generation](error_code stopped) {
          if (!stopped && generation == generation_) accept();
        });
        return;
      }
      if (connections_ < kMaxControlConnections && same_user(socket.native_handle()))
        std::make_shared<Connection>(std::move(socket), io_, calls_, connections_, timeout_)->start();
      accept();
    });
  }

  const std::filesystem::path socket_;
  const ControlCalls calls_;
  const std::chrono::milliseconds timeout_;
  size_t connections_ = 0;  // before io_: pending connections die with it, and count themselves down
  asio::io_context io_{1};
  Local::acceptor acceptor_{io_};
  asio::steady_timer pause_{io_};
  asio::steady_timer watch_{io_};
  dev_t device_ = 0;  // of the socket that bind() made
  ino_t inode_ = 0;
  uint64_t generation_ = 0;  // of the acceptor
  std::string complaint_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Control>> Control::create(const std::filesystem::path& socket, ControlCalls calls,
                                                 uint64_t timeout_ms) {
  auto control = std::make_unique<HttpControl>(socket, std::move(calls), timeout_ms);
  if (auto started = control->start(); !started) return fail(started.error());
  return control;
}

}  // namespace sluice::server
