#include "transport/sim/sim_host.h"

#include <fmt/format.h>

namespace sluice::transport {
namespace {

Error closed() {
  return Error(ErrorCode::kUnavailable, "the connection is closed; connect again").mark_retryable();
}

}  // namespace

Result<PeerId> SimNetwork::Host::connect(const Address& address) {
  if (!alive_) return fail(ErrorCode::kUnavailable, "this host has stopped");
  auto end = network_.open_channel(*this, address);
  if (!end) return fail(end.error());
  return network_.find(end->first)->ends[0].peer;
}

void SimNetwork::Host::disconnect(PeerId peer, const Error& reason) {
  const auto at = ends_.find(peer.value);
  if (alive_ && at != ends_.end()) network_.close(at->second, reason, /*tell_peer=*/true);
}

Result<> SimNetwork::Host::send(PeerId peer, std::vector<std::byte> message) {
  if (message.size() > kMaxMessageBytes) {
    return fail(ErrorCode::kTooLarge, fmt::format("a message of {} bytes; at most {} can be sent",
                                                  message.size(), kMaxMessageBytes));
  }
  const auto at = ends_.find(peer.value);
  if (!alive_ || at == ends_.end()) return fail(closed());
  return network_.send(at->second, std::move(message));
}

Result<std::unique_ptr<ExposedMemory>> SimNetwork::Host::expose(std::span<std::byte> memory, Access access) {
  if (memory.empty()) return fail(ErrorCode::kInvalidArgument, "cannot expose no bytes");
  const uint64_t key = network_.rng_.next();
  regions_.insert_or_assign(key, Region{memory, access});
  return std::make_unique<Exposure>(*this, key, memory.size());
}

void SimNetwork::Host::pull(PeerId peer, const RemoteBuffer& buffer, uint64_t offset,
                            std::span<std::byte> into, Completion done) {
  start_rma(peer, Rma{true, buffer, offset, into.data(), into.size(), 0, std::move(done)});
}

void SimNetwork::Host::push(PeerId peer, const RemoteBuffer& buffer, uint64_t offset,
                            std::span<const std::byte> from, Completion done) {
  start_rma(peer,
            Rma{false, buffer, offset, const_cast<std::byte*>(from.data()), from.size(), 0, std::move(done)});
}

void SimNetwork::Host::start_rma(PeerId peer, Rma rma) {
  if (!alive_) return;
  const auto answer = [&](Result<> outcome) {
    later_us(0, [done = std::move(rma.done), outcome = std::move(outcome)] { done(outcome); });
  };
  const RemoteBuffer& buffer = rma.buffer;
  const auto at = ends_.find(peer.value);
  if (at == ends_.end()) return answer(fail(closed()));
  if (rma.length > kMaxRmaBytes) {
    return answer(fail(ErrorCode::kTooLarge,
                       fmt::format("{} bytes at once; at most {} can be moved", rma.length, kMaxRmaBytes)));
  }
  if (rma.offset > buffer.length || rma.length > buffer.length - rma.offset ||
      buffer.address > UINT64_MAX - buffer.length) {
    return answer(fail(ErrorCode::kInvalidArgument,
                       fmt::format("bytes from {} on of a peer's buffer of {}", rma.offset, buffer.length)));
  }
  if (rma.length == 0) return answer({});
  network_.start_rma(at->second, std::move(rma));
}

void SimNetwork::Host::post(std::function<void()> work) {
  const std::lock_guard lock(network_.posted_mutex_);
  network_.posted_.emplace_back(this, std::move(work));
}

void SimNetwork::Host::after_ms(uint64_t delay_ms, std::function<void()> work) {
  later_us(delay_ms * 1000, std::move(work));
}

void SimNetwork::Host::later_us(uint64_t delay_us, std::function<void()> work) {
  network_.at_us(network_.now_us_ + delay_us, [this, work = std::move(work)] {
    if (alive_) work();
  });
}

}  // namespace sluice::transport
