#include "engine/context.h"

#include "engine/change_board.h"

#include "base/log.h"

namespace sluice::engine {

Result<uint64_t> IdPool::next() {
  if (next_ == end_) {
    auto first = meta_.allot(name_, batch_);
    if (!first) return fail(first.error());
    next_ = *first;
    end_ = *first + batch_;
  }
  return next_++;
}

Context::Context(Options engine_options, Parts engine_parts)
    : options(std::move(engine_options)),
      parts(engine_parts),
      sessions(options.lease_ms),
      session_ids(parts.meta, "session", 256),
      handle_ids(parts.meta, "handle", 256),
      txn_ids(parts.meta, "transaction", 1024) {}

void Context::answer(const Request& request, protocol::Body body) {
  send(request, protocol::encode_message(request.id, std::move(body)), /*keep=*/true);
}

void Context::answer_once(const Request& request, protocol::Body body) {
  send(request, protocol::encode_message(request.id, std::move(body)), /*keep=*/false);
}

void Context::interrupted(const Request& request) {
  Session* session = sessions.find(request.session);
  if (session == nullptr) return;
  session->in_progress.erase(request.id);
  // When the client is back already, its repeat was passed over as being in progress, and when the connection
  // stands, it waits: either way it is cut off, and asks again. Not from here: the connection may be ending
  // at this moment.
  parts.transport.post([this, id = request.session] {
    const Session* later = sessions.find(id);
    if (later == nullptr || !later->peer) return;
    const auto peer = *later->peer;
    sessions.peer_lost(peer);
    parts.transport.disconnect(
        peer, Error(ErrorCode::kAborted, "a transfer of the session broke off").mark_retryable());
  });
}

std::optional<transport::PeerId> Context::peer_of(const Request& request) {
  const Session* session = sessions.find(request.session);
  return session == nullptr ? std::nullopt : session->peer;
}

void Context::refuse(const Request& request, const Error& error) {
  log::debug("session {} request {}: {}", request.session.value, request.id, error.message);
  send(request, protocol::encode_error(request.id, error), /*keep=*/true);
}

void Context::send(const Request& request, std::vector<std::byte> message, bool keep) {
  Session* session = sessions.find(request.session);
  if (session == nullptr) return;  // evicted meanwhile: there is nobody to tell
  session->in_progress.erase(request.id);
  if (keep) Sessions::remember(*session, request.id, message);
  if (!session->peer) return;  // it will ask again when it is back
  if (auto sent = parts.transport.send(*session->peer, std::move(message)); !sent) {
    // A client that does not take its answers is cut off; it comes back and asks again.
    log::warn("session {}: answer not sent: {}", request.session.value, sent.error().message);
    const auto peer = *session->peer;
    sessions.peer_lost(peer);
    parts.transport.disconnect(peer, sent.error());
  }
}

void Context::changed(ContainerId container) {
  if (parts.changes != nullptr) parts.changes->note(container);
}

}  // namespace sluice::engine
