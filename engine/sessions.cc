#include "engine/sessions.h"

namespace sluice::engine {

Session& Sessions::add(SessionId id, uint64_t secret, transport::PeerId peer, uint64_t now_ms) {
  Session& session = sessions_[id];
  session.id = id;
  session.secret = secret;
  session.peer = peer;
  by_peer_[peer] = id;
  renew(session, now_ms);
  return session;
}

Session* Sessions::resume(SessionId id, uint64_t secret, transport::PeerId peer, uint64_t now_ms,
                          std::optional<transport::PeerId>& replaced) {
  Session* session = find(id);
  if (session == nullptr || session->secret != secret) return nullptr;
  replaced = session->peer;
  if (session->peer) by_peer_.erase(*session->peer);
  session->peer = peer;
  by_peer_[peer] = id;
  renew(*session, now_ms);
  return session;
}

Session* Sessions::of_peer(transport::PeerId peer) {
  const auto at = by_peer_.find(peer);
  return at == by_peer_.end() ? nullptr : find(at->second);
}

Session* Sessions::find(SessionId id) {
  const auto at = sessions_.find(id);
  return at == sessions_.end() ? nullptr : &at->second;
}

void Sessions::renew_all(uint64_t now_ms) {
  for (auto& [id, session] : sessions_) renew(session, now_ms);
}

void Sessions::peer_lost(transport::PeerId peer) {
  Session* session = of_peer(peer);
  by_peer_.erase(peer);
  if (session == nullptr) return;
  session->peer.reset();
  if (on_peer_lost_) on_peer_lost_(session->id);
}

void Sessions::remove(SessionId id) {
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return;
  if (at->second.peer) by_peer_.erase(*at->second.peer);
  sessions_.erase(at);
}

std::vector<SessionId> Sessions::expired(uint64_t now_ms) const {
  std::vector<SessionId> gone;
  for (const auto& [id, session] : sessions_) {
    if (session.expires_ms <= now_ms) gone.push_back(id);
  }
  return gone;
}

std::vector<transport::PeerId> Sessions::peers() const {
  std::vector<transport::PeerId> all;
  for (const auto& [peer, session] : by_peer_) all.push_back(peer);
  return all;
}

void Sessions::remember(Session& session, uint64_t request, const std::vector<std::byte>& answer) {
  if (answer.size() > kMaxRememberedBytes) return;
  if (session.answers.insert_or_assign(request, answer).second) session.answered.push_back(request);
  while (session.answered.size() > kRememberedAnswers) {
    session.answers.erase(session.answered.front());
    session.answered.pop_front();
  }
}

}  // namespace sluice::engine
