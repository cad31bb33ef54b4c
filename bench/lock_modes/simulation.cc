#include "bench/lock_modes/simulation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/assert.h"
#include "bench/lock_modes/packet.h"
#include "lockmgr/client.h"
#include "lockmgr/server.h"
#include "lockmgr/strategy.h"
#include "transport/sim/sim_network.h"

namespace sluice::bench::lock_modes {
namespace {

using lockmgr::LockHandle;
using lockmgr::LockUse;
using transport::PeerId;
using transport::SimNetwork;

constexpr uint64_t kForeverMs = 1'000'000'000;
constexpr ContainerId kSharedFile(1);

struct World {
  World(const Model& m, const Load& l, Scheme s)
      : model(m),
        load(l),
        scheme(s),
        network({.seed = 1,
                 .min_delay_us = l.delay_us,
                 .max_delay_us = l.delay_us,
                 .keepalive_ms = kForeverMs,
                 .peer_timeout_ms = kForeverMs,
                 .connect_timeout_ms = kForeverMs}) {}
  const Model& model;
  const Load& load;
  const Scheme scheme;
  SimNetwork network;
  Outcome outcome;
  uint32_t unfinished = 0;
  // Collective writes: who has ended its write of this round. Told to all at once when it is the last.
  uint32_t round_ended = 0;
  std::vector<std::function<void()>> next_round;
};

// Something that does one thing after the other, each taking its time.
class Queue {
 public:
  explicit Queue(SimNetwork& network) : network_(network) {}
  // When a job that takes `us` is begun and ended, counted from now on. Fractions of a microsecond add up.
  struct Span {
    uint64_t begins_in_us;
    uint64_t ends_in_us;
  };
  Span add(double us) {
    const double now = static_cast<double>(network_.now_us());
    const double begin = std::max(now, free_at_us_);
    free_at_us_ = begin + us;
    return {static_cast<uint64_t>(std::ceil(begin - now)),
            static_cast<uint64_t>(std::ceil(free_at_us_ - now))};
  }
  void run(double us, std::function<void()> work) {
    const uint64_t in_us = add(us).ends_in_us;
    if (in_us == 0) return work();
    network_.after_us(in_us, std::move(work));
  }

 private:
  SimNetwork& network_;
  double free_at_us_ = 0;
};

// One end: a processor that every message costs time, coming and going.
class Node : public transport::Handler {
 public:
  Node(World& world, transport::Transport& transport)
      : world_(world), transport_(transport), processor_(world.network) {
    transport_.set_handler(this);
  }
  void on_connected(PeerId) override {}
  void on_disconnected(PeerId, const Error& reason) override {
    SLUICE_ASSERT(reason.message.empty());  // nothing in this world ends a connection
  }
  void on_message(PeerId peer, std::span<const std::byte> bytes) override {
    processor_.run(world_.model.message_us,
                   [this, peer, packet = Packet::decode(bytes)] { received(peer, packet); });
  }

 protected:
  virtual void received(PeerId peer, const Packet& packet) = 0;
  void send(PeerId peer, const Packet& packet) {
    ++world_.outcome.messages;
    if (packet.kind != PacketKind::kWrite && packet.kind != PacketKind::kWritten)
      ++world_.outcome.lock_messages;
    processor_.run(world_.model.message_us, [this, peer, bytes = packet.encode()]() mutable {
      const auto sent = transport_.send(peer, std::move(bytes));
      SLUICE_ASSERT(sent.has_value());
    });
  }

  World& world_;
  transport::Transport& transport_;
  Queue processor_;
};

class Server final : public Node, public lockmgr::LockOutbox {
 public:
  Server(World& world, transport::Transport& transport)
      : Node(world, transport),
        intake_(world.network),
        locks_(world.network.clock(), *this, {.lease_ms = 0, .first_generation = 1}) {}

 private:
  void received(PeerId peer, const Packet& packet) override {
    const SessionId session(packet.session);
    if (const auto at = peers_.find(session); at == peers_.end()) {
      peers_[session] = peer;
      SLUICE_ASSERT(locks_.open_session(session).has_value());
    }
    switch (packet.kind) {
      case PacketKind::kAsk:
        SLUICE_ASSERT(locks_.request(session, packet.ask()).has_value());
        return;
      case PacketKind::kRelease:
        SLUICE_ASSERT(locks_.release(session, packet.container, packet.handles()).has_value());
        return;
      case PacketKind::kWrite:
        return write(session, packet);
      default:
        SLUICE_ASSERT(packet.kind == PacketKind::kHello);
    }
  }

  // The token is checked first; then the bytes come in, as fast as this server and that client's link allow.
  void write(SessionId session, const Packet& packet) {
    const Extent extent = packet.extents.front();
    const auto allowed =
        locks_.check(session, packet.container, packet.handle, extent, lockmgr::LockMode::kPw);
    SLUICE_ASSERT(allowed.has_value());
    const double bytes = static_cast<double>(extent.length().value);
    const uint64_t taken_us = intake_.add(bytes / world_.model.server_bytes_per_s * 1e6).ends_in_us;
    const auto sent_us = static_cast<uint64_t>(std::ceil(bytes / world_.model.link_bytes_per_s * 1e6));
    Packet written = packet;
    written.kind = PacketKind::kWritten;
    world_.network.after_us(std::max(taken_us, sent_us),
                            [this, session, written] { send(peers_.at(session), written); });
  }

  void send_grant(SessionId session, lockmgr::RequestId request, ContainerId container,
                  const std::vector<lockmgr::ExtentAnswer>& answers) override {
    send(peers_.at(session), Packet::grant(request, container, answers));
  }
  void send_error(SessionId, lockmgr::RequestId, const Error& error) override {
    SLUICE_ASSERT(error.message.empty());  // no request of this bench is one to refuse
  }
  void send_revoke(SessionId session, ContainerId container, LockHandle handle, Extent) override {
    ++world_.outcome.revokes;
    send(peers_.at(session), Packet::revoke(container, handle));
  }
  void session_evicted(SessionId) override {}

  Queue intake_;
  lockmgr::LockServer locks_;
  std::map<SessionId, PeerId> peers_;
};

class Aggregator final : public Node {
 public:
  Aggregator(World& world, transport::Transport& transport, uint32_t number)
      : Node(world, transport), number_(number), link_(world.network) {
    // Only with the servers it will write to.
    for (uint64_t write = 0; write < std::min<uint64_t>(world.load.writes, world.load.servers); ++write) {
      auto& station = stations_[server_of(write)];
      if (!station) station = std::make_unique<Station>(*this, server_of(write));
    }
  }

  void connect() {
    for (auto& [server, station] : stations_) station->connect();
  }
  void start() {
    if (!world_.model.unforeseen) tell_domain();
    next_write();
  }

 private:
  void tell_domain() {
    std::map<uint32_t, std::vector<Extent>> domains;
    for (uint64_t write = 0; write < world_.load.writes; ++write)
      domains[server_of(write)].push_back(place_of(write));
    for (const auto& [server, domain] : domains) stations_.at(server)->cache().expect(file(), domain);
  }
  uint32_t server_of(uint64_t write) const {
    return static_cast<uint32_t>((write * world_.load.aggregators + number_) % world_.load.servers);
  }
  Extent place_of(uint64_t write) const {
    const uint64_t place = own_file() ? write : write * world_.load.aggregators + number_;
    return Extent::at(Offset(place * world_.load.transfer_bytes), Length(world_.load.transfer_bytes));
  }

  // The write has its lock and is copied.
  void write_ended() {
    if (world_.model.independent) return next_write();
    world_.next_round.push_back([this] { next_write(); });
    if (++world_.round_ended < world_.load.aggregators) return;
    world_.round_ended = 0;
    for (auto& begin : std::exchange(world_.next_round, {})) world_.network.after_us(0, std::move(begin));
  }

  // What it has with one server: a connection, and the locks there. One lock namespace for each.
  class Station final : public lockmgr::LockRequester, public lockmgr::LockFlusher {
   public:
    Station(Aggregator& owner, uint32_t server)
        : owner_(owner), server_(server), cache_(owner.world_.network.clock(), *this, *this, {}) {
      cache_.use_strategy(owner.file(), owner.strategy());
    }
    void connect() {
      peer_ = owner_.transport_.connect({"sim://server" + std::to_string(server_)}).value();
      owner_.send(peer_, owner_.packet(PacketKind::kHello));
    }

    void send_request(const lockmgr::LockAsk& ask) override {
      owner_.send(peer_, Packet::ask(owner_.session(), ask));
    }
    void send_release(ContainerId container, const std::vector<LockHandle>& handles) override {
      owner_.send(peer_, Packet::release(owner_.session(), container, handles));
    }
    void flush(ContainerId, Extent extent, std::function<void()> done) override {
      flushes_.push_back({extent, std::move(done)});
      end_flushes();
    }

    void write(Extent extent, LockUse use) {
      Packet packet = owner_.packet(PacketKind::kWrite);
      packet.container = owner_.file();
      packet.handle = use.token().handle;
      packet.extents = {extent};
      dirty_.push_back(extent);
      if (owner_.world_.model.write_through) uses_.emplace(extent.begin, std::move(use));
      // The message goes when the link has come to these bytes.
      const double bytes = static_cast<double>(extent.length().value);
      const auto span = owner_.link_.add(bytes / owner_.world_.model.link_bytes_per_s * 1e6);
      owner_.world_.network.after_us(span.begins_in_us, [this, packet] { owner_.send(peer_, packet); });
    }
    void written(Extent extent) {
      dirty_.erase(std::find(dirty_.begin(), dirty_.end(), extent));
      uses_.erase(extent.begin);
      end_flushes();
    }

    lockmgr::LockCache& cache() { return cache_; }
    PeerId peer() const { return peer_; }

   private:
    struct Flush {
      Extent extent;
      std::function<void()> done;
    };
    void end_flushes() {
      for (size_t i = 0; i < flushes_.size();) {
        const auto in_it = [&](const Extent& dirty) { return dirty.overlaps(flushes_[i].extent); };
        if (std::any_of(dirty_.begin(), dirty_.end(), in_it)) {
          ++i;
          continue;
        }
        const auto done = std::move(flushes_[i].done);
        flushes_.erase(flushes_.begin() + static_cast<ptrdiff_t>(i));
        done();
        i = 0;
      }
    }

    Aggregator& owner_;
    const uint32_t server_;
    PeerId peer_;
    lockmgr::LockCache cache_;
    std::vector<Extent> dirty_;  // sent, not acknowledged
    std::vector<Flush> flushes_;
    std::map<Offset, LockUse> uses_;  // of write-through
  };

  SessionId session() const { return SessionId(number_ + 1); }
  bool own_file() const { return world_.scheme == Scheme::kFilePerProcess; }
  ContainerId file() const { return own_file() ? ContainerId(kSharedFile.value + 1 + number_) : kSharedFile; }
  Packet packet(PacketKind kind) const {
    Packet made;
    made.kind = kind;
    made.session = session().value;
    return made;
  }

  std::unique_ptr<lockmgr::LockStrategy> strategy() const {
    const size_t extents = world_.model.window_extents;
    const lockmgr::GroupId group(1);
    switch (world_.scheme) {
      case Scheme::kGroup:
        return lockmgr::make_strategy(lockmgr::LockPolicy::kGroup, group, extents);
      case Scheme::kLockahead:
        return lockmgr::make_strategy(lockmgr::LockPolicy::kLockahead, group, extents);
      case Scheme::kAuto:
        return lockmgr::make_strategy(lockmgr::LockPolicy::kAuto, group, extents);
      case Scheme::kNone:
        return lockmgr::make_strategy(lockmgr::LockPolicy::kNone, group, extents);
      case Scheme::kStandard:
      case Scheme::kFilePerProcess:
        break;
    }
    return lockmgr::make_strategy(lockmgr::LockPolicy::kStandard, group, extents);
  }

  void next_write() {
    const uint64_t bytes = world_.load.transfer_bytes;
    if (begun_ == world_.load.writes) {
      ended_ = true;
      if (unacknowledged_ == 0) --world_.unfinished;
      return;
    }
    blocked_ = unacknowledged_ > 0 && (unacknowledged_ + 1) * bytes > world_.model.dirty_bytes;
    if (blocked_) return;
    const Extent extent = place_of(begun_);
    Station& station = *stations_.at(server_of(begun_++));
    ++world_.outcome.writes;
    world_.outcome.bytes += bytes;
    const uint64_t asked_us = world_.network.now_us();
    const auto at_once = std::make_shared<bool>(true);
    station.cache().acquire(
        file(), extent, lockmgr::LockMode::kPw,
        [this, &station, extent, asked_us, at_once](Result<LockUse> use) {
          SLUICE_ASSERT(use.has_value());
          world_.outcome.waits += *at_once ? 0 : 1;
          world_.outcome.wait_us += static_cast<double>(world_.network.now_us() - asked_us);
          ++unacknowledged_;
          station.write(extent, std::move(*use));
          const double copy_us =
              static_cast<double>(world_.load.transfer_bytes) / world_.model.copy_bytes_per_s * 1e6;
          if (world_.model.write_through) return;
          world_.network.after_us(static_cast<uint64_t>(std::ceil(copy_us)), [this] { write_ended(); });
        });
    *at_once = false;
  }

  void received(PeerId peer, const Packet& packet) override {
    Station& station = *std::find_if(stations_.begin(), stations_.end(), [peer](const auto& s) {
                          return s.second->peer() == peer;
                        })->second;
    switch (packet.kind) {
      case PacketKind::kGrant:
        for (const auto& answer : packet.answers)
          world_.outcome.dropped += answer.answer == lockmgr::LockAnswer::kDropped ? 1 : 0;
        return station.cache().on_answer(packet.request, packet.container, packet.answers);
      case PacketKind::kRevoke:
        return station.cache().on_revoke(packet.container, packet.handle);
      default:
        SLUICE_ASSERT(packet.kind == PacketKind::kWritten);
    }
    --unacknowledged_;
    station.written(packet.extents.front());
    if (world_.model.write_through) return write_ended();
    if (blocked_ || (begun_ == world_.load.writes && unacknowledged_ == 0 && ended_)) next_write();
  }

  const uint32_t number_;
  Queue link_;
  std::map<uint32_t, std::unique_ptr<Station>> stations_;  // by server
  uint64_t begun_ = 0;
  uint64_t unacknowledged_ = 0;
  bool blocked_ = false;  // until something is acknowledged
  bool ended_ = false;    // nothing more to begin
};

constexpr std::pair<Scheme, std::string_view> kNames[] = {
    {Scheme::kStandard, "standard"},   {Scheme::kGroup, "group"},
    {Scheme::kLockahead, "lockahead"}, {Scheme::kAuto, "auto"},
    {Scheme::kNone, "none"},           {Scheme::kFilePerProcess, "file-per-process"}};

}  // namespace

std::string_view to_string(Scheme scheme) {
  for (const auto& [known, name] : kNames) {
    if (known == scheme) return name;
  }
  return "";
}

Result<Scheme> parse_scheme(std::string_view name) {
  for (const auto& [scheme, known] : kNames) {
    if (known == name) return scheme;
  }
  return fail(ErrorCode::kInvalidArgument,
              "there is no mode '" + std::string(name) +
                  "'; there are standard, group, lockahead, auto, none and file-per-process");
}

Outcome simulate(const Model& model, const Load& load, Scheme scheme) {
  SLUICE_ASSERT(load.aggregators > 0 && load.servers > 0 && load.transfer_bytes > 0 && load.writes > 0);
  World world(model, load, scheme);
  std::vector<std::unique_ptr<Server>> servers;
  for (uint32_t s = 0; s < load.servers; ++s)
    servers.push_back(std::make_unique<Server>(world, world.network.start("server" + std::to_string(s))));
  std::vector<std::unique_ptr<Aggregator>> aggregators;
  for (uint32_t a = 0; a < load.aggregators; ++a) {
    aggregators.push_back(
        std::make_unique<Aggregator>(world, world.network.start("aggregator" + std::to_string(a)), a));
  }
  // The connections are there before the clock starts, as they are at MPI_File_open.
  for (auto& aggregator : aggregators) aggregator->connect();
  world.network.run_for(1'000 + load.aggregators);
  world.outcome = {};
  world.unfinished = load.aggregators;
  const uint64_t began_us = world.network.now_us();
  for (auto& aggregator : aggregators) world.network.after_us(0, [&a = *aggregator] { a.start(); });
  while (world.unfinished > 0) SLUICE_ASSERT(world.network.step());
  world.outcome.seconds = static_cast<double>(std::max<uint64_t>(1, world.network.now_us() - began_us)) / 1e6;
  return world.outcome;
}

}  // namespace sluice::bench::lock_modes
