#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/transport.h"

// What the contract suite needs of an implementation, and a handler that writes down what it is told. Test
// code.
namespace sluice::transport {

// Several transports that can reach each other, run by the test's own thread.
class ContractRig {
 public:
  virtual ~ContractRig() = default;
  // Silence that ends a connection; before the first start(). Long by default: a loaded machine may stall a
  // test.
  virtual void set_peer_timeout_ms(uint64_t peer_timeout_ms) = 0;
  // A transport that lives until stop() or the rig's end. `name` is the address when the kind has names.
  virtual Transport& start(const std::string& name) = 0;
  // Ends it, as when its process exits in order.
  virtual void stop(Transport& transport) = 0;
  // Another transport at the address of one that was stopped.
  virtual Transport& start_again(const Address& address) = 0;
  // An address that nobody has.
  virtual Address nobody() = 0;
  // Runs all of them until `done` holds; false when it does not within `limit_ms`.
  virtual bool run_until(const std::function<bool()>& done, uint64_t limit_ms) = 0;
};

std::unique_ptr<ContractRig> make_tcp_rig();
std::unique_ptr<ContractRig> make_shm_rig();
std::unique_ptr<ContractRig> make_joined_rig();  // tcp and shm in one; reached over tcp
std::unique_ptr<ContractRig> make_sim_rig();

struct Message {
  PeerId peer;
  std::vector<std::byte> bytes;
};

class Recorder : public Handler {
 public:
  explicit Recorder(Transport& transport) : transport_(transport) { transport.set_handler(this); }

  void on_connected(PeerId peer) override { connected.push_back(peer); }
  void on_message(PeerId peer, std::span<const std::byte> message) override {
    messages.push_back({peer, {message.begin(), message.end()}});
    if (answer) answer(peer, message);
  }
  void on_disconnected(PeerId peer, const Error& reason) override { disconnected.emplace_back(peer, reason); }

  Transport& transport() { return transport_; }
  size_t times_disconnected(PeerId peer) const {
    size_t times = 0;
    for (const auto& [who, reason] : disconnected) times += who == peer;
    return times;
  }

  std::vector<PeerId> connected;
  std::vector<Message> messages;
  std::vector<std::pair<PeerId, Error>> disconnected;
  std::function<void(PeerId, std::span<const std::byte>)> answer;

 private:
  Transport& transport_;
};

// Bytes that tell where they belong.
std::vector<std::byte> pattern(size_t size, uint64_t seed);

// What transport_peer exposes: pattern(kPeerMemoryBytes, 42).
inline constexpr size_t kPeerMemoryBytes = 16 * 1024 * 1024;

// Raises this process's limit of open files to what it may have.
void allow_many_files();

// A RemoteBuffer as a message.
std::vector<std::byte> pack(const RemoteBuffer& buffer);
std::optional<RemoteBuffer> unpack(std::span<const std::byte> bytes);

}  // namespace sluice::transport
