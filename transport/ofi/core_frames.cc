// What arrives: links, frames, completions.
#include <fmt/format.h>

#include "base/log.h"
#include "transport/ofi/core.h"

namespace sluice::transport {
void OfiTransport::Core::on_incoming_link(LinkId link) {
  strangers_.emplace(link.value, now_ms() + options_.connect_timeout_ms);
}

void OfiTransport::Core::on_writable(LinkId link) {
  if (Connection* connection = find(link)) return advance(*connection);
  const auto at = closing_.find(link.value);
  if (at == closing_.end()) return;
  if (!flush_frames(*at->second, *wire_, now_ms())) {
    closing_.erase(at);
    wire_->close(link);
  }
}

void OfiTransport::Core::on_link_lost(LinkId link, const Error& reason) {
  strangers_.erase(link.value);
  closing_.erase(link.value);
  Connection* connection = find(link);
  if (connection == nullptr) return;
  lose(*connection, gone(connection->address.text + ": " + reason.message));
}

void OfiTransport::Core::on_rma_done(LinkId link, uint64_t cookie, const Result<>& outcome) {
  Connection* connection = find(link);
  if (connection == nullptr) return;
  const std::shared_ptr<RmaRequest> request = finish_chunk(*connection, cookie);
  if (request == nullptr) return;
  if (outcome && wire_->rma_shows_life(connection->link)) connection->last_heard_ms = now_ms();
  if (!outcome && !request->failed) request->failed = outcome.error();
  advance(*connection);  // may not call back
  if (!request->finished()) return;
  std::erase(connection->rmas, request);  // a failed one may have chunks not started
  request->done(request->failed ? Result<>(fail(*request->failed)) : Result<>());
}

void OfiTransport::Core::on_frame(std::optional<LinkId> link, std::span<const std::byte> bytes) {
  if (link && closing_.contains(link->value)) return;
  auto frame = decode_frame(bytes);
  if (!frame) return on_bad_frame(link, bytes, frame.error());
  const FrameHeader& header = frame->header;
  if (header.kind == FrameKind::kHello) return on_hello(link, *frame);

  Connection* connection = nullptr;
  if (link) {
    connection = find(*link);
  } else if (const auto at = by_name_.find(header.to_connection); at != by_name_.end()) {
    connection = find(at->second);
  }
  if (connection == nullptr) return drop_stranger(link, "a frame for a connection that is not");
  const bool greeting = connection->state == Connection::State::kGreeting;
  const bool answer = header.kind == FrameKind::kHelloAck || header.kind == FrameKind::kRefuse;
  const bool names_fit = header.to_connection == connection->local_name &&
                         (greeting || header.from_connection == connection->remote_name);
  if (!names_fit && !link) return drop_stranger(link, "a frame of an earlier connection");
  if (!names_fit || greeting != answer) {
    log::warn("{} sent a frame out of place; the connection is closed", connection->address.text);
    return lose(*connection,
                Error(ErrorCode::kProtocol, connection->address.text + " sent a frame out of place"));
  }
  connection->last_heard_ms = now_ms();
  if (header.kind == FrameKind::kHelloAck) return on_hello_ack(*connection, *frame);
  if (header.kind == FrameKind::kRefuse) return on_farewell(*connection, *frame);
  on_established_frame(*connection, *frame);
}

void OfiTransport::Core::on_bad_frame(std::optional<LinkId> link, std::span<const std::byte> bytes,
                                      const Error& error) {
  Connection* connection = link ? find(*link) : nullptr;
  if (const auto names = peek_names(bytes); !link && names) {
    // Both names together are known to the peer alone.
    const auto at = by_name_.find(names->to);
    Connection* named = at == by_name_.end() ? nullptr : find(at->second);
    if (named != nullptr && named->remote_name == names->from) connection = named;
  }
  if (connection == nullptr) return drop_stranger(link, error.message);
  log::warn("{} sent garbage ({}); the connection is closed", connection->address.text, error.message);
  lose(*connection, Error(error.code, connection->address.text + " sent garbage: " + error.message));
}

void OfiTransport::Core::drop_stranger(std::optional<LinkId> link, const std::string& why) {
  if (!link) {
    log::debug("a frame was dropped: {}", why);
    return;
  }
  log::warn("a link was closed: {}", why);
  strangers_.erase(link->value);
  wire_->close(*link);
}

Error OfiTransport::Core::unacceptable(const Greeting& greeting) const {
  if (greeting.protocol != kProtocolVersion) {
    return Error(ErrorCode::kProtocol,
                 fmt::format("protocol {} is spoken here, not {}; use the same release at both ends",
                             kProtocolVersion, greeting.protocol));
  }
  return Error(ErrorCode::kBusy, fmt::format("{} connections are open already", connections_.size()));
}

void OfiTransport::Core::on_hello(std::optional<LinkId> link, const Frame& frame) {
  auto greeting = decode_greeting(frame.payload);
  if (!greeting) return drop_stranger(link, greeting.error().message);
  if (link && strangers_.erase(link->value) == 0) {
    Connection* connection = find(*link);
    if (connection != nullptr) {
      lose(*connection, Error(ErrorCode::kProtocol, connection->address.text + " introduced itself twice"));
    }
    return;
  }
  if (handler_ == nullptr) return drop_stranger(link, "nobody listens yet");
  if (!link) {
    for (const auto& [id, known] : connections_) {
      if (known->remote_name == frame.header.from_connection) return drop_stranger(link, "introduced twice");
    }
    auto opened = wire_->open(Address{greeting->address});
    if (!opened) return drop_stranger(link, opened.error().message);
    link = *opened;
  }
  const bool welcome = greeting->protocol == kProtocolVersion && connections_.size() < kMaxConnections;
  if (!welcome) return refuse(*link, frame.header.from_connection, unacceptable(*greeting));

  Connection& connection = add_connection(*link, Address{greeting->address}, /*outgoing=*/false);
  connection.remote_name = frame.header.from_connection;
  connection.greeting = make_frame(connection.header(FrameKind::kHelloAck),
                                   encode_greeting({kProtocolVersion, wire_->address().text}));
  connection.state = Connection::State::kOpen;
  advance(connection);
  handler_->on_connected(connection.peer);
}

void OfiTransport::Core::refuse(LinkId link, uint64_t remote_name, const Error& reason) {
  log::warn("a connection was refused: {}", reason.message);
  auto connection = std::make_unique<Connection>();
  connection->link = link;
  connection->remote_name = remote_name;
  connection->farewell = make_frame(connection->header(FrameKind::kRefuse), encode_farewell(reason));
  say_farewell(std::move(connection), reason);
}

void OfiTransport::Core::on_hello_ack(Connection& connection, const Frame& frame) {
  auto greeting = decode_greeting(frame.payload);
  if (!greeting) return lose(connection, greeting.error());
  connection.remote_name = frame.header.from_connection;
  connection.state = Connection::State::kOpen;
  advance(connection);
}

void OfiTransport::Core::on_established_frame(Connection& connection, const Frame& frame) {
  switch (frame.header.kind) {
    case FrameKind::kData:
      return on_data(connection, frame);
    case FrameKind::kBye:
      return on_farewell(connection, frame);
    case FrameKind::kPing:
    case FrameKind::kPong:
      if (frame.header.sequence != connection.data_frames_received) {
        return lose(connection, gone(connection.address.text + ": a message was lost on the way"));
      }
      if (frame.header.kind == FrameKind::kPing) {
        connection.pong_due = true;
        advance(connection);
      }
      return;
    case FrameKind::kHello:
    case FrameKind::kHelloAck:
    case FrameKind::kRefuse:
      return;  // sorted out by on_frame
  }
}

void OfiTransport::Core::on_data(Connection& connection, const Frame& frame) {
  auto message = take_data(connection, frame);
  if (!message) {
    log::warn("{}: {}; the connection is closed", connection.address.text, message.error().message);
    return lose(connection, message.error());
  }
  if (!*message) return;
  // The handler may end the connection while it reads the message.
  std::vector<std::byte> kept;
  if ((*message)->data() == connection.partial_message.data()) kept.swap(connection.partial_message);
  handler_->on_message(connection.peer, **message);
}

void OfiTransport::Core::on_farewell(Connection& connection, const Frame& frame) {
  auto farewell = decode_farewell(frame.payload);
  if (!farewell) return lose(connection, farewell.error());
  const bool refused = frame.header.kind == FrameKind::kRefuse;
  Error reason = gone(fmt::format("{} {} the connection: {}", connection.address.text,
                                  refused ? "refused" : "closed", farewell->message));
  if (refused && farewell->code == ErrorCode::kProtocol) {
    reason.code = ErrorCode::kProtocol;
    reason.retryable = false;
  }
  lose(connection, std::move(reason));
}

}  // namespace sluice::transport
