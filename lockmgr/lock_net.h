#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/assert.h"
#include "lockmgr/client.h"
#include "lockmgr/server.h"

// For tests: one lock server and its clients, joined by queues in memory. Each client's messages keep their
// order; when they arrive, and whose first, is the test's choice.
namespace sluice::lockmgr {

class StepClock final : public Clock {
 public:
  uint64_t now_ms() const override { return now_ms_; }
  void advance(uint64_t ms) { now_ms_ += ms; }

 private:
  uint64_t now_ms_ = 1;
};

class LockNet final : public LockOutbox {
 public:
  using Message = std::function<void()>;

  class Client final : public LockRequester, public LockFlusher {
   public:
    Client(LockNet& net, SessionId session, LockCache::Options options)
        : net_(net), session_(session), cache_(net.clock_, *this, *this, options) {}

    LockCache& cache() { return cache_; }
    SessionId session() const { return session_; }
    void new_session(SessionId session) { session_ = session; }
    bool alive() const { return alive_; }
    // The server evicted its session, and the client has not heard of it yet.
    bool evicted() const { return evicted_; }
    // It never does or says anything again.
    void die() {
      alive_ = false;
      to_server.clear();
      to_client.clear();
    }

    // Something the client tells the server besides locks, in order with them.
    void tell_server(Message message) {
      if (alive_) to_server.push_back(std::move(message));
    }
    // Called when what was written in an extent is to be made visible; the default does so at once.
    std::function<void(ContainerId, Extent, std::function<void()>)> on_flush;

    std::deque<Message> to_server;
    std::deque<Message> to_client;
    // What went out, for tests that count.
    std::vector<LockAsk> asked;
    std::vector<LockHandle> released;
    size_t revokes_heard = 0;
    size_t flushes = 0;

   private:
    friend class LockNet;

    void send_request(const LockAsk& ask) override {
      asked.push_back(ask);
      tell_server([this, ask] { net_.expect_known(net_.server_->request(session_, ask)); });
    }
    void send_release(ContainerId container, const std::vector<LockHandle>& handles) override {
      released.insert(released.end(), handles.begin(), handles.end());
      tell_server([this, container, handles] {
        net_.expect_known(net_.server_->release(session_, container, handles));
      });
    }
    void flush(ContainerId container, Extent extent, std::function<void()> done) override {
      ++flushes;
      if (on_flush) return on_flush(container, extent, std::move(done));
      done();
    }

    LockNet& net_;
    SessionId session_;
    bool alive_ = true;
    bool evicted_ = false;
    LockCache cache_;
  };

  explicit LockNet(LockServer::Options options) : options_(options) {
    server_ = std::make_unique<LockServer>(clock_, *this, options_);
  }

  Client& add_client(LockCache::Options options) {
    const SessionId session = next_session();
    clients_.push_back(std::make_unique<Client>(*this, session, options));
    by_session_[session] = clients_.back().get();
    SLUICE_ASSERT(server_->open_session(session).has_value());
    return *clients_.back();
  }
  // The client, which lost its session, opens another.
  void reopen(Client& client) {
    by_session_.erase(client.session());
    client.new_session(next_session());
    by_session_[client.session()] = &client;
    SLUICE_ASSERT(server_->open_session(client.session()).has_value());
  }
  // The server forgets everything, and every message on its way is lost.
  void restart_server(uint64_t recovery_ms) {
    std::vector<SessionId> expected;
    for (const auto& [session, client] : by_session_) {
      client->to_server.clear();
      client->to_client.clear();
      if (client->evicted_) {
        tell_of_eviction(*client);
      } else {
        expected.push_back(session);
      }
    }
    options_.first_generation += 1'000'000;
    server_ = std::make_unique<LockServer>(clock_, *this, options_);
    for (const SessionId session : expected) SLUICE_ASSERT(server_->open_session(session).has_value());
    server_->begin_recovery(clock_.now_ms() + recovery_ms, expected);
  }

  // Delivers everything until nobody has anything more to say.
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& client : clients_) {
        while (deliver(client->to_server) || deliver(client->to_client)) moved = true;
      }
    }
  }
  static bool deliver(std::deque<Message>& queue) {
    if (queue.empty()) return false;
    const Message message = std::move(queue.front());
    queue.pop_front();
    message();
    return true;
  }

  LockServer& server() { return *server_; }
  StepClock& clock() { return clock_; }
  const std::vector<std::unique_ptr<Client>>& clients() const { return clients_; }
  // Told when the server evicts a session, before others are granted what it held.
  std::function<void(SessionId)> on_evicted;
  // Hears each answer as the server gives it.
  std::function<void(RequestId, const std::vector<ExtentAnswer>&)> on_grant;

 private:
  SessionId next_session() { return SessionId(++last_session_); }

  // A session that the server evicted may still be talking; its words are refused.
  void expect_known(const Result<>& result) {
    SLUICE_ASSERT(result.has_value() || result.error().code == ErrorCode::kFenced);
  }

  void tell_client(SessionId session, Message message) {
    const auto at = by_session_.find(session);
    if (at != by_session_.end() && at->second->alive()) at->second->to_client.push_back(std::move(message));
  }
  void send_grant(SessionId session, RequestId request, ContainerId container,
                  const std::vector<ExtentAnswer>& answers) override {
    if (on_grant) on_grant(request, answers);
    Client* client = by_session_.at(session);
    tell_client(session, [=] { client->cache_.on_answer(request, container, answers); });
  }
  void send_error(SessionId session, RequestId request, const Error& error) override {
    Client* client = by_session_.at(session);
    tell_client(session, [=] { client->cache_.on_error(request, error); });
  }
  void send_revoke(SessionId session, ContainerId container, LockHandle handle, Extent /*extent*/) override {
    Client* client = by_session_.at(session);
    tell_client(session, [=] {
      ++client->revokes_heard;
      client->cache_.on_revoke(container, handle);
    });
  }
  void session_evicted(SessionId session) override {
    if (on_evicted) on_evicted(session);
    Client* client = by_session_.at(session);
    // What was on its way to the old session does not reach the next one.
    client->to_server.clear();
    client->to_client.clear();
    by_session_.erase(session);
    if (!client->alive()) return;
    by_session_[session] = client;
    client->evicted_ = true;
    tell_of_eviction(*client);
  }
  void tell_of_eviction(Client& client) {
    client.to_client.push_back([this, &client] {
      client.evicted_ = false;
      reopen(client);
      client.cache_.session_lost();
    });
  }

  StepClock clock_;
  LockServer::Options options_;
  std::unique_ptr<LockServer> server_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<SessionId, Client*> by_session_;
  uint64_t last_session_ = 0;
};

}  // namespace sluice::lockmgr
