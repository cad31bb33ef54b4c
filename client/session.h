#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "protocol/message.h"
#include "transport/transport.h"

// A client's stay with the service of a pool, over any number of connections: it comes back after a lost
// connection or a restart of the service, recovers its open files, and asks again what was not answered.
//
// Thread rule: the transport's loop thread, except where said.
namespace sluice::client {

namespace wire = protocol::wire;

// An answer: never a Failed. That is the error, and it is outcome_unknown when the request was sent more than
// once, because an earlier try may have had its effect already.
struct Answer {
  std::unique_ptr<wire::MessageT> message;
};
using Answered = std::function<void(Result<Answer>)>;

// An open file, as far as a restart of the service concerns it.
class Recoverable {
 public:
  virtual ~Recoverable() = default;
  virtual wire::RecoverT recovery() const = 0;
  // The file cannot go on; every later call on it must answer this.
  virtual void lost(const Error& why) = 0;
  // The service wants back what it lends and can be spared.
  virtual void room_is_wanted() {}
};

class Session final : public transport::Handler {
 public:
  struct Options {
    // Where the service is now. Asked before every connection, with the number of attempts since the last
    // one.
    std::function<Result<transport::Address>(unsigned failures)> locate;
    uint64_t unavailable_after_ms = 30'000;
    uint64_t retry_ms = 50;  // between attempts to connect
    std::function<void(const wire::RevokeT&)> on_revoke;
    std::function<void(const wire::GlimpseT&)> on_glimpse;
    std::function<void()>
        on_new_boot;  // the service was restarted: it knows no lock of ours, but may be asked again
    std::function<void(const wire::WelcomeT&, transport::PeerId)> on_welcome;
    std::function<std::vector<uint64_t>()> grants;  // what is to be reclaimed after a restart of the service
    std::function<void()> on_recall;                // the service needs the room of idle grants
    std::function<void()> on_fenced;  // the service gave us up: what we held and asked for is gone
  };

  Session(transport::Transport& transport, Options options);
  ~Session() override;

  // Asks. `done` runs exactly once: with the answer, with the service's error, with kUnavailable when the
  // service stayed away for too long, or with kProtocol when the connection ended each time this was sent.
  // Not hurried: nobody waits for the answer.
  void call(protocol::Body body, Answered done, bool hurried = true);
  template <class T>
  void call(T body, Answered done, bool hurried = true) {
    protocol::Body any;
    any.Set(std::move(body));
    call(std::move(any), std::move(done), hurried);
  }
  // Says something that is not answered to anybody; dropped when there is no connection.
  void tell(protocol::Body body);

  bool ready_now() const { return state_ == State::kReady; }

  void add(Recoverable* file) { files_.push_back(file); }
  void remove(Recoverable* file) { std::erase(files_, file); }

  // Says goodbye and ends: outstanding and later calls fail with kAborted.
  void end(std::function<void()> done);

  // Any thread: whether the service was there when it was last heard of.
  bool connected() const { return connected_.load(); }
  // Any thread: until when the service surely has not given this session up, by transport().now_ms().
  uint64_t leased_until_ms() const { return leased_until_ms_.load(std::memory_order_acquire); }

  transport::Transport& transport() { return transport_; }
  std::optional<transport::PeerId> peer() const { return peer_; }

  void on_connected(transport::PeerId) override {}
  void on_message(transport::PeerId peer, std::span<const std::byte> message) override;
  void on_disconnected(transport::PeerId peer, const Error& reason) override;

 private:
  struct Call {
    std::vector<std::byte> message;
    Answered done;
    wire::Body kind = wire::Body::NONE;
    uint64_t sent_ms = 0;  // the last time
    uint64_t turn = 0;     // among all that was sent, the last time
    unsigned times_sent = 0;
    unsigned unheard = 0;    // connections in a row that ended with no sign that the service had read this
    unsigned cut_short = 0;  // connections in a row that ended soon after this was sent
    bool hurried = true;
  };
  static constexpr unsigned kDoubted =
      2;  // unheard so often, it is sent alone, to see whether it is at fault
  static constexpr unsigned kMostUnheard = 5;
  static constexpr unsigned kMostCutShort = 100;
  enum class State { kAway, kConnecting, kRecovering, kReady, kEnded };

  void connect();
  void retry_later(const Error& why);
  // Asks again in the old order. Doubted calls go alone, each when all before it was heard.
  void ask_again();
  void hear(std::function<void()> then);
  void all_asked_again();
  bool sent_here(const Call& call) const { return call.turn > turns_before_; }
  // What the end of the connection says of the calls sent over it; those that fail for it, no more in calls_.
  std::vector<Call> take_blamed();
  void away(const Error& why);
  void give_up(const Error& why);
  void welcome(const wire::WelcomeT& welcome);
  void recover_files();
  void ready();
  void send(uint64_t id, Call& call);
  void fail_all(const Error& why);
  void renew();
  uint64_t put(protocol::Body body, Answered done, bool hurried = true);

  transport::Transport& transport_;
  Options options_;
  State state_ = State::kAway;
  std::optional<transport::PeerId> peer_;
  uint64_t hello_id_ = 0;
  uint64_t next_id_ = 1;
  uint64_t session_ = 0;
  uint64_t secret_ = 0;
  uint64_t boot_ = 0;
  uint64_t lease_ms_ = 0;
  std::atomic<uint64_t> leased_until_ms_ = 0;
  uint64_t hello_ms_ = 0;
  std::optional<uint64_t> away_since_ms_;  // reset by an answer, not by a connection alone
  unsigned failures_ = 0;                  // to connect, since the last answer
  bool retry_scheduled_ = false;
  bool renewing_ = false;
  bool asking_again_ = false;         // ready, but calls asked again go first
  bool must_recover_ = false;         // the service was restarted and has not been told of our open files yet
  std::set<uint64_t> recover_calls_;  // Recover requests not answered yet
  std::set<uint64_t> probes_;         // Renew requests of this connection, see hear()
  std::map<uint64_t, Call> calls_;    // not answered, by number
  uint64_t turns_ = 0;                // messages sent over all connections
  uint64_t turns_before_ = 0;         // of those, before this connection
  uint64_t heard_turn_ = 0;           // the last one that was answered: the service has read all before it
  std::atomic<bool> connected_ = false;
  std::vector<Recoverable*> files_;
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  // for work that the transport holds when we are gone
};

}  // namespace sluice::client
