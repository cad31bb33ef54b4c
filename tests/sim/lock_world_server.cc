#include "tests/sim/lock_world_parts.h"

namespace sluice::sim {

using lockmgr::LockHandle;

Server::Server(World& world, transport::Transport& transport, bool again)
    : world_(world),
      transport_(transport),
      boot_(++world.boots),
      locks_(world.network.clock(), *this,
             {.lease_ms = kLeaseMs, .first_generation = static_cast<uint32_t>(world.boots * 1'000'000)}) {
  transport_.set_handler(this);
  std::vector<SessionId> expected;
  for (const auto& [session, client] : world.sessions) {
    expected.push_back(session);
    (void)locks_.open_session(session);
    sessions_[session] = {};
  }
  if (again && !expected.empty()) locks_.begin_recovery(world.network.now_ms() + kRecoveryMs, expected);
  tick();
}

void Server::tick() {
  locks_.expire();
  transport_.after_ms(20, [this] { tick(); });
}

void Server::on_disconnected(transport::PeerId peer, const Error&) {
  const auto at = peers_.find(peer);
  if (at == peers_.end()) return;
  if (const auto session = sessions_.find(at->second);
      session != sessions_.end() && session->second.peer == peer)
    session->second.peer.reset();
  peers_.erase(at);
}

void Server::on_message(transport::PeerId peer, std::span<const std::byte> bytes) {
  const Packet packet = world_.take(bytes);
  if (packet.kind == Kind::kHello) return hello(peer, packet);
  const auto at = peers_.find(peer);
  if (at == peers_.end()) return transport_.disconnect(peer, Error(ErrorCode::kFenced, "who is that"));
  const SessionId id = at->second;
  Session& session = sessions_.at(id);
  (void)locks_.renew(id);
  if (packet.number != session.in.heard + 1) return;  // told twice
  session.in.heard = packet.number;
  take(id, packet);
}

void Server::hello(transport::PeerId peer, const Packet& packet) {
  Packet welcome;
  welcome.kind = Kind::kWelcome;
  welcome.boot = boot_;
  SessionId id = packet.session;
  if (!sessions_.contains(id)) {
    // A client has one session. An earlier one may be left over: its welcome was lost on the way.
    std::vector<SessionId> earlier;
    for (const auto& [session, client] : world_.sessions) {
      if (client == packet.operation) earlier.push_back(session);
    }
    for (const SessionId session : earlier) locks_.evict(session);
    id = SessionId(world_.next_session++);
    SLUICE_ASSERT(locks_.open_session(id).has_value());
    world_.sessions[id] = static_cast<uint32_t>(packet.operation);
    sessions_[id] = {};
  }
  Session& session = sessions_.at(id);
  if (session.peer && *session.peer != peer) {
    peers_.erase(*session.peer);
    transport_.disconnect(*session.peer, Error(ErrorCode::kAborted, "it made a new connection"));
  }
  session.peer = peer;
  peers_[peer] = id;
  (void)locks_.renew(id);
  // A session of before the restart begins its order anew: what it heard then does not count.
  const uint64_t heard = packet.boot == boot_ ? packet.heard : 0;
  while (!session.out.unheard.empty() && session.out.unheard.front().number <= heard)
    session.out.unheard.pop_front();
  welcome.session = id;
  welcome.heard = session.in.heard;
  (void)transport_.send(peer, world_.put(welcome));
  for (const Packet& again : session.out.unheard) (void)transport_.send(peer, world_.put(again));
}

void Server::send(SessionId id, Packet packet) {
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return;
  packet.number = ++at->second.out.sent;
  at->second.out.unheard.push_back(packet);
  if (at->second.peer) (void)transport_.send(*at->second.peer, world_.put(packet));
}

void Server::take(SessionId id, const Packet& packet) {
  switch (packet.kind) {
    case Kind::kAsk:
      (void)locks_.request(id, packet.ask);
      return;
    case Kind::kRelease:
      (void)locks_.release(id, packet.file, packet.handles);
      return;
    case Kind::kReplay:
      return replay(id, packet);
    case Kind::kReplayDone: {
      (void)locks_.finish_replay(id);
      Packet ready;
      ready.kind = Kind::kReady;
      return send(id, ready);
    }
    case Kind::kWrite:
      return write(id, packet);
    case Kind::kRead: {
      Packet value = packet;
      value.kind = Kind::kValue;
      value.seen = world_.ledger.stored(packet.file, packet.extent);
      return send(id, value);
    }
    default:
      return;
  }
}

void Server::write(SessionId id, const Packet& packet) {
  const auto allowed =
      locks_.check(id, packet.file, packet.handles.front(), packet.extent, lockmgr::LockMode::kPw);
  Packet written = packet;
  written.kind = Kind::kWritten;
  written.refused = !allowed;
  if (allowed) {
    ++world_.met.applied;
    world_.ledger.applied(world_.sessions.at(id), packet.file, packet.extent, packet.version);
  } else {
    ++world_.met.refused;
    // Written under a lock that the server gave out and did not take back: it must not be refused.
    world_.ledger.report("a write of client " + std::to_string(world_.sessions.at(id)) +
                         " was refused although it was not given up: " + allowed.error().message);
  }
  send(id, written);
}

void Server::replay(SessionId id, const Packet& packet) {
  Packet replayed = packet;
  replayed.kind = Kind::kReplayed;
  const auto handles = locks_.replay(id, packet.file, packet.held);
  if (handles) {
    replayed.handles = *handles;
    world_.met.replayed += handles->size();
  } else {
    replayed.handles.assign(packet.held.size(), lockmgr::kNoLock);
  }
  send(id, replayed);
}

void Server::send_grant(SessionId session, lockmgr::RequestId request, ContainerId file,
                        const std::vector<lockmgr::ExtentAnswer>& answers) {
  Packet grant;
  grant.kind = Kind::kGrant;
  grant.ask.id = request;
  grant.file = file;
  grant.answers = answers;
  for (const auto& answer : answers)
    world_.met.dropped += answer.answer == lockmgr::LockAnswer::kDropped ? 1 : 0;
  send(session, grant);
}
void Server::send_error(SessionId session, lockmgr::RequestId request, const Error&) {
  Packet error;
  error.kind = Kind::kError;
  error.ask.id = request;
  send(session, error);
}
void Server::send_revoke(SessionId session, ContainerId file, LockHandle handle, Extent) {
  ++world_.met.revokes;
  Packet revoke;
  revoke.kind = Kind::kRevoke;
  revoke.file = file;
  revoke.handles = {handle};
  send(session, revoke);
}

void Server::session_evicted(SessionId id) {
  ++world_.met.evictions;
  const auto whose = world_.sessions.find(id);
  if (whose == world_.sessions.end()) return;
  // One that its client never heard of takes nothing from it.
  if (world_.clients[whose->second]->session() == id) world_.ledger.fenced(whose->second);
  world_.sessions.erase(whose);
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return;
  const auto peer = at->second.peer;
  sessions_.erase(at);
  if (!peer) return;
  peers_.erase(*peer);
  transport_.disconnect(*peer, Error(ErrorCode::kFenced, "silent for too long"));
}

void Server::check_tables() const {
  for (const ContainerId file : locks_.containers()) {
    if (locks_.table(file)->granted_count() < 2'000) locks_.table(file)->check();
  }
}

}  // namespace sluice::sim
