#include "transport/ofi/ofi_transport.h"

#include "base/assert.h"
#include "transport/ofi/core.h"
#include "transport/ofi/joined_wire.h"
#include "transport/ofi/tcp_wire.h"
#include "transport/shm/shm_wire.h"

namespace sluice::transport {
namespace {

struct MadeWire {
  std::unique_ptr<Wire> wire;
  Address local;  // over shm
};

Result<MadeWire> make_wire(const OfiOptions& options) {
  const auto make_tcp = [node = options.node.empty() ? "127.0.0.1" : options.node, port = options.port,
                         patience_ms = options.connect_timeout_ms]() -> Result<std::unique_ptr<Wire>> {
    auto wire = TcpWire::create(node, port, patience_ms);
    if (!wire) return fail(wire.error());
    return std::unique_ptr<Wire>(std::move(*wire));
  };
  if (options.scheme == "tcp") {
    auto wire = make_tcp();
    if (!wire) return fail(wire.error());
    return MadeWire{std::move(*wire), {}};
  }
  if (options.scheme != "shm" && options.scheme != "any")
    return fail(ErrorCode::kInvalidArgument, "no transport '" + options.scheme + "'; choose tcp, shm or any");
  if (options.lend.size() > ShmWire::kMaxLent)
    return fail(ErrorCode::kInvalidArgument, "more files to lend than a connection takes");
  auto shm = ShmWire::create(options.scheme == "shm" ? options.node : options.local_name);
  if (!shm) return fail(shm.error());
  if (auto ok = (*shm)->lend(options.lend); !ok) return fail(ok.error());
  const Address local = (*shm)->address();
  if (options.scheme == "shm") return MadeWire{std::move(*shm), local};
  auto joined = JoinedWire::create(std::move(*shm), make_tcp, options.tcp_when_needed);
  if (!joined) return fail(joined.error());
  return MadeWire{std::move(*joined), local};
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
  auto made = make_wire(options);
  if (!made) return fail(made.error());
  auto core = std::make_unique<Core>(options, std::move(made->wire));
  return std::unique_ptr<OfiTransport>(new OfiTransport(std::move(core), std::move(made->local)));
}

OfiTransport::OfiTransport(std::unique_ptr<Core> core, Address local_address)
    : core_(std::move(core)), local_address_(std::move(local_address)) {}
OfiTransport::~OfiTransport() = default;

void OfiTransport::run_once(uint64_t max_wait_ms) {
  core_->run_once(max_wait_ms);
}
bool OfiTransport::run_ready() {
  return core_->run_ready();
}
std::optional<pid_t> OfiTransport::peer_process(PeerId peer) const {
  return core_->process(peer);
}
std::span<const UniqueFd> OfiTransport::lent_files(PeerId peer) const {
  return core_->lent(peer);
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
  return core_->send(peer, std::move(message), /*hurried=*/true);
}
Result<> OfiTransport::send_unhurried(PeerId peer, std::vector<std::byte> message) {
  return core_->send(peer, std::move(message), /*hurried=*/false);
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
