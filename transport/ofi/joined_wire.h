#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transport/ofi/wire.h"
#include "transport/shm/shm_wire.h"

namespace sluice::transport {

// Two wires as one: links to processes of this user on this host go over shared memory, the others over tcp.
// Which one a link takes is its address's to say.
//
// Exposed memory is reached over the wire of the link that this side opened last: a side that exposes memory
// has one link of its own making.
class JoinedWire final : public Wire {
 public:
  using MakeTcp = std::function<Result<std::unique_ptr<Wire>>()>;
  static Result<std::unique_ptr<Wire>> create(std::unique_ptr<ShmWire> shm, MakeTcp make_tcp,
                                              bool tcp_when_needed);

  Address address() const override { return tcp_ ? tcp_->address() : shm_->address(); }
  size_t max_frame_bytes() const override { return max_frame_bytes_; }
  bool rma_shows_life(LinkId link) const override { return wire_of(link).rma_shows_life(inner(link)); }
  Result<LinkId> open(const Address& address) override;
  void close(LinkId link) override {
    closed_.push_back(link);
    wire_of(link).close(inner(link));
  }
  Accepted send(LinkId link, const OutgoingFrame& frame) override {
    return wire_of(link).send(inner(link), frame);
  }
  bool flushed(LinkId link) const override { return wire_of(link).flushed(inner(link)); }
  Accepted start_rma(LinkId link, const RmaChunk& chunk) override {
    return wire_of(link).start_rma(inner(link), chunk);
  }
  Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, Access access) override;
  bool poll(WireEvents& events) override;
  void wait(std::chrono::microseconds max_wait) override;
  bool arm(std::vector<pollfd>& descriptors, std::chrono::microseconds& max_wait) override;
  void wake() override { shm_->wake(); }
  std::optional<pid_t> process(LinkId link) const override { return wire_of(link).process(inner(link)); }
  std::span<const UniqueFd> lent(LinkId link) const override { return wire_of(link).lent(inner(link)); }

 private:
  class Events;
  static constexpr uint64_t kTcp = 1;  // the lowest bit of a link's number says over which wire it goes

  JoinedWire(std::unique_ptr<ShmWire> shm, MakeTcp make_tcp);
  Result<> start_tcp();
  static LinkId inner(LinkId link) { return LinkId(link.value >> 1); }
  Wire& wire_of(LinkId link) const { return (link.value & kTcp) != 0 ? *tcp_ : static_cast<Wire&>(*shm_); }

  const std::unique_ptr<ShmWire> shm_;
  const MakeTcp make_tcp_;
  std::unique_ptr<Wire> tcp_;
  const size_t max_frame_bytes_;
  bool opened_tcp_last_ = false;
  std::vector<pollfd> waiting_;
  std::vector<LinkId> closed_;  // since poll() began
};

}  // namespace sluice::transport
