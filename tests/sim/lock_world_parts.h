#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <vector>

#include "base/rng.h"
#include "lockmgr/client.h"
#include "lockmgr/server.h"
#include "tests/sim/lock_ledger.h"
#include "tests/sim/lock_world.h"
#include "transport/sim/sim_network.h"

// The parts of a simulated world: one server at a time, and its clients.
namespace sluice::sim {

inline constexpr ContainerId kContended(1);  // few bytes, mode standard or auto
inline constexpr ContainerId kStrided(2);    // each client its own stride, mode lockahead
inline constexpr uint64_t kContendedBytes = 48;
inline constexpr uint64_t kLeaseMs = 1'000;
inline constexpr uint64_t kRenewMs = 150;
inline constexpr uint64_t kRecoveryMs = 800;

enum class Kind : uint8_t {
  kHello,
  kWelcome,
  kRenew,
  kAsk,
  kRelease,
  kGrant,
  kError,
  kRevoke,
  kReplay,
  kReplayed,
  kReplayDone,
  kReady,
  kWrite,
  kWritten,
  kRead,
  kValue
};

// Travels by its number: the network decides about when and whether, not about what.
struct Packet {
  Kind kind = Kind::kHello;
  SessionId session;
  uint64_t boot = 0;
  uint64_t number = 0;  // in its direction of the session, 0: outside of the order
  uint64_t heard = 0;   // Hello and Welcome: the newest number heard
  lockmgr::LockAsk ask;
  ContainerId file;
  std::vector<lockmgr::LockHandle> handles;
  std::vector<lockmgr::HeldLock> held;
  std::vector<lockmgr::ExtentAnswer> answers;
  Extent extent;
  Version version = 0;
  uint64_t operation = 0;
  std::vector<Version> seen;
  bool refused = false;
};

// One direction of a session over any number of connections: each packet is taken once, in order.
struct Direction {
  uint64_t sent = 0;
  uint64_t heard = 0;
  std::deque<Packet> unheard;  // sent and not known to be heard
};

class Server;
class Client;

struct World {
  World(const Schedule& s, Met& m);

  std::vector<std::byte> put(Packet packet);
  Packet take(std::span<const std::byte> bytes);
  void start_server(bool again);

  const Schedule schedule;
  Met& met;
  SeededRng rng;
  transport::SimNetwork network;
  LockLedger ledger;
  std::map<uint64_t, Packet> packets;
  uint64_t next_packet = 1;
  uint64_t boots = 0;
  uint64_t next_session = 1;
  std::map<SessionId, uint32_t> sessions;  // that may hold locks, and whose; survives the server
  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<Server>> dead_servers;
  std::vector<std::unique_ptr<Client>> clients;
  bool busy = true;
};

class Server final : public transport::Handler, public lockmgr::LockOutbox {
 public:
  Server(World& world, transport::Transport& transport, bool again);

  void on_connected(transport::PeerId) override {}
  void on_disconnected(transport::PeerId peer, const Error&) override;
  void on_message(transport::PeerId peer, std::span<const std::byte> bytes) override;

  void send_grant(SessionId session, lockmgr::RequestId request, ContainerId file,
                  const std::vector<lockmgr::ExtentAnswer>& answers) override;
  void send_error(SessionId session, lockmgr::RequestId request, const Error& error) override;
  void send_revoke(SessionId session, ContainerId file, lockmgr::LockHandle handle, Extent) override;
  void session_evicted(SessionId session) override;

  lockmgr::LockServer& locks() { return locks_; }
  void check_tables() const;

 private:
  struct Session {
    std::optional<transport::PeerId> peer;
    Direction out, in;
  };
  void hello(transport::PeerId peer, const Packet& packet);
  void take(SessionId id, const Packet& packet);
  void write(SessionId id, const Packet& packet);
  void replay(SessionId id, const Packet& packet);
  void send(SessionId id, Packet packet);
  void tick();

  World& world_;
  transport::Transport& transport_;
  const uint64_t boot_;
  std::map<SessionId, Session> sessions_;
  std::map<transport::PeerId, SessionId> peers_;
  lockmgr::LockServer locks_;
};

class Client final : public transport::Handler, public lockmgr::LockRequester, public lockmgr::LockFlusher {
 public:
  Client(World& world, uint32_t number, transport::Transport& transport);
  ~Client() override {
    alive_ = false;
    reads_.clear();  // their locks end while the rest is there
  }

  void on_connected(transport::PeerId) override {}
  void on_disconnected(transport::PeerId peer, const Error&) override;
  void on_message(transport::PeerId peer, std::span<const std::byte> bytes) override;

  void send_request(const lockmgr::LockAsk& ask) override;
  void send_release(ContainerId file, const std::vector<lockmgr::LockHandle>& handles) override;
  void flush(ContainerId file, Extent extent, std::function<void()> done) override;

  void die() { alive_ = false; }
  bool alive() const { return alive_; }
  SessionId session() const { return session_; }
  bool quiet() const { return !alive_ || (waiting_ == 0 && dirty_.empty() && reads_.empty() && ready_); }
  std::string state() const;
  std::string host() const { return "c" + std::to_string(number_); }

 private:
  struct Dirty {
    ContainerId file;
    Extent extent;
    Version version;
    bool sent;
    bool syncing;
  };
  struct Reading {
    ContainerId file;
    Extent extent;
    lockmgr::LockUse use;
  };
  struct Flushing {
    ContainerId file;
    Extent extent;
    std::function<void()> done;
  };

  void connect();
  void say(Packet packet);  // in order
  void transmit(const Packet& packet);
  void welcome(const Packet& packet);
  void lost();
  void replay();
  void take(const Packet& packet);
  void replayed(const Packet& packet);
  void written(const Packet& packet);
  void value(const Packet& packet);

  void work();
  void access(ContainerId file, Extent extent, bool writes);
  void begin(ContainerId file, Extent extent, bool writes, lockmgr::LockUse use);
  void send_dirty(Dirty& dirty);
  void send_dirty_in(ContainerId file, const Extent& extent);
  void send_read(uint64_t operation);
  void end_flushes();
  void sync();
  Extent some_extent(ContainerId file);
  void renew();

  World& world_;
  const uint32_t number_;
  transport::Transport& transport_;
  bool alive_ = true;
  bool ready_ = false;  // connected, and recovered if that was needed
  std::optional<transport::PeerId> peer_;
  SessionId session_;
  uint64_t boot_ = 0;
  Direction out_, in_;
  std::unique_ptr<lockmgr::LockCache> cache_;
  std::list<Dirty> dirty_;
  std::map<uint64_t, Reading> reads_;
  std::list<Flushing> flushes_;
  uint64_t next_operation_ = 1;
  uint64_t stride_at_ = 0;
  uint64_t waiting_ = 0;
  uint64_t replays_left_ = 0;
  std::map<uint64_t, std::pair<ContainerId, std::vector<lockmgr::HeldLock>>> replaying_;
};

}  // namespace sluice::sim
