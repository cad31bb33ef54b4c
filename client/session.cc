#include "client/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"

namespace sluice::client {
namespace {

constexpr uint64_t kSoonMs = 1000;

}  // namespace

Session::Session(transport::Transport& transport, Options options)
    : transport_(transport), options_(std::move(options)) {
  transport_.set_handler(this);
}

Session::~Session() {
  *alive_ = false;
}

// --- asking ---

void Session::call(protocol::Body body, Answered done, bool hurried) {
  if (state_ == State::kEnded)
    return done(fail(ErrorCode::kAborted, "the connection to the pool was closed"));
  const uint64_t id = put(std::move(body), std::move(done), hurried);
  if (state_ == State::kReady && !asking_again_) return send(id, calls_.at(id));
  if (state_ == State::kAway && !retry_scheduled_) connect();
}

uint64_t Session::put(protocol::Body body, Answered done, bool hurried) {
  const uint64_t id = next_id_++;
  Call& call = calls_[id];
  call.kind = body.type;
  call.message = protocol::encode_message(id, std::move(body));
  call.done = std::move(done);
  call.hurried = hurried;
  return id;
}

void Session::send(uint64_t id, Call& call) {
  ++call.times_sent;
  call.turn = ++turns_;
  call.sent_ms = transport_.now_ms();
  auto sent =
      call.hurried ? transport_.send(*peer_, call.message) : transport_.send_unhurried(*peer_, call.message);
  if (!sent) {
    // Too large: this request can never be sent. Too much queued: the connection does not move; start afresh.
    if (sent.error().code == ErrorCode::kTooLarge) {
      auto done = std::move(call.done);
      calls_.erase(id);
      return done(fail(sent.error()));
    }
    const auto peer = *peer_;
    transport_.post([this, alive = alive_, peer, error = sent.error()] {
      if (!*alive || peer_ != peer) return;
      transport_.disconnect(peer, error);
      away(error);
    });
  }
}

void Session::tell(protocol::Body body) {
  if (state_ != State::kReady) return;
  call(std::move(body), [](Result<Answer>) {});
}

// --- connecting ---

void Session::connect() {
  if (!away_since_ms_) away_since_ms_ = transport_.now_ms();
  auto address = options_.locate(failures_);
  if (!address) return retry_later(address.error());
  auto peer = transport_.connect(*address);
  if (!peer) return retry_later(peer.error());
  state_ = State::kConnecting;
  peer_ = *peer;
  turns_before_ = turns_;
  wire::HelloT hello;
  hello.version = protocol::kVersion;
  hello.uid = ::geteuid();
  hello.gid = ::getegid();
  hello.pid = static_cast<uint32_t>(::getpid());
  hello.resume = session_;
  hello.secret = secret_;
  hello_id_ = next_id_++;
  hello_ms_ = transport_.now_ms();
  if (auto sent = transport_.send(*peer_, protocol::encode(hello_id_, std::move(hello))); !sent) {
    transport_.disconnect(*peer_, sent.error());
    away(sent.error());
  }
}

void Session::away(const Error& why) {
  connected_ = false;
  peer_.reset();
  state_ = State::kAway;
  if (!away_since_ms_) away_since_ms_ = transport_.now_ms();
  // These belong to a connection; they are made anew.
  for (const auto* own : {&recover_calls_, &probes_}) {
    for (const uint64_t id : *own) calls_.erase(id);
  }
  recover_calls_.clear();
  probes_.clear();
  asking_again_ = false;
  const auto blamed = take_blamed();
  retry_later(why);
  for (const Call& call : blamed) {
    const bool unheard = call.unheard >= kMostUnheard;
    Error error(
        ErrorCode::kProtocol,
        fmt::format("the connection to the service ended {} times in a row {} the request {} ({}): the "
                    "service may be of another version; restart it with `sluice down` and `sluice up`",
                    unheard ? kMostUnheard : kMostCutShort, unheard ? "on receipt of" : "soon after",
                    wire::EnumNameBody(call.kind), why.message));
    log::warn("{}", error.message);
    call.done(fail(error.mark_outcome_unknown()));
  }
}

std::vector<Session::Call> Session::take_blamed() {
  std::vector<Call> blamed;
  const uint64_t now = transport_.now_ms();
  for (auto at = calls_.begin(); at != calls_.end();) {
    Call& call = at->second;
    const bool sent = sent_here(call);
    if (sent) {
      call.unheard = call.turn > heard_turn_ ? call.unheard + 1 : 0;
      call.cut_short = now - call.sent_ms < kSoonMs ? call.cut_short + 1 : 0;
    }
    if (!sent || (call.unheard < kMostUnheard && call.cut_short < kMostCutShort)) {
      ++at;
      continue;
    }
    blamed.push_back(std::move(call));
    at = calls_.erase(at);
  }
  return blamed;
}

void Session::retry_later(const Error& why) {
  state_ = State::kAway;
  ++failures_;
  if (transport_.now_ms() - *away_since_ms_ >= options_.unavailable_after_ms) return give_up(why);
  if (retry_scheduled_) return;
  retry_scheduled_ = true;
  transport_.after_ms(options_.retry_ms, [this, alive = alive_] {
    if (!*alive) return;
    retry_scheduled_ = false;
    if (state_ == State::kAway) connect();
  });
}

// The service stayed away. What was asked fails; a later call tries once more, and waits no second time.
void Session::give_up(const Error& why) {
  Error error(ErrorCode::kUnavailable, why.message);
  error.mark_retryable().mark_outcome_unknown();
  fail_all(error);
}

void Session::fail_all(const Error& why) {
  auto calls = std::move(calls_);
  calls_.clear();
  for (auto& [id, call] : calls) call.done(fail(why));
}

void Session::on_disconnected(transport::PeerId peer, const Error& reason) {
  if (peer_ != peer || state_ == State::kEnded) return;
  log::info("connection to the service lost: {}", reason.message);
  away(reason);
}

void Session::welcome(const wire::WelcomeT& welcome) {
  const bool had_session = session_ != 0;
  const bool same_boot = boot_ == welcome.boot;
  session_ = welcome.session;
  secret_ = welcome.secret;
  boot_ = welcome.boot;
  lease_ms_ = welcome.lease_ms;
  leased_until_ms_.store(hello_ms_ + lease_ms_, std::memory_order_release);
  if (options_.on_welcome) options_.on_welcome(welcome, *peer_);
  if (!renewing_) {
    renewing_ = true;
    renew();
  }
  if (!had_session) return ready();
  // A recovery that a lost connection cut short starts again.
  if (welcome.resumed) return must_recover_ ? recover_files() : ready();
  if (same_boot) {
    if (options_.on_fenced) options_.on_fenced();
    // Evicted: what we had open is gone, and what we asked for belonged to it.
    const Error fenced(
        ErrorCode::kFenced,
        "the service gave this process up because it was silent for too long; open files again");
    for (Recoverable* file : files_) file->lost(fenced);
    fail_all(fenced);
    return ready();
  }
  if (options_.on_new_boot) options_.on_new_boot();
  recover_files();
}

void Session::recover_files() {
  state_ = State::kRecovering;
  must_recover_ = true;
  const auto grants = options_.grants ? options_.grants() : std::vector<uint64_t>();
  if (files_.empty() && grants.empty()) return ready();
  const auto recover = [this](protocol::Body body, Answered answered) {
    const uint64_t id = next_id_;
    put(std::move(body), [this, id, answered = std::move(answered)](Result<Answer> answer) {
      recover_calls_.erase(id);
      answered(std::move(answer));
      if (state_ == State::kRecovering && recover_calls_.empty()) ready();
    });
    recover_calls_.insert(id);
  };
  if (!grants.empty()) {
    // One that is not to be had any more shows when a write that names it is refused.
    protocol::Body body;
    wire::ReclaimT reclaim;
    reclaim.grants = grants;
    body.Set(std::move(reclaim));
    recover(std::move(body), [](Result<Answer>) {});
  }
  for (Recoverable* file : files_) {
    protocol::Body body;
    body.Set(file->recovery());
    recover(std::move(body), [this, file](Result<Answer> answer) {
      const bool still_open = std::find(files_.begin(), files_.end(), file) != files_.end();
      if (!answer && still_open) file->lost(answer.error());
    });
  }
  for (const uint64_t id : std::set(recover_calls_)) send(id, calls_.at(id));
}

void Session::ready() {
  state_ = State::kReady;
  connected_ = true;
  asking_again_ = true;
  ask_again();
}

void Session::ask_again() {
  std::vector<uint64_t> again;
  for (const auto& [id, call] : calls_) {
    if (call.times_sent > 0 && !sent_here(call)) again.push_back(id);
  }
  const auto go_on = [this] { ask_again(); };
  bool all_heard = true;
  for (const uint64_t id : again) {
    const auto at = calls_.find(id);
    if (at == calls_.end()) continue;
    const bool doubted = at->second.unheard >= kDoubted;
    if (doubted && !all_heard) return hear(go_on);
    send(id, at->second);
    if (doubted) return hear(go_on);
    all_heard = false;
  }
  all_asked_again();
}

// An answer shows that the service has read what was sent before.
void Session::hear(std::function<void()> then) {
  protocol::Body body;
  body.Set(wire::RenewT{});
  const uint64_t id = next_id_;
  put(std::move(body), [this, id, then = std::move(then)](Result<Answer>) {
    probes_.erase(id);
    if (state_ == State::kReady) then();
  });
  probes_.insert(id);
  send(id, calls_.at(id));
}

void Session::all_asked_again() {
  asking_again_ = false;
  if (std::exchange(must_recover_, false)) {
    wire::RenewT all;
    all.all_said = boot_;
    call(std::move(all), [](Result<Answer>) {});
  } else if (away_since_ms_) {
    hear([] {});
  }
  std::vector<uint64_t> fresh;
  for (const auto& [id, call] : calls_) {
    if (call.times_sent == 0) fresh.push_back(id);
  }
  for (const uint64_t id : fresh) {
    if (const auto at = calls_.find(id); at != calls_.end()) send(id, at->second);
  }
}

void Session::renew() {
  transport_.after_ms(lease_ms_ / 4 + 1, [this, alive = alive_] {
    if (!*alive || state_ == State::kEnded) return;
    if (state_ == State::kReady) {
      protocol::Body body;
      body.Set(wire::RenewT{});
      tell(std::move(body));
    }
    renew();
  });
}

// --- answers ---

void Session::on_message(transport::PeerId peer, std::span<const std::byte> bytes) {
  if (peer_ != peer) return;
  auto decoded = protocol::decode(bytes);
  if (!decoded) {
    transport_.disconnect(peer, decoded.error());
    return away(decoded.error());
  }
  auto message = std::move(*decoded);
  if (message->body.type == wire::Body::Glimpse) {
    if (options_.on_glimpse) options_.on_glimpse(*message->body.AsGlimpse());
    return;
  }
  if (message->body.type == wire::Body::Revoke) {
    if (options_.on_revoke) options_.on_revoke(*message->body.AsRevoke());
    return;
  }
  if (message->body.type == wire::Body::Recall) {
    if (options_.on_recall) options_.on_recall();
    for (Recoverable* file : files_) file->room_is_wanted();
    return;
  }
  if (message->id == hello_id_ && state_ == State::kConnecting) {
    if (const auto* greeting = message->body.AsWelcome()) return welcome(*greeting);
    const Error refused = message->body.AsFailed() != nullptr
                              ? protocol::error_of(*message->body.AsFailed())
                              : Error(ErrorCode::kProtocol, "the service answered hello with something else");
    transport_.disconnect(peer, refused);
    away_since_ms_ = transport_.now_ms();
    peer_.reset();
    state_ = State::kAway;
    return fail_all(refused);
  }
  const auto at = calls_.find(message->id);
  if (at == calls_.end()) return;  // the second answer to something asked twice
  Call call = std::move(at->second);
  calls_.erase(at);
  heard_turn_ = std::max(heard_turn_, call.turn);
  failures_ = 0;
  away_since_ms_.reset();
  if (call.sent_ms + lease_ms_ > leased_until_ms_.load(std::memory_order_relaxed))
    leased_until_ms_.store(call.sent_ms + lease_ms_, std::memory_order_release);
  if (const auto* failed = message->body.AsFailed()) {
    Error error = protocol::error_of(*failed);
    if (call.times_sent > 1) error.mark_outcome_unknown();
    return call.done(fail(error));
  }
  call.done(Answer{std::move(message)});
}

void Session::end(std::function<void()> done) {
  const auto finish = [this, done = std::move(done)](const Error& why) {
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    if (peer_) transport_.disconnect(*peer_, why);
    peer_.reset();
    fail_all(why);
    done();
  };
  const Error ended(ErrorCode::kAborted, "the connection to the pool was closed");
  if (state_ != State::kReady) return finish(ended);
  constexpr uint64_t kGoodbyeMs = 1000;
  call(wire::GoodbyeT{}, [finish, ended](Result<Answer>) { finish(ended); });
  transport_.after_ms(kGoodbyeMs, [alive = alive_, finish, ended] {
    if (*alive) finish(ended);
  });
}

}  // namespace sluice::client
