#include "transport/ofi/ofi_transport.h"

#include "base/assert.h"
#include "transport/ofi/core.h"
#include "transport/ofi/tcp_wire.h"
#include "transport/shm/shm_wire.h"

namespace sluice::transport {
namespace {

Result<std::unique_ptr<Wire>> make_wire(const OfiOptions& options) {
  if (options.scheme == "tcp") {
    auto wire = TcpWire::create(options.node.empty() ? "127.0.0.1" : options.node, options.port);
    if (!wire) return fail(wire.error());
    return std::unique_ptr<Wire>(std::move(*wire));
  }
  if (options.scheme == "shm") {
    auto wire = ShmWire::create(options.node);
    if (!wire) return fail(wire.error());
    return std::unique_ptr<Wire>(std::move(*wire));
  }
  return fail(ErrorCode::kInvalidArgument, "no transport '" + options.scheme + "'; choose tcp or shm");
}

std::shared_ptr<RmaRequest> make_request(Direction direction, const RemoteBuffer& buffer, uint64_t offset,
                                         std::byte* local, size_t length, Completion done) {
  auto request = std::make_shared<RmaRequest>();
  request->direction = direction;
  request->buffer = buffer;
  request->offset = offset;
  request->local = local;
  request->length = length;
  request->done = std::move(done);
  return request;
}

}  // namespace

Result<std::unique_ptr<OfiTransport>> OfiTransport::create(const OfiOptions& options) {
  if (options.keepalive_ms == 0 || options.peer_timeout_ms <= options.keepalive_ms ||
      options.connect_timeout_ms == 0) {
    return fail(ErrorCode::kInvalidArgument, "keepalive_ms must be above 0 and below peer_timeout_ms");
  }
  auto wire = make_wire(options);
  if (!wire) return fail(wire.error());
  return std::unique_ptr<OfiTransport>(new OfiTransport(std::make_unique<Core>(options, std::move(*wire))));
}

OfiTransport::OfiTransport(std::unique_ptr<Core> core) : core_(std::move(core)) {}
OfiTransport::~OfiTransport() = default;

void OfiTransport::run_once(uint64_t max_wait_ms) {
  core_->run_once(max_wait_ms);
}
Address OfiTransport::address() const {
  return core_->address();
}
void OfiTransport::set_handler(Handler* handler) {
  core_->set_handler(handler);
}
Result<PeerId> OfiTransport::connect(const Address& address) {
  return core_->connect(address);
}
void OfiTransport::disconnect(PeerId peer, const Error& reason) {
  core_->disconnect(peer, reason);
}
Result<> OfiTransport::send(PeerId peer, std::vector<std::byte> message) {
  return core_->send(peer, std::move(message));
}
Result<std::unique_ptr<ExposedMemory>> OfiTransport::expose(std::span<std::byte> memory, Access access) {
  return core_->expose(memory, access);
}
void OfiTransport::pull(PeerId peer, const RemoteBuffer& buffer, uint64_t offset, std::span<std::byte> into,
                        Completion done) {
  core_->start_rma(peer,
                   make_request(Direction::kPull, buffer, offset, into.data(), into.size(), std::move(done)));
}
void OfiTransport::push(PeerId peer, const RemoteBuffer& buffer, uint64_t offset,
                        std::span<const std::byte> from, Completion done) {
  core_->start_rma(peer, make_request(Direction::kPush, buffer, offset, const_cast<std::byte*>(from.data()),
                                      from.size(), std::move(done)));
}
void OfiTransport::post(std::function<void()> work) {
  core_->post(std::move(work));
}
void OfiTransport::after_ms(uint64_t delay_ms, std::function<void()> work) {
  core_->after_ms(delay_ms, std::move(work));
}
uint64_t OfiTransport::now_ms() const {
  return core_->now_ms();
}

}  // namespace sluice::transport
