#pragma once

#include <map>
#include <string>

#include "transport/sim/sim_network.h"

// The parts of SimNetwork: one incarnation of a host, and what joins two of them.
namespace sluice::transport {

class SimNetwork::Host final : public Transport {
 public:
  struct Region {
    std::span<std::byte> memory;
    Access access;
  };

  Host(SimNetwork& network, std::string name) : network_(network), name_(std::move(name)) {}

  Address address() const override { return {"sim://" + name_}; }
  void set_handler(Handler* handler) override { handler_ = handler; }
  Result<PeerId> connect(const Address& address) override;
  void disconnect(PeerId peer, const Error& reason) override;
  Result<> send(PeerId peer, std::vector<std::byte> message) override;
  Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, Access access) override;
  void pull(PeerId peer, const RemoteBuffer& buffer, uint64_t offset, std::span<std::byte> into,
            Completion done) override;
  void push(PeerId peer, const RemoteBuffer& buffer, uint64_t offset, std::span<const std::byte> from,
            Completion done) override;
  void post(std::function<void()> work) override;
  void after_ms(uint64_t delay_ms, std::function<void()> work) override;
  uint64_t now_ms() const override { return network_.now_ms(); }

  const std::string& name() const { return name_; }
  Handler* handler() const { return alive_ ? handler_ : nullptr; }
  bool alive() const { return alive_; }
  void die() { alive_ = false; }
  // Runs `work` at its time unless the host has died by then.
  void later_us(uint64_t delay_us, std::function<void()> work);

  PeerId add_end(EndRef end) {
    const PeerId peer(next_peer_++);
    ends_.emplace(peer.value, end);
    return peer;
  }
  void remove_end(PeerId peer) { ends_.erase(peer.value); }
  const std::map<uint64_t, EndRef>& ends() const { return ends_; }
  std::map<uint64_t, Region>& regions() { return regions_; }

 private:
  void start_rma(PeerId peer, Rma rma);

  SimNetwork& network_;
  const std::string name_;
  Handler* handler_ = nullptr;
  bool alive_ = true;
  uint64_t next_peer_ = 1;
  std::map<uint64_t, EndRef> ends_;     // open ones, by PeerId
  std::map<uint64_t, Region> regions_;  // by key
};

class SimNetwork::Exposure final : public ExposedMemory {
 public:
  Exposure(Host& host, uint64_t key, size_t length)
      : host_(host), remote_{reinterpret_cast<uint64_t>(this), key, length} {}
  ~Exposure() override { host_.regions().erase(remote_.key); }
  RemoteBuffer remote() const override { return remote_; }

 private:
  Host& host_;
  const RemoteBuffer remote_;
};

struct SimNetwork::Rma {
  bool pull = true;
  RemoteBuffer buffer;
  uint64_t offset = 0;
  std::byte* local = nullptr;
  size_t length = 0;
  size_t moved = 0;
  Completion done;
};

struct SimNetwork::Channel {
  struct End {
    Host* host = nullptr;
    PeerId peer;
    bool open = false;
    bool greeted = false;  // has heard from the other side
    uint64_t heard_ms = 0;
    uint64_t opened_ms = 0;
    std::deque<std::function<void()>> inbox;
    uint64_t last_due_us = 0;
    size_t messages_due = 0;  // of the inbox
    bool deaf = false;        // something was lost: nothing after it is taken
    std::map<uint64_t, Rma> rmas;
  };
  uint64_t id = 0;
  std::array<End, 2> ends;
};

}  // namespace sluice::transport
