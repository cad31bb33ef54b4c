#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/os.h"
#include "transport/ofi/handles.h"
#include "transport/ofi/silent_sockets.h"
#include "transport/ofi/wire.h"

namespace sluice::transport {

// Frames and RMA over libfabric's tcp provider, by connected endpoints (FI_EP_MSG): one socket for each link.
// Why not the reliable-datagram layer over it (tcp;ofi_rxm): a connected endpoint says at once when a peer
// refuses or dies, every completion belongs to one link, and closing it ends every operation of that link and
// of no other.
class TcpWire final : public Wire {
 public:
  // `node` is a numeric address; port 0 takes any. Who connects and does not begin libfabric's handshake is
  // cut off after about patience_ms.
  static Result<std::unique_ptr<TcpWire>> create(const std::string& node, uint16_t port,
                                                 uint64_t patience_ms);
  ~TcpWire() override;

  Address address() const override { return address_; }
  size_t max_frame_bytes() const override;
  bool rma_shows_life(LinkId) const override { return true; }
  Result<LinkId> open(const Address& address) override;
  void close(LinkId link) override;
  Accepted send(LinkId link, const OutgoingFrame& frame) override;
  bool flushed(LinkId link) const override;
  Accepted start_rma(LinkId link, const RmaChunk& chunk) override;
  Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, Access access) override;
  bool poll(WireEvents& events) override;
  void wait(std::chrono::microseconds max_wait) override;
  bool arm(std::vector<pollfd>& descriptors, std::chrono::microseconds& max_wait) override;
  void wake() override;

 private:
  struct Link;
  struct Operation;
  struct Completed;

  TcpWire(const FabricLibrary& library, uint64_t patience_ms);
  Result<> start(const std::string& node, uint16_t port);
  Result<> open_queues();
  Result<> listen();
  Result<std::unique_ptr<Link>> make_link(fi_info* info);
  Result<> post_receive(Link& link, Operation& operation);
  Link* find(LinkId id);
  // Moves completions of the fabric to completed_. True when there were some.
  bool collect();
  void handle(Completed done, WireEvents& events);
  void handle_receive(Operation& operation, Completed done, WireEvents& events);
  bool handle_connection_events(WireEvents& events);
  void accept(fi_info* info, WireEvents& events);
  void lose(LinkId id, const Error& reason, WireEvents& events);
  void end_pulls_in_flight(Link& link);
  bool close_silent(WireEvents& events);

  const FabricLibrary& library_;
  // Order matters: closed from the bottom up.
  InfoHandle info_;  // to open endpoints with; names no source port
  InfoHandle listen_info_;
  FabricHandle fabric_;
  DomainHandle domain_;
  EventQueueHandle event_queue_;
  CompletionQueueHandle completion_queue_;
  PassiveEndpointHandle listener_;
  UniqueFd wake_fd_;
  int completion_fd_ = -1;  // the queues' own
  int event_fd_ = -1;

  Address address_;
  const uint64_t patience_ms_;
  std::optional<SilentSockets> silent_;  // there once it listens
  uint64_t next_link_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<Link>> links_;
  std::unordered_map<Operation*, std::unique_ptr<Operation>> orphans_;
  std::deque<Completed> completed_;
};

}  // namespace sluice::transport
