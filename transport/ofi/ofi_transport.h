#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

// The transport between real processes, on libfabric.
//
// Scheme "tcp" works between any hosts, "shm" between processes of one user on one host. "any" does both at
// once: it listens over both, and a connection goes over what its address names.
//
// What ends a connection, besides disconnect(): the other process ends (seen at once over tcp and shm), is
// silent for peer_timeout_ms, breaks the rules of frame.h, or a message was lost. A connection is never
// mended: the user connects again. Every error told by on_disconnected but kProtocol is retryable.
//
// RMA. A pull or push goes in pieces of 1 MiB, a few at a time, so that messages and keepalives pass between
// them; a reader of memory that is being written meanwhile may see any mixture. A completed push is in the
// peer's memory. When an exposure is gone the peer's access fails with kIo, and over tcp that ends the
// connection as well. The owner withdraws memory that a peer may still be pushing into only after
// disconnecting that peer.
//
// Not promised: secrecy, or protection against other processes of the same user.
namespace sluice::transport {

struct OfiOptions {
  std::string scheme = "tcp";    // "tcp", "shm" or "any"
  bool tcp_when_needed = false;  // "any": tcp starts (and libfabric is loaded) with the first connection made
                                 // over it, and nobody reaches this side over it before
  std::vector<int> lend;  // descriptors that every process that connects over shm gets a copy of; at most 3
  std::string node;  // tcp: numeric address to listen on, default 127.0.0.1; shm: a name, default a fresh one
  std::string local_name;        // any: the name over shm, default a fresh one
  uint16_t port = 0;             // tcp: 0 takes any; a port in use is kExists. shm: unused
  uint64_t keepalive_ms = 1000;  // a quiet connection says something this often
  uint64_t peer_timeout_ms = 10000;
  uint64_t connect_timeout_ms = 5000;
};

class OfiTransport final : public Transport {
 public:
  static Result<std::unique_ptr<OfiTransport>> create(const OfiOptions& options);
  // Not while a loop runs it. Ends every connection; outstanding completions run with kAborted, the handler
  // is not called, posted work is dropped.
  ~OfiTransport() override;

  // Does what is ready; when nothing is, blocks until something is or max_wait_ms have passed. One thread at
  // a time, which is the loop thread.
  void run_once(uint64_t max_wait_ms);
  // Does what is ready and returns; true when there was something.
  bool run_ready();
  // Where processes of this user on this host reach it over shm; empty without shm.
  Address local_address() const { return local_address_; }

  Address address() const override;
  void set_handler(Handler* handler) override;
  Result<PeerId> connect(const Address& address) override;
  void disconnect(PeerId peer, const Error& reason) override;
  Result<> send(PeerId peer, std::vector<std::byte> message) override;
  Result<> send_unhurried(PeerId peer, std::vector<std::byte> message) override;
  Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, Access access) override;
  void pull(PeerId peer, const RemoteBuffer& buffer, uint64_t offset, std::span<std::byte> into,
            Completion done) override;
  void push(PeerId peer, const RemoteBuffer& buffer, uint64_t offset, std::span<const std::byte> from,
            Completion done) override;
  void post(std::function<void()> work) override;
  void after_ms(uint64_t delay_ms, std::function<void()> work) override;
  uint64_t now_ms() const override;
  std::optional<pid_t> peer_process(PeerId peer) const override;
  std::span<const UniqueFd> lent_files(PeerId peer) const override;

 private:
  class Core;
  OfiTransport(std::unique_ptr<Core> core, Address local_address);

  std::unique_ptr<Core> core_;
  const Address local_address_;
};

}  // namespace sluice::transport
