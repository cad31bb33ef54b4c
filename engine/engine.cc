#include "engine/engine.h"

#include <algorithm>
#include <random>

#include "base/log.h"
#include "engine/context.h"
#include "engine/lane_desk.h"
#include "engine/lock_desk.h"
#include "engine/names.h"
#include "engine/open_files.h"
#include "engine/reader.h"
#include "engine/writer.h"

namespace sluice::engine {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(Options options, Parts parts)
      : context_(std::move(options), parts),
        secrets_(random_seed()),
        files_(context_, random_seed()),
        locks_(context_, files_),
        lane_(context_, parts.lane, random_seed()),
        writer_(context_, files_, locks_, lane_),
        reader_(context_, files_),
        names_(context_, files_, locks_),
        boot_(secrets_.next()) {
    files_.on_recovered([this](const Request& request, const OpenFile& file, const wire::RecoverT& ask) {
      locks_.replay(request.session, file.container, ask);
    });
    context_.sessions.on_peer_lost([this](SessionId id) { look_for_end(id, kFirstLookMs); });
    parts.transport.set_handler(this);
    parts.transport.post([this] {
      tick();
      context_.parts.transport.after_ms(context_.options.recovery_ms, [this] {
        if (stopped_) return;
        files_.end_recovery();
        lane_.end_recovery();
        let_go();
      });
    });
  }

  void set_drain(burst_buffer::Drain* drain) override { context_.drain = drain; }

  void drain_progress(const Result<>& outcome) override {
    context_.parts.transport.post([this, outcome] {
      if (!stopped_) writer_.drain_progress(outcome);
    });
  }

  void shut_down() override {
    stopped_ = true;
    for (const auto peer : context_.sessions.peers()) {
      context_.parts.transport.disconnect(
          peer, Error(ErrorCode::kUnavailable, "the service was stopped").mark_retryable());
    }
  }

  Counters counters() const override {
    Counters now;
    now.sessions = context_.session_count;
    now.clients = context_.client_count;
    now.open_files = context_.file_count;
    now.bytes_written = context_.bytes_written;
    now.bytes_read = context_.bytes_read;
    now.writes = context_.writes;
    now.reads = context_.reads;
    now.syncs = context_.syncs;
    now.requests = context_.requests;
    now.opens = context_.opens;
    now.attaches = context_.attaches;
    now.closes = context_.closes;
    now.degraded_blocks = context_.parts.store.degraded_blocks();
    now.sessions_evicted = context_.evicted;
    now.requests_refused = context_.refused_messages;
    now.locks = locks_.totals();
    return now;
  }

  void on_connected(transport::PeerId) override {}  // a peer is nobody until it said hello

  void on_disconnected(transport::PeerId peer, const Error& reason) override {
    log::debug("connection {} ended: {}", peer.value, reason.message);
    context_.sessions.peer_lost(peer);  // the session's lease runs on: it may come back
    count_sessions();
  }

  void on_message(transport::PeerId peer, std::span<const std::byte> bytes) override {
    if (stopped_) return;
    auto decoded = protocol::decode(bytes);
    if (!decoded) return refuse_peer(peer, decoded.error().message);
    const Message message(std::move(*decoded));
    if (message->body.type == wire::Body::Hello) return hello(peer, *message);
    Session* session = context_.sessions.of_peer(peer);
    if (session == nullptr) return refuse_peer(peer, "a request before hello");
    context_.sessions.renew(*session, context_.parts.transport.now_ms());
    const SessionId id = session->id;
    ++context_.requests;
    if (const auto answered = session->answers.find(message->id); answered != session->answers.end()) {
      if (!context_.parts.transport.send(peer, answered->second))
        return refuse_peer(peer, "it does not take its answers");
      // It may have been a grant that is asked back already.
      return locks_.session_back(id);
    }
    if (session->in_progress.size() >= Sessions::kMaxInProgress)
      return refuse_peer(peer, "too many requests at once");
    if (!session->in_progress.emplace(message->id, only_tells(message->body)).second)
      return;  // asked again; the answer is on its way
    const Request request{id, message->id};
    dispatch(request, message);
  }

 private:
  // A peer that does not keep to the protocol loses its connection, and nobody else anything.
  void refuse_peer(transport::PeerId peer, const std::string& why) {
    log::warn("connection {} closed: {}", peer.value, why);
    ++context_.refused_messages;
    context_.sessions.peer_lost(peer);
    count_sessions();
    context_.parts.transport.disconnect(peer, Error(ErrorCode::kProtocol, why));
  }

  void hello(transport::PeerId peer, const wire::MessageT& message) {
    const wire::HelloT& ask = *message.body.AsHello();
    if (ask.version != protocol::kVersion) {
      const Error error(ErrorCode::kUnsupported,
                        "the client speaks protocol version " + std::to_string(ask.version) +
                            ", the service " + std::to_string(protocol::kVersion) +
                            "; restart the service with `sluice down` and `sluice up`");
      (void)context_.parts.transport.send(peer, protocol::encode_error(message.id, error));
      return;
    }
    if (context_.sessions.of_peer(peer) != nullptr) return refuse_peer(peer, "a second hello");
    const uint64_t now = context_.parts.transport.now_ms();
    std::optional<transport::PeerId> replaced;
    Session* session = ask.resume == 0
                           ? nullptr
                           : context_.sessions.resume(SessionId(ask.resume), ask.secret, peer, now, replaced);
    if (replaced && *replaced != peer) {
      context_.parts.transport.disconnect(*replaced,
                                          Error(ErrorCode::kAborted, "the client made a new connection"));
    }
    const bool resumed = session != nullptr;
    if (!resumed) {
      auto number = context_.session_ids.next();
      if (!number) {
        (void)context_.parts.transport.send(peer, protocol::encode_error(message.id, number.error()));
        return;
      }
      session = &context_.sessions.add(SessionId(*number), secrets_.next(), peer, now);
      session->uid = ask.uid;
      session->gid = ask.gid;
      session->pid = ask.pid;
    }
    session->process.reset();
    if (const auto process = context_.parts.transport.peer_process(peer))
      session->process = std::make_shared<const ProcessWatch>(static_cast<uint32_t>(*process));
    count_sessions();
    wire::WelcomeT welcome;
    welcome.session = session->id.value;
    welcome.secret = session->secret;
    welcome.resumed = resumed;
    welcome.boot = boot_;
    welcome.pool = context_.options.pool_id;
    welcome.lease_ms = context_.options.lease_ms;
    welcome.lane = lane_.terms(peer);
    welcome.hints = context_.options.hints;
    welcome.drain = context_.options.drain;
    const SessionId id = session->id;
    if (!resumed && ask.resume != 0) locks_.session_replaces(SessionId(ask.resume), id);
    if (!context_.parts.transport.send(peer, protocol::encode(message.id, std::move(welcome)))) {
      return refuse_peer(peer, "it does not take its answers");
    }
    if (resumed) locks_.session_back(id);
  }

  void dispatch(const Request& request, const Message& message) {
    const protocol::Body& body = message->body;
    // What a client comes back with, in any order; the first that is something else comes after all of it.
    const bool comes_back = body.type == wire::Body::Recover || body.type == wire::Body::Reclaim;
    if (!comes_back) locks_.recovery_is_over_for(request.session);
    if (body.type == wire::Body::Read) release(request.session, body.AsRead()->release);
    if (body.type == wire::Body::Renew && body.AsRenew()->all_said == boot_) lane_.said_all(request.session);
    let_go();
    const bool again = body.type == wire::Body::Write && lane_.awaits(request.session);
    if (lane_.awaits_any() && is_of_file(body) && !again) return held_.push_back({request, message});
    dispatch_in_turn(request, message);
  }

  // When nobody is awaited any more who may have writes to tell again.
  void let_go() {
    if (held_.empty() || lane_.awaits_any()) return;
    for (const auto& [request, message] : std::exchange(held_, {})) {
      if (!stopped_ && context_.sessions.find(request.session) != nullptr) dispatch_in_turn(request, message);
    }
  }

  static bool is_of_file(const protocol::Body& body) {
    return body.type == wire::Body::Write || file_of(body).has_value();
  }

  void dispatch_in_turn(const Request& request, const Message& message) {
    const auto handle = file_of(message->body);
    const bool waits = handle && writer_.after_waiting(*handle, [this, request, message] {
      if (!stopped_ && context_.sessions.find(request.session) != nullptr) serve(request, message);
    });
    if (!waits) serve(request, message);
  }

  void serve(const Request& request, const Message& message) {
    const protocol::Body& body = message->body;
    switch (body.type) {
      case wire::Body::Renew:
        return context_.answer(request, wire::DoneT{});
      case wire::Body::Goodbye:
        context_.answer(request, wire::DoneT{});
        return end_session(request.session, /*evicted=*/false);
      case wire::Body::Stat:
        return names_.stat(request, *body.AsStat());
      case wire::Body::List:
        return names_.list(request, *body.AsList());
      case wire::Body::Remove:
        return names_.remove(request, *body.AsRemove());
      case wire::Body::AwaitDrained:
        return names_.await_drained(request, *body.AsAwaitDrained());
      case wire::Body::Explain:
        return names_.explain(request, *body.AsExplain());
      case wire::Body::Open:
        ++context_.opens;
        return files_.open(request, message);
      case wire::Body::Attach:
        ++context_.attaches;
        return files_.attach(request, *body.AsAttach());
      case wire::Body::Recover:
        return files_.recover(request, message);
      case wire::Body::GiveBack:
        lane_.give_back(request, *body.AsGiveBack());
        return writer_.room_came_back();
      case wire::Body::Reclaim:
        return lane_.reclaim(request, *body.AsReclaim());
      case wire::Body::Lease:
      case wire::Body::Write:
        return writer_.write(request, message);
      case wire::Body::Read:
        return reader_.read(request, message);
      case wire::Body::Release:
        release(request.session, body.AsRelease()->pins);
        return context_.answer_once(request, done());
      case wire::Body::Size:
        return size(request, *body.AsSize());
      case wire::Body::Resize:
        return files_.resize(request, message);
      case wire::Body::Shape:
        return files_.shape(request, *body.AsShape());
      case wire::Body::Sync:
        return files_.sync(request, *body.AsSync());
      case wire::Body::Close:
        ++context_.closes;
        return files_.close(request, *body.AsClose());
      case wire::Body::Counter:
        return files_.counter(request, *body.AsCounter());
      case wire::Body::Lock:
        return locks_.lock(request, *body.AsLock());
      case wire::Body::Locks:
        return locks_.show(request, *body.AsLocks());
      case wire::Body::Unlock:
        return locks_.unlock(request, *body.AsUnlock());
      case wire::Body::Glimpsed:
        return locks_.glimpsed(request, *body.AsGlimpsed());
      default:
        return refuse_peer(*context_.peer_of(request), "a message that only a service sends");
    }
  }

  void size(const Request& request, const wire::SizeT& ask) {
    if (!ask.look) return files_.size(request, ask);
    const auto file = files_.find(request, ask.handle, ask.secret);
    if (!file) return context_.refuse(request, file.error());
    locks_.glimpse(request, (*file)->container, ask.beyond, [this, request, ask] { files_.size(request, ask); });
  }

  // Requests that may wait long, and of which nothing is left to do when there is nobody to tell.
  static bool only_tells(const protocol::Body& body) {
    return body.type == wire::Body::Lock || body.type == wire::Body::AwaitDrained ||
           body.type == wire::Body::Lease || body.type == wire::Body::Size;
  }

  // A process that has ended does not come back, and nobody waits out its lease. What it was heard to say is
  // done first.
  void look_for_end(SessionId id, uint64_t wait_ms) {
    context_.parts.transport.after_ms(wait_ms, [this, id, wait_ms] {
      const Session* session = stopped_ ? nullptr : context_.sessions.find(id);
      if (session == nullptr || session->peer || !session->process) return;
      const bool busy =
          std::ranges::any_of(session->in_progress, [](const auto& request) { return !request.second; });
      if (busy || !session->process->ended()) return look_for_end(id, std::min(2 * wait_ms, kLongestLookMs));
      log::info("process {} of session {} has ended", session->pid, id.value);
      end_session(id, /*evicted=*/true);
    });
  }

  // The file that a request asks about, or changes other than by a write.
  static std::optional<uint64_t> file_of(const protocol::Body& body) {
    switch (body.type) {
      case wire::Body::Read:
        return body.AsRead()->handle;
      case wire::Body::Size:
        return body.AsSize()->handle;
      case wire::Body::Resize:
        return body.AsResize()->handle;
      case wire::Body::Sync:
        return body.AsSync()->handle;
      case wire::Body::Close:
        return body.AsClose()->handle;
      default:
        return std::nullopt;
    }
  }

  // Asked again it changes nothing.
  void release(SessionId session, std::span<const uint64_t> pins) {
    if (reader_.release(session, pins)) writer_.room_came_back();
  }

  void end_session(SessionId id, bool evicted) {
    if (evicted) {
      const Session* session = context_.sessions.find(id);
      ++context_.evicted;
      if (session != nullptr && session->peer) {
        context_.parts.transport.disconnect(*session->peer,
                                            Error(ErrorCode::kFenced, "the session was silent for too long"));
      }
    }
    locks_.session_gone(id, evicted);
    files_.session_gone(id, evicted);
    reader_.session_gone(id);
    lane_.session_gone(id, evicted);
    context_.sessions.remove(id);
    count_sessions();
  }

  static constexpr uint64_t kFirstLookMs = 1;  // a process has ended shortly after its sockets
  static constexpr uint64_t kLongestLookMs = 100;

  static protocol::Body done() {
    protocol::Body body;
    body.Set(wire::DoneT{});
    return body;
  }

  void count_sessions() {
    context_.session_count = context_.sessions.size();
    context_.client_count = context_.sessions.connected();
  }

  void tick() {
    if (stopped_) return;
    const uint64_t now = context_.parts.transport.now_ms();
    const uint64_t interval = context_.options.lease_ms / 8 + 1;
    // When we were the ones who stalled, clients had no way to be heard.
    if (now > last_tick_ms_ + 2 * interval && last_tick_ms_ != 0) context_.sessions.renew_all(now);
    last_tick_ms_ = now;
    for (const SessionId id : context_.sessions.expired(now)) {
      const Session* session = context_.sessions.find(id);
      log::info("session {} (process {}) was silent for {} ms; evicted", id.value,
                session == nullptr ? 0 : session->pid, context_.options.lease_ms);
      end_session(id, /*evicted=*/true);
    }
    locks_.tick();
    lane_.tick();
    let_go();
    context_.parts.transport.after_ms(interval, [this] { tick(); });
  }

  Context context_;
  SeededRng secrets_;
  OpenFiles files_;
  LockDesk locks_;
  LaneDesk lane_;
  Writer writer_;
  Reader reader_;
  Names names_;
  const uint64_t boot_;
  std::vector<std::pair<Request, Message>> held_;  // until all are back who are awaited
  uint64_t last_tick_ms_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<Engine> Engine::create(Options options, Parts parts) {
  return std::make_unique<EngineImpl>(std::move(options), parts);
}

}  // namespace sluice::engine
