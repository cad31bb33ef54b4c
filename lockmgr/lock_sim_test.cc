#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "base/rng.h"
#include "lockmgr/lock_net.h"

// Clients that read and write a few overlapping extents of two files at random, over queues that deliver at
// random, with clients that die, servers that restart, leases that end, and locks that are reclaimed. One
// thread; each run is told by its seed.
namespace sluice::lockmgr {
namespace {

constexpr size_t kClients = 5;
constexpr uint64_t kBytes = 64;
constexpr ContainerId kShared(1);   // mode standard
constexpr ContainerId kGrouped(2);  // some clients in group 1, some in group 2, some standard

// What the runs together must have met, or the test tests less than it says.
struct Reached {
  size_t uses = 0, flushes = 0, deaths = 0, evicted_alive = 0, restarts = 0, refused = 0, ahead = 0;
};

class Sim {
 public:
  Sim(uint64_t seed, Reached& reached)
      : rng_(seed), reached_(reached), net_({.lease_ms = 400, .first_generation = 1}) {
    net_.on_evicted = [this](SessionId session) { evicted(session); };
    for (size_t i = 0; i < kClients; ++i) {
      LockNet::Client& client = net_.add_client({.max_idle_locks = 1 + rng_.below(6), .max_idle_ms = 150});
      if (i % 3 != 2) {
        client.cache().use_strategy(kGrouped, std::make_unique<GroupStrategy>(GroupId(1 + i % 3)));
      }
      client.on_flush = [this, &client](ContainerId container, Extent extent, std::function<void()> done) {
        flush(client, container, extent, std::move(done));
      };
    }
  }

  void run(size_t steps) {
    for (size_t i = 0; i < steps; ++i) step(true);
    // No new work; whatever began must end.
    for (size_t i = 0; busy(); ++i) {
      ASSERT_LT(i, 100'000u) << "somebody waits for ever: " << waiting();
      step(false);
    }
    for (const auto& client : net_.clients()) {
      ASSERT_TRUE(!client->alive() || client->cache().pending_count() == 0);
    }
  }

  ~Sim() {
    for (Use& use : uses_) use.hold.end();
  }

 private:
  struct Use {
    uint64_t id;
    LockNet::Client* client;
    SessionId session;
    ContainerId container;
    Extent extent;
    LockMode access;
    LockUse hold;
    bool asked_to_end = false;
    bool fenced = false;  // the session was evicted: the server refuses its messages
  };
  struct Dirty {
    LockNet::Client* client;
    ContainerId container;
    Extent extent;
  };

  void step(bool new_work) {
    net_.clock().advance(1);
    if (rng_.below(8) == 0) net_.server().expire();
    heartbeat();
    LockNet::Client& client = *net_.clients()[rng_.below(kClients)];
    if (client.alive()) {
      if (rng_.below(2) == 0) {
        LockNet::deliver(client.to_server);
      } else {
        LockNet::deliver(client.to_client);
      }
      if (rng_.below(40) == 0) client.cache().tick();
      if (new_work && rng_.below(3) == 0) begin_work(client);
    }
    if (!uses_.empty() && rng_.below(2) == 0) end_a_use();
    if (new_work) disturb();
  }

  void heartbeat() {
    if (net_.clock().now_ms() % 60 != 0) return;
    for (const auto& client : net_.clients()) {
      if (!client->alive() || client.get() == silent_) continue;
      client->tell_server([this, c = client.get()] { (void)net_.server().renew(c->session()); });
    }
  }

  void disturb() {
    const uint64_t what = rng_.below(3'000);
    if (what == 0 && deaths_ < 2) {
      LockNet::Client& victim = *net_.clients()[rng_.below(kClients)];
      if (victim.alive()) kill(victim);
    } else if (what == 1) {
      restart();
    } else if (what == 2) {
      silent_ = net_.clients()[rng_.below(kClients)].get();
    } else if (what == 3) {
      silent_ = nullptr;
    } else if (what < 20) {
      net_.server().reclaim(kShared, 1 + rng_.below(3));
    }
  }

  Extent some_extent() {
    const uint64_t begin = rng_.below(kBytes);
    return {Offset(begin), Offset(begin + 1 + rng_.below(rng_.below(5) == 0 ? kBytes : 8))};
  }

  void begin_work(LockNet::Client& client) {
    const ContainerId container = rng_.below(4) == 0 ? kGrouped : kShared;
    const uint64_t what = rng_.below(20);
    if (what == 0) return client.cache().drop(container);
    if (what < 4) return ask_ahead(client);
    const LockMode access = rng_.below(3) == 0 ? LockMode::kPr : LockMode::kPw;
    const Extent extent = some_extent();
    ++wanted_;
    client.cache().acquire(container, extent, access,
                           [this, &client, container, extent, access](Result<LockUse> use) {
                             SLUICE_ASSERT(wanted_ > 0);
                             --wanted_;
                             if (!use) {
                               ASSERT_EQ(use.error().code, ErrorCode::kFenced);
                               return;
                             }
                             if (client.alive()) began(client, container, extent, access, std::move(*use));
                           });
  }

  void ask_ahead(LockNet::Client& client) {
    std::vector<Extent> window;
    for (uint64_t i = 0; i < 4; ++i)
      window.push_back({Offset(kBytes + i * 10), Offset(kBytes + i * 10 + 10)});
    window.push_back(some_extent());
    client.cache().ask_ahead(
        kShared, LockMode::kPw, window, [this](const Result<std::vector<ExtentAnswer>>& answers) {
          if (!answers) return;
          reached_.ahead +=
              static_cast<size_t>(std::count_if(answers->begin(), answers->end(), [](const auto& a) {
                return a.answer == LockAnswer::kGranted;
              }));
        });
  }

  static GroupId group_of(const LockNet& net, const LockNet::Client* client, ContainerId container) {
    if (container != kGrouped) return GroupId(0);
    for (size_t i = 0; i < net.clients().size(); ++i) {
      if (net.clients()[i].get() == client) return GroupId(i % 3 == 2 ? 0 : 1 + i % 3);
    }
    return GroupId(0);
  }
  bool one_group(const LockNet::Client* a, const LockNet::Client* b, ContainerId container) const {
    const GroupId group = group_of(net_, a, container);
    return group.value != 0 && group == group_of(net_, b, container);
  }

  // The two promises: nobody else uses what this use touches, and what others wrote there is visible.
  void began(LockNet::Client& client, ContainerId container, Extent extent, LockMode access, LockUse hold) {
    ++reached_.uses;
    if (client.evicted()) {
      // It lives on its cache and does not know yet. The server refuses whatever it sends.
      uses_.push_back(
          {next_id_++, &client, client.session(), container, extent, access, std::move(hold), false, true});
      return;
    }
    for (const Use& other : uses_) {
      if (other.client == &client || other.fenced || other.container != container) continue;
      if (access == LockMode::kPr && other.access == LockMode::kPr) continue;
      if (one_group(&client, other.client, container)) continue;
      ASSERT_FALSE(other.extent.overlaps(extent)) << "two clients use " << to_string(extent) << " at once";
    }
    for (const Dirty& dirty : dirty_) {
      if (dirty.client == &client || dirty.container != container) continue;
      if (one_group(&client, dirty.client, container)) continue;
      ASSERT_FALSE(dirty.extent.overlaps(extent)) << "bytes in " << to_string(extent) << " were not flushed";
    }
    if (access == LockMode::kPw) dirty_.push_back({&client, container, extent});
    uses_.push_back({next_id_++, &client, client.session(), container, extent, access, std::move(hold)});
  }

  // The operation's message goes to the server, which checks the lock; its answer ends the use.
  void end_a_use() {
    auto at = std::next(uses_.begin(), static_cast<ptrdiff_t>(rng_.below(uses_.size())));
    if (!at->client->alive()) return;
    if (at->fenced) {
      uses_.erase(at);
      return;
    }
    if (at->asked_to_end) return;
    at->asked_to_end = true;
    send_operation(*at);
  }
  Use* use_of(uint64_t id) {
    const auto at = std::find_if(uses_.begin(), uses_.end(), [&](const Use& u) { return u.id == id; });
    return at == uses_.end() ? nullptr : &*at;
  }
  // A restart may have it sent twice.
  void send_operation(const Use& sent) {
    if (reconnecting_.contains(sent.client)) return;
    sent.client->tell_server([this, id = sent.id, token = sent.hold.token()] {
      const Use* use = use_of(id);
      if (use == nullptr) return;
      ASSERT_NE(token.handle, kNoLock);
      const auto allowed =
          net_.server().check(use->session, token.container, token.handle, use->extent, use->access);
      ASSERT_TRUE(allowed) << allowed.error().message;
      use->client->to_client.push_back(
          [this, id] { uses_.remove_if([&](const Use& u) { return u.id == id; }); });
    });
  }

  void flush(LockNet::Client& client, ContainerId container, Extent extent, std::function<void()> done) {
    if (!client.alive()) return;
    ++reached_.flushes;
    flushes_.push_back({next_id_++, &client, container, extent, std::move(done)});
    send_flush(flushes_.back());
  }
  struct Flush {
    uint64_t id;
    LockNet::Client* client;
    ContainerId container;
    Extent extent;
    std::function<void()> done;
  };
  Flush* flush_of(uint64_t id) {
    const auto at =
        std::find_if(flushes_.begin(), flushes_.end(), [&](const Flush& f) { return f.id == id; });
    return at == flushes_.end() ? nullptr : &*at;
  }
  void send_flush(const Flush& sent) {
    if (reconnecting_.contains(sent.client)) return;
    sent.client->tell_server([this, id = sent.id] {
      const Flush* flush = flush_of(id);
      if (flush == nullptr) return;
      std::erase_if(dirty_, [&](const Dirty& d) {
        return d.client == flush->client && d.container == flush->container &&
               flush->extent.contains(d.extent) && !in_use(d);
      });
      flush->client->to_client.push_back([this, id] {
        Flush* ended = flush_of(id);
        if (ended == nullptr) return;
        const auto done = std::move(ended->done);
        flushes_.remove_if([&](const Flush& f) { return f.id == id; });
        done();
      });
    });
  }
  // Written again by an operation that has not ended: stays dirty.
  bool in_use(const Dirty& dirty) const {
    return std::any_of(uses_.begin(), uses_.end(), [&](const Use& u) {
      return u.client == dirty.client && u.container == dirty.container && u.access == LockMode::kPw &&
             u.extent == dirty.extent;
    });
  }

  void kill(LockNet::Client& client) {
    ++deaths_;
    ++reached_.deaths;
    client.die();
    flushes_.remove_if([&](const Flush& f) { return f.client == &client; });
  }

  void evicted(SessionId session) {
    for (Use& use : uses_) {
      if (use.session != session) continue;
      use.fenced = true;
      const LockToken token = use.hold.token();
      const auto refused =
          net_.server().check(session, token.container, token.handle, use.extent, use.access);
      ASSERT_FALSE(refused);
      ASSERT_EQ(refused.error().code, ErrorCode::kFenced);
      ++reached_.refused;
    }
    for (const auto& client : net_.clients()) {
      if (client->session() != session) continue;
      reconnecting_.erase(client.get());
      std::erase_if(dirty_, [&](const Dirty& d) { return d.client == client.get(); });
      flushes_.remove_if([&](const Flush& f) { return f.client == client.get(); });
      reached_.evicted_alive += client->alive() ? 1 : 0;
      // The dead let go of their handles so that nothing is left over at the end; nobody hears of it.
      if (!client->alive()) uses_.remove_if([&](const Use& u) { return u.client == client.get(); });
    }
  }

  void restart() {
    if (net_.server().recovering()) return;
    ++reached_.restarts;
    net_.restart_server(200);
    for (const auto& client : net_.clients()) {
      if (!client->alive()) continue;
      LockNet::Client* c = client.get();
      if (c->evicted()) continue;
      c->cache().suspend();
      reconnecting_.insert(c);
      for (const auto& [container, held] : c->cache().held()) {
        c->tell_server([this, c, container = container, held = held] {
          const auto handles = net_.server().replay(c->session(), container, held);
          ASSERT_TRUE(handles) << handles.error().message;
          for (const LockHandle handle : *handles) ASSERT_NE(handle, kNoLock);
          c->to_client.push_back(
              [c, container, held, handles = *handles] { c->cache().replayed(container, held, handles); });
        });
      }
      c->tell_server([this, c] {
        (void)net_.server().finish_replay(c->session());
        c->to_client.push_back([this, c] {
          reconnecting_.erase(c);
          c->cache().resend();
          for (const Use& use : uses_) {
            if (use.client == c && use.asked_to_end && !use.fenced) send_operation(use);
          }
          for (const Flush& flush : flushes_) {
            if (flush.client == c) send_flush(flush);
          }
        });
      });
    }
  }

  bool busy() const {
    if (!uses_.empty() || !flushes_.empty()) return true;
    return std::any_of(net_.clients().begin(), net_.clients().end(), [](const auto& c) {
      return c->alive() && (!c->to_server.empty() || !c->to_client.empty() || c->cache().pending_count() > 0);
    });
  }

  std::string waiting() const {
    std::string text =
        std::to_string(uses_.size()) + " uses, " + std::to_string(flushes_.size()) + " flushes";
    for (const auto& client : net_.clients()) {
      text += "; client " + std::to_string(client->session().value) + (client->alive() ? " alive" : " dead") +
              " " + std::to_string(client->cache().pending_count()) + " pending";
    }
    return text;
  }

  SeededRng rng_;
  Reached& reached_;
  LockNet net_;
  std::list<Use> uses_;
  std::list<Flush> flushes_;
  std::vector<Dirty> dirty_;
  std::set<const LockNet::Client*> reconnecting_;  // the server restarted; what is to be sent waits
  LockNet::Client* silent_ = nullptr;
  size_t deaths_ = 0;
  size_t wanted_ = 0;
  uint64_t next_id_ = 1;
};

TEST(LockSim, no_two_clients_use_conflicting_extents_and_every_wait_ends) {
  Reached reached;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Sim sim(seed, reached);
    sim.run(4'000);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(reached.uses, 1'000u);
  EXPECT_GT(reached.flushes, 100u);
  EXPECT_GT(reached.deaths, 10u);
  EXPECT_GT(reached.evicted_alive, 10u);
  EXPECT_GT(reached.restarts, 10u);
  EXPECT_GT(reached.refused, 10u);
  EXPECT_GT(reached.ahead, 100u);
}

}  // namespace
}  // namespace sluice::lockmgr
