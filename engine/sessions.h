#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/types.h"
#include "engine/process_watch.h"
#include "transport/transport.h"

namespace sluice::engine {

// One client's stay. Outlives its connection until the lease ends, so that a client may come back; of a
// process of this host, until that has ended.
struct Session {
  SessionId id;
  uint64_t secret = 0;
  std::optional<transport::PeerId> peer;  // the connection it has now
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t pid = 0;
  uint64_t expires_ms = 0;
  // Requests being worked on. True: only to tell the client; ended with it, nothing is lost.
  std::map<uint64_t, bool> in_progress;
  std::shared_ptr<const ProcessWatch> process;         // of this host
  std::map<uint64_t, std::vector<std::byte>> answers;  // to requests that may be asked again
  std::deque<uint64_t> answered;                       // their numbers, the oldest answer first
};

// Who is here. Pure (time is an argument); one thread.
class Sessions {
 public:
  static constexpr size_t kRememberedAnswers = 128;
  static constexpr size_t kMaxRememberedBytes = 64 * 1024;  // of one answer; longer ones only list
  static constexpr size_t kMaxInProgress = 1024;            // requests of one session at a time

  explicit Sessions(uint64_t lease_ms) : lease_ms_(lease_ms) {}

  Session& add(SessionId id, uint64_t secret, transport::PeerId peer, uint64_t now_ms);
  // The session goes on over this connection; nothing when it is unknown, evicted, or the secret is wrong.
  // The connection that it had until now is answered through `replaced`.
  Session* resume(SessionId id, uint64_t secret, transport::PeerId peer, uint64_t now_ms,
                  std::optional<transport::PeerId>& replaced);
  Session* of_peer(transport::PeerId peer);
  Session* find(SessionId id);
  void renew(Session& session, uint64_t now_ms) { session.expires_ms = now_ms + lease_ms_; }
  // After a stall of our own: nobody is to be blamed for it.
  void renew_all(uint64_t now_ms);
  // The session of this connection has none now.
  void peer_lost(transport::PeerId peer);
  // Called whenever a session has lost its connection, however that came.
  void on_peer_lost(std::function<void(SessionId)> call) { on_peer_lost_ = std::move(call); }
  void remove(SessionId id);
  std::vector<SessionId> expired(uint64_t now_ms) const;
  size_t size() const { return sessions_.size(); }
  size_t connected() const { return by_peer_.size(); }
  std::vector<transport::PeerId> peers() const;

  // Keeps an answer for the case that the request is asked again.
  static void remember(Session& session, uint64_t request, const std::vector<std::byte>& answer);

 private:
  uint64_t lease_ms_;
  std::function<void(SessionId)> on_peer_lost_;
  std::map<SessionId, Session> sessions_;
  std::map<transport::PeerId, SessionId> by_peer_;
};

}  // namespace sluice::engine
