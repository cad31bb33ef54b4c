#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "transport/ofi/connection.h"
#include "transport/ofi/ofi_transport.h"
#include "transport/ofi/wire.h"

namespace sluice::transport {

inline constexpr size_t kMaxConnections = 16384;

// The end of a connection that a new one may mend.
inline Error gone(std::string message) {
  return Error(ErrorCode::kUnavailable, std::move(message)).mark_retryable();
}

// The rules of connections, over any wire. Loop thread, but for post().
//
// What the user is told of a lost connection, and completions that a call finds due at once, wait in
// deferred_ for the next turn of the loop: the user is never called back from inside one of its own calls.
class OfiTransport::Core final : public WireEvents {
 public:
  Core(OfiOptions options, std::unique_ptr<Wire> wire);
  ~Core() override;

  void run_once(uint64_t max_wait_ms);
  bool run_ready();
  Address address() const { return wire_->address(); }
  void set_handler(Handler* handler) { handler_ = handler; }
  Result<PeerId> connect(const Address& address);
  void disconnect(PeerId peer, const Error& reason);
  Result<> send(PeerId peer, std::vector<std::byte> message, bool hurried);
  Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, Access access);
  void start_rma(PeerId peer, std::shared_ptr<RmaRequest> request);
  void post(std::function<void()> work);
  void after_ms(uint64_t delay_ms, std::function<void()> work);
  uint64_t now_ms() const { return clock_.now_ms(); }
  std::optional<pid_t> process(PeerId peer) const;
  std::span<const UniqueFd> lent(PeerId peer) const;

  void on_incoming_link(LinkId link) override;
  void on_frame(std::optional<LinkId> link, std::span<const std::byte> bytes) override;
  void on_writable(LinkId link) override;
  void on_rma_done(LinkId link, uint64_t cookie, const Result<>& outcome) override;
  void on_link_lost(LinkId link, const Error& reason) override;

 private:
  struct Timer {
    uint64_t due_ms;
    uint64_t order;
    std::function<void()> work;
  };

  Connection* find(PeerId peer);
  Connection* find(LinkId link);
  Connection& add_connection(LinkId link, const Address& address, bool outgoing);
  // Forgets a connection; its link is closed unless the wire already did.
  std::unique_ptr<Connection> remove(Connection& connection);
  void lose(Connection& connection, Error reason);
  void lose_later(PeerId peer, Error reason);
  void finish_requests(Connection& connection, const Error& reason);
  void say_farewell(std::unique_ptr<Connection> connection, const Error& reason);
  void advance(Connection& connection);

  void on_bad_frame(std::optional<LinkId> link, std::span<const std::byte> bytes, const Error& error);
  void on_hello(std::optional<LinkId> link, const Frame& frame);
  Error unacceptable(const Greeting& greeting) const;
  void refuse(LinkId link, uint64_t remote_name, const Error& reason);
  void on_hello_ack(Connection& connection, const Frame& frame);
  void on_established_frame(Connection& connection, const Frame& frame);
  void on_data(Connection& connection, const Frame& frame);
  void on_farewell(Connection& connection, const Frame& frame);
  void drop_stranger(std::optional<LinkId> link, const std::string& why);

  bool run_posted();
  bool run_timers();
  bool run_deferred();
  void tick();
  void forgive(uint64_t late_ms);
  void check_silence(uint64_t now);
  std::chrono::microseconds wait_limit(uint64_t max_wait_ms) const;

  const OfiOptions options_;
  const SteadyClock clock_;
  std::unique_ptr<Wire> wire_;
  Handler* handler_ = nullptr;

  uint64_t next_peer_ = 1;
  uint64_t next_cookie_ = 1;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;  // by PeerId; ordered, so ticks are
  std::unordered_map<uint64_t, PeerId> by_link_;
  std::unordered_map<uint64_t, PeerId> by_name_;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> closing_;  // by LinkId
  std::map<uint64_t, uint64_t> strangers_;  // links without a hello yet: LinkId to deadline_ms
  std::unordered_set<uint64_t> notices_;    // peers whose on_disconnected waits in deferred_
  std::deque<std::function<void()>> deferred_;

  std::vector<Timer> timers_;  // a heap
  uint64_t next_timer_ = 1;
  uint64_t next_tick_ms_ = 0;

  std::mutex posted_mutex_;
  std::deque<std::function<void()>> posted_;
};

}  // namespace sluice::transport
