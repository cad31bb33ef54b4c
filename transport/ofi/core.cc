#include "transport/ofi/core.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "base/log.h"
#include "transport/ofi/socket_address.h"

namespace sluice::transport {
namespace {

constexpr int kLastTurns = 1000;
constexpr uint64_t kOwnDelayMs = 100;  // a tick that comes so late is this side's fault
constexpr uint64_t kLongestWaitMs = 1u << 30;
constexpr uint64_t kFarewellMs = 1000;  // how long a closed connection may take to say what it had to say

}  // namespace

OfiTransport::Core::Core(OfiOptions options, std::unique_ptr<Wire> wire)
    : options_(std::move(options)), wire_(std::move(wire)) {}

OfiTransport::Core::~Core() {
  handler_ = nullptr;
  const Error reason(ErrorCode::kAborted, "the transport was shut down");
  while (!connections_.empty()) {
    Connection& connection = *connections_.begin()->second;
    if (connection.state == Connection::State::kOpen && connection.messages.empty()) {
      FrameHeader header = connection.header(FrameKind::kBye);
      wire_->send(connection.link, make_frame(header, encode_farewell(reason)));
    }
    const auto removed = remove(connection);
    finish_requests(*removed, reason);
  }
  // Completions that were due, and some turns of what they ask for, which all fails; notices find no handler.
  for (int turn = 0; turn < kLastTurns && run_deferred(); ++turn) {
  }
}

Connection* OfiTransport::Core::find(PeerId peer) {
  const auto at = connections_.find(peer.value);
  return at == connections_.end() ? nullptr : at->second.get();
}

Connection* OfiTransport::Core::find(LinkId link) {
  const auto at = by_link_.find(link.value);
  return at == by_link_.end() ? nullptr : find(at->second);
}

Connection& OfiTransport::Core::add_connection(LinkId link, const Address& address, bool outgoing) {
  auto connection = std::make_unique<Connection>();
  connection->peer = PeerId(next_peer_++);
  connection->link = link;
  connection->address = address;
  connection->outgoing = outgoing;
  connection->local_name = random_name();
  connection->last_heard_ms = connection->last_sent_ms = now_ms();
  connection->deadline_ms = now_ms() + options_.connect_timeout_ms;
  Connection& added = *connection;
  by_link_.emplace(link.value, added.peer);
  by_name_.emplace(added.local_name, added.peer);
  connections_.emplace(added.peer.value, std::move(connection));
  return added;
}

std::unique_ptr<Connection> OfiTransport::Core::remove(Connection& connection) {
  by_link_.erase(connection.link.value);
  by_name_.erase(connection.local_name);
  wire_->close(connection.link);
  auto node = connections_.extract(connection.peer.value);
  return std::move(node.mapped());
}

Result<PeerId> OfiTransport::Core::connect(const Address& address) {
  if (connections_.size() >= kMaxConnections) {
    return fail(Error(ErrorCode::kBusy, fmt::format("{} connections are open already", connections_.size())));
  }
  auto link = wire_->open(address);
  if (!link) return fail_with_context("cannot connect to " + address.text, link.error());
  Connection& connection = add_connection(*link, address, /*outgoing=*/true);
  connection.greeting = make_frame(connection.header(FrameKind::kHello),
                                   encode_greeting({kProtocolVersion, wire_->address().text}));
  advance(connection);
  return connection.peer;
}

void OfiTransport::Core::disconnect(PeerId peer, const Error& reason) {
  notices_.erase(peer.value);
  Connection* connection = find(peer);
  if (connection == nullptr) return;
  const bool may_linger = connection->state == Connection::State::kOpen && !connection->rma_outstanding();
  if (!may_linger) {
    if (connection->state == Connection::State::kOpen && connection->messages.empty()) {
      wire_->send(connection->link, make_frame(connection->header(FrameKind::kBye), encode_farewell(reason)));
    }
    const auto removed = remove(*connection);
    finish_requests(*removed, reason);
    return;
  }
  by_link_.erase(connection->link.value);
  by_name_.erase(connection->local_name);
  auto node = connections_.extract(peer.value);
  say_farewell(std::move(node.mapped()), reason);
}

// The link stays until the other side has closed it on hearing the farewell, so that nothing said before is
// lost with the socket.
void OfiTransport::Core::say_farewell(std::unique_ptr<Connection> connection, const Error& reason) {
  connection->state = Connection::State::kClosing;
  if (!connection->farewell) {
    // The sequence is what it will be when the queue has gone out; take_data does not look at it in a bye.
    connection->farewell = make_frame(connection->header(FrameKind::kBye), encode_farewell(reason));
  }
  connection->deadline_ms = now_ms() + kFarewellMs;
  const LinkId link = connection->link;
  if (!flush_frames(*connection, *wire_, now_ms())) {
    wire_->close(link);
    return;
  }
  closing_.emplace(link.value, std::move(connection));
}

Result<> OfiTransport::Core::send(PeerId peer, std::vector<std::byte> message, bool hurried) {
  if (message.size() > kMaxMessageBytes) {
    return fail(ErrorCode::kTooLarge, fmt::format("a message of {} bytes; at most {} can be sent",
                                                  message.size(), kMaxMessageBytes));
  }
  Connection* connection = find(peer);
  if (connection == nullptr) return fail(gone("the connection is closed; connect again"));
  if (connection->messages.size() >= kMaxQueuedMessages) {
    Error error(ErrorCode::kBusy,
                fmt::format("{} messages to {} wait already", kMaxQueuedMessages, connection->address.text));
    return fail(error.mark_retryable());
  }
  connection->messages.push_back(
      {std::make_shared<const std::vector<std::byte>>(std::move(message)), hurried});
  advance(*connection);
  return {};
}

Result<std::unique_ptr<ExposedMemory>> OfiTransport::Core::expose(std::span<std::byte> memory,
                                                                  Access access) {
  return wire_->expose(memory, access);
}

void OfiTransport::Core::start_rma(PeerId peer, std::shared_ptr<RmaRequest> request) {
  const auto answer = [&](Result<> outcome) {
    deferred_.push_back([done = std::move(request->done), outcome = std::move(outcome)] { done(outcome); });
  };
  const RemoteBuffer& buffer = request->buffer;
  Connection* connection = find(peer);
  if (connection == nullptr) return answer(fail(gone("the connection is closed; connect again")));
  if (request->length > kMaxRmaBytes) {
    return answer(fail(ErrorCode::kTooLarge, fmt::format("{} bytes at once; at most {} can be moved",
                                                         request->length, kMaxRmaBytes)));
  }
  if (request->offset > buffer.length || request->length > buffer.length - request->offset ||
      buffer.address > UINT64_MAX - buffer.length) {
    return answer(fail(ErrorCode::kInvalidArgument,
                       fmt::format("bytes {} to {} of a peer's buffer of {}", request->offset,
                                   request->offset + request->length, buffer.length)));
  }
  if (request->length == 0) return answer({});
  if (connection->rmas.size() >= kMaxQueuedRmas) {
    Error error(ErrorCode::kBusy,
                fmt::format("{} transfers with {} wait already", kMaxQueuedRmas, connection->address.text));
    return answer(fail(error.mark_retryable()));
  }
  connection->rmas.push_back(std::move(request));
  advance(*connection);
}

void OfiTransport::Core::advance(Connection& connection) {
  if (!flush_frames(connection, *wire_, now_ms()) || !start_chunks(connection, *wire_, next_cookie_)) {
    lose_later(connection.peer, gone("the connection to " + connection.address.text + " broke"));
  }
}

void OfiTransport::Core::finish_requests(Connection& connection, const Error& reason) {
  for (const auto& request : take_requests(connection)) {
    deferred_.push_back([request, reason] { request->done(fail(reason)); });
  }
}

void OfiTransport::Core::lose(Connection& connection, Error reason) {
  log::debug("connection to {} lost: {}", connection.address.text, reason.message);
  const auto removed = remove(connection);
  finish_requests(*removed, reason);
  notices_.insert(removed->peer.value);
  deferred_.push_back([this, peer = removed->peer, reason = std::move(reason)] {
    if (notices_.erase(peer.value) > 0 && handler_ != nullptr) handler_->on_disconnected(peer, reason);
  });
}

void OfiTransport::Core::lose_later(PeerId peer, Error reason) {
  deferred_.push_back([this, peer, reason = std::move(reason)] {
    if (Connection* connection = find(peer)) lose(*connection, reason);
  });
}

void OfiTransport::Core::post(std::function<void()> work) {
  bool first = false;
  {
    const std::lock_guard lock(posted_mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(work));
  }
  if (first) wire_->wake();
}

void OfiTransport::Core::after_ms(uint64_t delay_ms, std::function<void()> work) {
  timers_.push_back({now_ms() + delay_ms, next_timer_++, std::move(work)});
  std::push_heap(timers_.begin(), timers_.end(), [](const Timer& a, const Timer& b) {
    return std::tie(a.due_ms, a.order) > std::tie(b.due_ms, b.order);
  });
}

bool OfiTransport::Core::run_posted() {
  std::deque<std::function<void()>> batch;
  {
    const std::lock_guard lock(posted_mutex_);
    batch.swap(posted_);
  }
  for (const auto& work : batch) work();
  return !batch.empty();
}

bool OfiTransport::Core::run_timers() {
  const auto later = [](const Timer& a, const Timer& b) {
    return std::tie(a.due_ms, a.order) > std::tie(b.due_ms, b.order);
  };
  const uint64_t now = now_ms();
  const uint64_t last = next_timer_;  // one set by another's work waits a turn, so that the loop gets on
  bool any = false;
  while (!timers_.empty() && timers_.front().due_ms <= now && timers_.front().order < last) {
    std::pop_heap(timers_.begin(), timers_.end(), later);
    const auto work = std::move(timers_.back().work);
    timers_.pop_back();
    work();
    any = true;
  }
  return any;
}

bool OfiTransport::Core::run_deferred() {
  std::deque<std::function<void()>> batch;
  batch.swap(deferred_);
  for (const auto& work : batch) work();
  return !batch.empty();
}

bool OfiTransport::Core::run_ready() {
  bool any = wire_->poll(*this);
  any |= run_posted();
  any |= run_timers();
  any |= run_deferred();
  tick();
  return any || !deferred_.empty();
}

void OfiTransport::Core::run_once(uint64_t max_wait_ms) {
  if (!run_ready()) wire_->wait(wait_limit(max_wait_ms));
}

std::optional<pid_t> OfiTransport::Core::process(PeerId peer) const {
  const auto at = connections_.find(peer.value);
  return at == connections_.end() ? std::nullopt : wire_->process(at->second->link);
}

std::span<const UniqueFd> OfiTransport::Core::lent(PeerId peer) const {
  const auto at = connections_.find(peer.value);
  return at == connections_.end() ? std::span<const UniqueFd>() : wire_->lent(at->second->link);
}

std::chrono::microseconds OfiTransport::Core::wait_limit(uint64_t max_wait_ms) const {
  const uint64_t now = now_ms();
  const auto until = [now](uint64_t due) { return due > now ? due - now : 0; };
  uint64_t limit = max_wait_ms;
  if (!timers_.empty()) limit = std::min(limit, until(timers_.front().due_ms));
  const bool watching = !connections_.empty() || !closing_.empty() || !strangers_.empty();
  if (watching) limit = std::min(limit, until(next_tick_ms_));
  return std::chrono::milliseconds(std::min<uint64_t>(limit, kLongestWaitMs));
}

void OfiTransport::Core::tick() {
  const uint64_t now = now_ms();
  if (now < next_tick_ms_) return;
  if (now - next_tick_ms_ >= kOwnDelayMs) forgive(now - next_tick_ms_);
  const uint64_t shortest =
      std::min({options_.keepalive_ms, options_.peer_timeout_ms, options_.connect_timeout_ms, kFarewellMs});
  next_tick_ms_ = now + std::max<uint64_t>(shortest / 4, 1);
  check_silence(now);
  std::erase_if(strangers_, [&](const auto& stranger) {
    if (stranger.second > now) return false;
    log::warn("a link was closed: it did not introduce itself in {} ms", options_.connect_timeout_ms);
    wire_->close(LinkId(stranger.first));
    return true;
  });
  std::erase_if(closing_, [&](const auto& entry) {
    if (entry.second->deadline_ms > now) return false;
    wire_->close(LinkId(entry.first));
    return true;
  });
}

// This loop was held up: the machine is overloaded, or was asleep, or a callback took long. What the peers
// said meanwhile may not be here yet, and they may have been held up as well.
void OfiTransport::Core::forgive(uint64_t late_ms) {
  const uint64_t now = now_ms();
  for (const auto& [id, connection] : connections_) {
    connection->last_heard_ms = std::min(connection->last_heard_ms + late_ms, now);
    connection->deadline_ms = std::min(connection->deadline_ms + late_ms, now + options_.connect_timeout_ms);
  }
}

void OfiTransport::Core::check_silence(uint64_t now) {
  std::vector<std::pair<PeerId, Error>> lost;
  for (const auto& [id, connection] : connections_) {
    if (connection->state == Connection::State::kGreeting) {
      if (now < connection->deadline_ms) continue;
      lost.emplace_back(PeerId(id), gone(fmt::format("{} did not answer in {} ms; is its server running?",
                                                     connection->address.text, options_.connect_timeout_ms)));
    } else if (now - connection->last_heard_ms >= options_.peer_timeout_ms) {
      lost.emplace_back(PeerId(id), gone(fmt::format("{} was silent for {} ms", connection->address.text,
                                                     now - connection->last_heard_ms)));
    } else {
      if (now - connection->last_sent_ms >= options_.keepalive_ms) connection->ping_due = true;
      advance(*connection);
    }
  }
  for (auto& [peer, reason] : lost) lose(*find(peer), std::move(reason));
}

}  // namespace sluice::transport
