#include "transport/ofi/joined_wire.h"

#include <algorithm>

namespace sluice::transport {

// Tells the one above of an inner wire's links by their outer numbers.
class JoinedWire::Events final : public WireEvents {
 public:
  // `before_frame` runs before each frame is told; false: its link was closed.
  Events(WireEvents& above, uint64_t wire, std::function<bool(std::optional<LinkId>)> before_frame = {})
      : above_(above), wire_(wire), before_frame_(std::move(before_frame)) {}

  void on_incoming_link(LinkId link) override { above_.on_incoming_link(outer(link)); }
  void on_frame(std::optional<LinkId> link, std::span<const std::byte> bytes) override {
    const auto named = link ? std::optional(outer(*link)) : std::nullopt;
    if (!before_frame_ || before_frame_(named)) above_.on_frame(named, bytes);
  }
  void on_writable(LinkId link) override { above_.on_writable(outer(link)); }
  void on_rma_done(LinkId link, uint64_t cookie, const Result<>& outcome) override {
    above_.on_rma_done(outer(link), cookie, outcome);
  }
  void on_link_lost(LinkId link, const Error& reason) override { above_.on_link_lost(outer(link), reason); }

 private:
  LinkId outer(LinkId link) const { return LinkId(link.value << 1 | wire_); }

  WireEvents& above_;
  const uint64_t wire_;
  const std::function<bool(std::optional<LinkId>)> before_frame_;
};

JoinedWire::JoinedWire(std::unique_ptr<ShmWire> shm, MakeTcp make_tcp)
    : shm_(std::move(shm)),
      make_tcp_(std::move(make_tcp)),
      // Both wires take frames of this size; tcp may not be there yet.
      max_frame_bytes_(std::min<size_t>(shm_->max_frame_bytes(), 64 * 1024)) {}

Result<std::unique_ptr<Wire>> JoinedWire::create(std::unique_ptr<ShmWire> shm, MakeTcp make_tcp,
                                                 bool tcp_when_needed) {
  std::unique_ptr<JoinedWire> wire(new JoinedWire(std::move(shm), std::move(make_tcp)));
  if (!tcp_when_needed) {
    if (auto ok = wire->start_tcp(); !ok) return fail(ok.error());
  }
  return std::unique_ptr<Wire>(std::move(wire));
}

Result<> JoinedWire::start_tcp() {
  if (tcp_) return {};
  auto tcp = make_tcp_();
  if (!tcp) return fail(tcp.error());
  tcp_ = std::move(*tcp);
  return {};
}

Result<LinkId> JoinedWire::open(const Address& address) {
  const bool local = address.text.starts_with("shm:");
  if (!local) {
    if (auto ok = start_tcp(); !ok) return fail(ok.error());
  }
  auto link = local ? shm_->open(address) : tcp_->open(address);
  if (!link) return link;
  opened_tcp_last_ = !local;
  return LinkId(link->value << 1 | (local ? 0 : kTcp));
}

Result<std::unique_ptr<ExposedMemory>> JoinedWire::expose(std::span<std::byte> memory, Access access) {
  return opened_tcp_last_ ? tcp_->expose(memory, access) : shm_->expose(memory, access);
}

bool JoinedWire::poll(WireEvents& events) {
  closed_.clear();
  Events shm_events(events, 0);
  bool any = shm_->poll(shm_events);
  if (tcp_) {
    // What processes of this host said before it was sent is told before it.
    Events tcp_events(events, kTcp, [&](std::optional<LinkId> link) {
      shm_->poll(shm_events);
      return !link || std::ranges::find(closed_, *link) == closed_.end();
    });
    any |= tcp_->poll(tcp_events);
  }
  return any;
}

bool JoinedWire::arm(std::vector<pollfd>& descriptors, std::chrono::microseconds& max_wait) {
  if (!shm_->arm(descriptors, max_wait)) return false;
  return !tcp_ || tcp_->arm(descriptors, max_wait);
}

void JoinedWire::wait(std::chrono::microseconds max_wait) {
  waiting_.clear();
  if (!arm(waiting_, max_wait)) return;
  wait_for_any(waiting_, max_wait);
}

}  // namespace sluice::transport
