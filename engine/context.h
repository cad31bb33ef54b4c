#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/types.h"
#include "engine/engine.h"
#include "engine/sessions.h"
#include "protocol/message.h"

namespace sluice::engine {

namespace wire = protocol::wire;

// Whether an RMA failed because the connection ended, and not because the client offered what cannot be
// reached.
inline bool lost_connection(const Error& error) {
  return error.retryable || error.code == ErrorCode::kAborted || error.code == ErrorCode::kFenced ||
         error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimedOut;
}

// Whom to answer. Answers and RMA go to the session's connection of that moment, which may be a newer one
// than the request came over.
struct Request {
  SessionId session;
  uint64_t id = 0;
};

using Message = std::shared_ptr<wire::MessageT>;

// Hands out numbers that were never used before, from batches that the metastore reserved durably. Loop
// thread.
class IdPool {
 public:
  IdPool(storage::MetaStore& meta, std::string name, uint64_t batch)
      : meta_(meta), name_(std::move(name)), batch_(batch) {}
  Result<uint64_t> next();

 private:
  storage::MetaStore& meta_;
  std::string name_;
  uint64_t batch_;
  uint64_t next_ = 0;
  uint64_t end_ = 0;
};

// What the halves of the engine share: the parts below, the sessions, and the way back to a client. Loop
// thread, but for the atomics.
class Context {
 public:
  Context(Options engine_options, Parts engine_parts);

  void answer(const Request& request, protocol::Body body);
  void refuse(const Request& request, const Error& error);
  // An answer that is not kept: its bytes went by RMA, or it may well be computed again.
  void answer_once(const Request& request, protocol::Body body);
  // The connection broke under the request. It is as if it had never been asked; the client asks again when
  // it is back.
  void interrupted(const Request& request);
  std::optional<transport::PeerId> peer_of(const Request& request);
  // What readers of the container see has changed, other than by the hot tier.
  void changed(ContainerId container);
  template <class T>
  void answer(const Request& request, T body) {
    protocol::Body any;
    any.Set(std::move(body));
    answer(request, std::move(any));
  }

  // Runs `work` where it may block, then `then(outcome)` on the loop. Work of one key stays in order.
  template <class Work, class Then>
  void off_loop(uint64_t key, Work work, Then then) {
    parts.workers.run(key, [this, work = std::move(work), then = std::move(then)]() mutable {
      auto outcome = std::make_shared<decltype(work())>(work());
      parts.transport.post([outcome, then = std::move(then)]() mutable { then(std::move(*outcome)); });
    });
  }

  const Options options;
  const Parts parts;
  burst_buffer::Drain* drain = nullptr;
  Sessions sessions;
  IdPool session_ids;
  IdPool handle_ids;
  IdPool txn_ids;

  std::atomic<uint64_t> bytes_written{0}, bytes_read{0}, writes{0}, reads{0}, syncs{0};
  std::atomic<uint64_t> requests{0}, opens{0}, attaches{0}, closes{0};
  std::atomic<uint64_t> evicted{0}, refused_messages{0}, session_count{0}, client_count{0}, file_count{0};

 private:
  void send(const Request& request, std::vector<std::byte> message, bool keep);
};

}  // namespace sluice::engine
