#include "transport/ofi/tcp_wire.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "transport/ofi/socket_address.h"

namespace sluice::transport {
namespace {

constexpr size_t kFrameBytes = 64 * 1024;
constexpr size_t kReceivesPerLink = 4;
constexpr size_t kSendsPerLink = 64;  // handed to the fabric and not completed
constexpr size_t kCompletionsPerRead = 64;
constexpr auto kApiVersion = FI_VERSION(1, 17);

}  // namespace

// What the fabric holds a pointer to. Lives until its completion has been read.
struct TcpWire::Operation {
  enum class Kind { kReceive, kSend, kRma };
  Kind kind = Kind::kReceive;
  LinkId link;
  std::unique_ptr<std::byte[]> buffer;  // receive
  OutgoingFrame frame;                  // send
  uint64_t cookie = 0;                  // rma
  bool pull = false;                    // rma
};

struct TcpWire::Link {
  enum class State { kConnecting, kUp, kDown };
  LinkId id;
  State state = State::kConnecting;
  EndpointHandle endpoint;
  std::unordered_map<Operation*, std::unique_ptr<Operation>> operations;
  size_t sends_in_flight = 0;
  size_t pulls_in_flight = 0;
  size_t pushes_in_flight = 0;
  bool wants_writable = false;
  bool incoming = false;
  std::string from;             // incoming: the other end's address
  uint64_t accepted_at_ms = 0;  // likewise
};

struct TcpWire::Completed {
  Operation* operation = nullptr;
  size_t bytes = 0;
  int error = 0;  // fi_errno, 0 when it went well
};

Result<std::unique_ptr<TcpWire>> TcpWire::create(const std::string& node, uint16_t port,
                                                 uint64_t patience_ms) {
  auto library = FabricLibrary::load();
  if (!library) return fail(library.error());
  std::unique_ptr<TcpWire> wire(new TcpWire(**library, patience_ms));
  if (auto ok = wire->start(node, port); !ok) return fail(ok.error());
  return wire;
}

TcpWire::TcpWire(const FabricLibrary& library, uint64_t patience_ms)
    : library_(library), patience_ms_(patience_ms) {}

TcpWire::~TcpWire() {
  while (!links_.empty()) close(LinkId(links_.begin()->first));
  collect();
}

size_t TcpWire::max_frame_bytes() const {
  return kFrameBytes;
}

Result<> TcpWire::start(const std::string& node, uint16_t port) {
  // A numeric address is checked here: libfabric would ask the name service, and that blocks.
  if (auto parsed = SocketAddress::parse(node, port); !parsed) return fail(parsed.error());
  const InfoHandle hints(library_, library_.dupinfo(nullptr));
  if (!hints) return fail(ErrorCode::kInternal, "libfabric: out of memory");
  hints->caps = FI_MSG | FI_RMA;
  hints->ep_attr->type = FI_EP_MSG;
  hints->fabric_attr->prov_name = strdup("tcp");
  hints->addr_format = FI_SOCKADDR;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  const KeptSignalHandlers kept;  // the first call starts every provider
  fi_info* found = nullptr;
  const int status = library_.getinfo(kApiVersion, node.c_str(), std::to_string(port).c_str(),
                                      FI_SOURCE | FI_NUMERICHOST, hints.get(), &found);
  if (status != 0) {
    return fail(fabric_error(ErrorCode::kUnavailable, "libfabric's tcp provider on " + node, status));
  }
  listen_info_ = InfoHandle(library_, found);
  info_ = InfoHandle(library_, library_.dupinfo(found));
  if (!info_) return fail(ErrorCode::kInternal, "libfabric: out of memory");
  free(std::exchange(info_->src_addr, nullptr));  // outgoing sockets take the address that routing gives them
  info_->src_addrlen = 0;
  if (auto ok = open_queues(); !ok) return ok;
  if (auto ok = listen(); !ok) {
    return fail_with_context(fmt::format("cannot listen on {} port {}", node, port), ok.error());
  }
  return {};
}

Result<> TcpWire::open_queues() {
  const auto failed = [](std::string_view what, int status) {
    return fail(fabric_error(ErrorCode::kInternal, what, status));
  };
  if (int s = library_.fabric(listen_info_->fabric_attr, fabric_.out(), nullptr); s != 0)
    return failed("fi_fabric", s);
  if (int s = fi_domain(fabric_.get(), listen_info_.get(), domain_.out(), nullptr); s != 0) {
    return failed("fi_domain", s);
  }
  fi_eq_attr event_attr{};
  event_attr.wait_obj = FI_WAIT_FD;
  if (int s = fi_eq_open(fabric_.get(), &event_attr, event_queue_.out(), nullptr); s != 0) {
    return failed("fi_eq_open", s);
  }
  fi_cq_attr completion_attr{};
  completion_attr.format = FI_CQ_FORMAT_MSG;
  completion_attr.wait_obj = FI_WAIT_FD;
  if (int s = fi_cq_open(domain_.get(), &completion_attr, completion_queue_.out(), nullptr); s != 0) {
    return failed("fi_cq_open", s);
  }
  if (int s = fi_control(&event_queue_->fid, FI_GETWAIT, &event_fd_); s != 0) return failed("FI_GETWAIT", s);
  if (int s = fi_control(&completion_queue_->fid, FI_GETWAIT, &completion_fd_); s != 0)
    return failed("FI_GETWAIT", s);
  wake_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd_) return fail(errno_error(errno, "eventfd", "the loop's doorbell"));
  return {};
}

Result<> TcpWire::listen() {
  const auto failed = [](int status) {
    const bool taken = status == -FI_EADDRINUSE;
    Error error =
        fabric_error(taken ? ErrorCode::kExists : ErrorCode::kUnavailable,
                     taken ? "the port is taken by another process; choose another" : "listen", status);
    return fail(std::move(error));
  };
  if (int s = fi_passive_ep(fabric_.get(), listen_info_.get(), listener_.out(), nullptr); s != 0)
    return failed(s);
  if (int s = fi_pep_bind(listener_.get(), &event_queue_->fid, 0); s != 0) return failed(s);
  if (int s = fi_listen(listener_.get()); s != 0) return failed(s);
  SocketAddress bound;
  size_t length = SocketAddress::kCapacity;
  if (int s = fi_getname(&listener_->fid, bound.raw(), &length); s != 0) return failed(s);
  address_ = Address{"tcp://" + bound.text()};
  silent_.emplace(bound.port(), patience_ms_);
  return {};
}

Result<std::unique_ptr<TcpWire::Link>> TcpWire::make_link(fi_info* info) {
  auto link = std::make_unique<Link>();
  link->id = LinkId(next_link_++);
  const auto failed = [](std::string_view what, int status) {
    return fail(fabric_error(ErrorCode::kUnavailable, what, status));
  };
  if (int s = fi_endpoint(domain_.get(), info, link->endpoint.out(), nullptr); s != 0) {
    return failed("cannot open an endpoint (more open files may be needed, see ulimit -n)", s);
  }
  link->endpoint->fid.context = link.get();
  if (int s = fi_ep_bind(link->endpoint.get(), &event_queue_->fid, 0); s != 0)
    return failed("bind events", s);
  if (int s = fi_ep_bind(link->endpoint.get(), &completion_queue_->fid, FI_TRANSMIT | FI_RECV); s != 0) {
    return failed("bind completions", s);
  }
  if (int s = fi_enable(link->endpoint.get()); s != 0) return failed("enable the endpoint", s);
  for (size_t i = 0; i < kReceivesPerLink; ++i) {
    auto operation = std::make_unique<Operation>();
    operation->kind = Operation::Kind::kReceive;
    operation->link = link->id;
    operation->buffer.reset(
        new std::byte[kFrameBytes]);  // not cleared: a page is only used when a frame needs it
    Operation& posted = *operation;
    link->operations.emplace(&posted, std::move(operation));
    if (auto ok = post_receive(*link, posted); !ok) return fail(ok.error());
  }
  return link;
}

Result<> TcpWire::post_receive(Link& link, Operation& operation) {
  const ssize_t status =
      fi_recv(link.endpoint.get(), operation.buffer.get(), kFrameBytes, nullptr, FI_ADDR_UNSPEC, &operation);
  if (status != 0) return fail(fabric_error(ErrorCode::kUnavailable, "post a receive buffer", status));
  return {};
}

TcpWire::Link* TcpWire::find(LinkId id) {
  const auto at = links_.find(id.value);
  return at == links_.end() ? nullptr : at->second.get();
}

Result<LinkId> TcpWire::open(const Address& address) {
  auto target = SocketAddress::parse_url(address.text);
  if (!target) return fail(target.error());
  auto link = make_link(info_.get());
  if (!link) return fail(link.error());
  const int status = fi_connect((*link)->endpoint.get(), target->raw(), nullptr, 0);
  if (status != 0) {
    // Nobody there, known at once: told like every other failed connection, by an event.
    completed_.push_back({nullptr, (*link)->id.value, -status});
    (*link)->state = Link::State::kDown;
  }
  const LinkId id = (*link)->id;
  links_.emplace(id.value, std::move(*link));
  return id;
}

Accepted TcpWire::send(LinkId id, const OutgoingFrame& frame) {
  Link* link = find(id);
  if (link == nullptr || link->state == Link::State::kDown) return Accepted::kNo;
  if (link->state == Link::State::kConnecting || link->sends_in_flight >= kSendsPerLink) {
    link->wants_writable = true;
    return Accepted::kFull;
  }
  auto operation = std::make_unique<Operation>();
  operation->kind = Operation::Kind::kSend;
  operation->link = id;
  operation->frame = frame;
  const auto payload = operation->frame.payload();
  std::array<iovec, 2> pieces = {iovec{operation->frame.header.data(), kFrameHeaderBytes},
                                 iovec{const_cast<std::byte*>(payload.data()), payload.size()}};
  const ssize_t status = fi_sendv(link->endpoint.get(), pieces.data(), nullptr, payload.empty() ? 1 : 2,
                                  FI_ADDR_UNSPEC, operation.get());
  if (status == -FI_EAGAIN) {
    link->wants_writable = true;
    return Accepted::kFull;
  }
  if (status != 0) return Accepted::kNo;
  ++link->sends_in_flight;
  Operation* key = operation.get();
  link->operations.emplace(key, std::move(operation));
  return Accepted::kYes;
}

bool TcpWire::flushed(LinkId id) const {
  const auto at = links_.find(id.value);
  return at == links_.end() || at->second->sends_in_flight == 0;
}

Accepted TcpWire::start_rma(LinkId id, const RmaChunk& chunk) {
  Link* link = find(id);
  if (link == nullptr || link->state == Link::State::kDown) return Accepted::kNo;
  if (link->state == Link::State::kConnecting) {
    link->wants_writable = true;
    return Accepted::kFull;
  }
  auto operation = std::make_unique<Operation>();
  operation->kind = Operation::Kind::kRma;
  operation->link = id;
  operation->cookie = chunk.cookie;
  operation->pull = chunk.direction == Direction::kPull;
  iovec local{chunk.local, chunk.length};
  fi_rma_iov remote{chunk.buffer.address + chunk.offset, chunk.length, chunk.buffer.key};
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.iov_count = 1;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = operation.get();
  const bool pull = operation->pull;
  // A push is done when the peer has the bytes, not when they left here.
  const ssize_t status =
      pull ? fi_readmsg(link->endpoint.get(), &message, FI_COMPLETION)
           : fi_writemsg(link->endpoint.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
  if (status == -FI_EAGAIN) {
    link->wants_writable = true;
    return Accepted::kFull;
  }
  if (status != 0) return Accepted::kNo;
  ++(pull ? link->pulls_in_flight : link->pushes_in_flight);
  Operation* key = operation.get();
  link->operations.emplace(key, std::move(operation));
  return Accepted::kYes;
}

namespace {

class TcpExposure final : public ExposedMemory {
 public:
  TcpExposure(MemoryHandle handle, RemoteBuffer remote) : handle_(std::move(handle)), remote_(remote) {}
  RemoteBuffer remote() const override { return remote_; }

 private:
  MemoryHandle handle_;
  RemoteBuffer remote_;
};

}  // namespace

Result<std::unique_ptr<ExposedMemory>> TcpWire::expose(std::span<std::byte> memory, Access access) {
  if (memory.empty()) return fail(ErrorCode::kInvalidArgument, "cannot expose no bytes");
  MemoryHandle handle;
  const uint64_t rights = access == Access::kRemoteRead ? FI_REMOTE_READ : FI_REMOTE_WRITE;
  // A random key: a peer reaches only what it was told of.
  const int status = fi_mr_reg(domain_.get(), memory.data(), memory.size(), rights, 0, random_name(), 0,
                               handle.out(), nullptr);
  if (status != 0) return fail(fabric_error(ErrorCode::kBusy, "cannot register memory", status));
  const bool by_address = (listen_info_->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC)) != 0;
  const RemoteBuffer remote{by_address ? reinterpret_cast<uint64_t>(memory.data()) : 0,
                            fi_mr_key(handle.get()), memory.size()};
  return std::make_unique<TcpExposure>(std::move(handle), remote);
}

bool TcpWire::collect() {
  bool any = false;
  for (;;) {
    std::array<fi_cq_msg_entry, kCompletionsPerRead> entries;
    const ssize_t count = fi_cq_read(completion_queue_.get(), entries.data(), entries.size());
    if (count > 0) {
      any = true;
      for (ssize_t i = 0; i < count; ++i) {
        completed_.push_back({static_cast<Operation*>(entries[i].op_context), entries[i].len, 0});
      }
      continue;
    }
    if (count != -FI_EAVAIL) return any;
    fi_cq_err_entry error{};
    if (fi_cq_readerr(completion_queue_.get(), &error, 0) <= 0) return any;
    any = true;
    if (error.op_context == nullptr) continue;
    completed_.push_back({static_cast<Operation*>(error.op_context), 0, error.err == 0 ? FI_EIO : error.err});
  }
}

bool TcpWire::poll(WireEvents& events) {
  bool any = collect();
  const auto handle_completed = [&] {
    while (!completed_.empty()) {
      const Completed done = completed_.front();
      completed_.pop_front();
      handle(done, events);
      any = true;
    }
  };
  handle_completed();
  any |= handle_connection_events(events);
  any |= close_silent(events);
  return any;
}

bool TcpWire::close_silent(WireEvents& events) {
  const uint64_t now = SteadyClock().now_ms();
  const bool looked = silent_->look(now, [this](const std::string& from) {
    return std::ranges::any_of(links_, [&](const auto& link) { return link.second->from == from; });
  });
  if (!looked) return false;
  std::vector<LinkId> stuck;
  for (const auto& [id, link] : links_) {
    const bool waits = link->incoming && link->state == Link::State::kConnecting;
    if (waits && now - link->accepted_at_ms >= patience_ms_) stuck.push_back(link->id);
  }
  for (const LinkId id : stuck)
    lose(id, Error(ErrorCode::kUnavailable, "the peer did not finish connecting"), events);
  return !stuck.empty();
}

void TcpWire::handle(Completed done, WireEvents& events) {
  if (done.operation == nullptr) {  // a connection that failed in open()
    const Error reason = fabric_error(ErrorCode::kUnavailable, "nobody answers", -done.error);
    lose(LinkId(done.bytes), reason, events);
    return;
  }
  const LinkId id = done.operation->link;
  Link* link = find(id);
  if (link == nullptr) {  // late, and no longer expected
    orphans_.erase(done.operation);
    return;
  }
  auto node = link->operations.extract(done.operation);
  SLUICE_ASSERT(!node.empty());
  Operation& operation = *node.mapped();
  if (operation.kind == Operation::Kind::kRma) {
    --(operation.pull ? link->pulls_in_flight : link->pushes_in_flight);
    Result<> outcome;
    if (done.error != 0) {
      outcome = fail(fabric_error(ErrorCode::kIo, "the peer's memory cannot be reached", -done.error));
    }
    events.on_rma_done(id, operation.cookie, outcome);
  } else if (done.error != 0) {
    if (operation.kind == Operation::Kind::kSend) --link->sends_in_flight;
    lose(id, fabric_error(ErrorCode::kUnavailable, "the connection broke", -done.error), events);
    return;
  } else if (operation.kind == Operation::Kind::kSend) {
    --link->sends_in_flight;
  } else {
    handle_receive(operation, done, events);
    link = find(id);
    if (link == nullptr) return;
    if (auto ok = post_receive(*link, operation); !ok) return lose(id, ok.error(), events);
    link->operations.insert(std::move(node));
    return;
  }
  link = find(id);
  if (link != nullptr && link->wants_writable && link->sends_in_flight <= kSendsPerLink / 2) {
    link->wants_writable = false;
    events.on_writable(id);
  }
}

void TcpWire::handle_receive(Operation& operation, Completed done, WireEvents& events) {
  events.on_frame(operation.link, std::span(operation.buffer.get(), done.bytes));
}

bool TcpWire::handle_connection_events(WireEvents& events) {
  for (bool any = false;; any = true) {
    alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + 256> storage;
    auto* entry = reinterpret_cast<fi_eq_cm_entry*>(storage.data());
    uint32_t event = 0;
    // The tcp provider (1.17) takes the end of a socket in its handshake for "not yet" when errno is left
    // over from an earlier call, keeps the socket, and wakes the loop for it forever.
    errno = 0;
    const ssize_t got = fi_eq_read(event_queue_.get(), &event, entry, storage.size(), 0);
    fid* which = nullptr;
    Error reason(ErrorCode::kUnavailable, "the peer is gone");
    if (got == -FI_EAVAIL) {
      fi_eq_err_entry failure{};
      if (fi_eq_readerr(event_queue_.get(), &failure, 0) <= 0) return any;
      event = FI_SHUTDOWN;
      which = failure.fid;
      reason = fabric_error(ErrorCode::kUnavailable, "nobody answers", -failure.err);
    } else if (got < 0) {
      return any;
    } else {
      which = entry->fid;
    }
    if (event == FI_CONNREQ) {
      accept(entry->info, events);
      continue;
    }
    if (which == nullptr || which->fclass != FI_CLASS_EP) continue;
    const LinkId id = static_cast<Link*>(which->context)->id;
    if (event == FI_CONNECTED) {
      Link& link = *find(id);
      link.state = Link::State::kUp;
      const bool writable = std::exchange(link.wants_writable, false);
      if (link.incoming) events.on_incoming_link(id);
      if (writable && find(id) != nullptr) events.on_writable(id);
    } else if (event == FI_SHUTDOWN) {
      // What arrived before the end is handed up first.
      collect();
      while (!completed_.empty() && find(id) != nullptr) {
        const Completed done = completed_.front();
        completed_.pop_front();
        handle(done, events);
      }
      if (find(id) != nullptr) lose(id, reason, events);
    }
  }
}

void TcpWire::accept(fi_info* request, WireEvents&) {
  const InfoHandle info(library_, request);
  auto link = make_link(info.get());
  if (!link) {
    log::warn("a connection was turned away: {}", link.error().message);
    fi_reject(listener_.get(), info->handle, nullptr, 0);
    return;
  }
  (*link)->incoming = true;
  (*link)->accepted_at_ms = SteadyClock().now_ms();
  if (info->dest_addr != nullptr && info->dest_addrlen <= SocketAddress::kCapacity) {
    SocketAddress from;
    std::memcpy(from.raw(), info->dest_addr, info->dest_addrlen);
    (*link)->from = from.text();
  }
  if (const int status = fi_accept((*link)->endpoint.get(), nullptr, 0); status != 0) {
    log::warn("a connection was turned away: {}", std::generic_category().message(-status));
    const LinkId id = (*link)->id;
    links_.emplace(id.value, std::move(*link));
    close(id);
    return;
  }
  const uint64_t id = (*link)->id.value;
  links_.emplace(id, std::move(*link));
}

void TcpWire::lose(LinkId id, const Error& reason, WireEvents& events) {
  close(id);
  events.on_link_lost(id, reason);
}

void TcpWire::close(LinkId id) {
  const auto at = links_.find(id.value);
  if (at == links_.end()) return;
  const std::unique_ptr<Link> link = std::move(at->second);
  links_.erase(at);
  if (link->pulls_in_flight > 0) end_pulls_in_flight(*link);
  link->endpoint.reset();
  collect();
  std::erase_if(completed_, [&](const Completed& done) {
    if (done.operation == nullptr) return done.bytes == id.value;
    return link->operations.erase(done.operation) > 0;
  });
  if (!link->operations.empty()) {
    log::error("libfabric gave no completion for {} operations of a closed connection",
               link->operations.size());
    orphans_.merge(link->operations);
  }
}

// The tcp provider (1.17) mishandles an endpoint closed while a read's answer is half received: it releases
// that operation twice and corrupts the pool that all links share. An end of the socket, however, it handles
// well. So the socket is shut down first, found by its two addresses since the provider does not tell the
// descriptor, and the provider runs until it has completed every read.
void TcpWire::end_pulls_in_flight(Link& link) {
  SocketAddress local;
  SocketAddress remote;
  size_t local_length = SocketAddress::kCapacity;
  size_t remote_length = SocketAddress::kCapacity;
  if (fi_getname(&link.endpoint->fid, local.raw(), &local_length) == 0 &&
      fi_getpeer(link.endpoint.get(), remote.raw(), &remote_length) == 0) {
    shut_down_socket(local, remote);
  }
  const auto pulls_completed = [&] {
    size_t count = 0;
    for (const Completed& done : completed_) {
      count += done.operation != nullptr && done.operation->link == link.id && done.operation->pull;
    }
    return count;
  };
  // Each round takes more of the bytes that the kernel still holds; after them it meets the end.
  constexpr int kMaxRounds = 100000;
  for (int round = 0; round < kMaxRounds && pulls_completed() < link.pulls_in_flight; ++round) collect();
}

bool TcpWire::arm(std::vector<pollfd>& descriptors, std::chrono::microseconds& max_wait) {
  if (!completed_.empty()) return false;
  max_wait = std::min<std::chrono::microseconds>(max_wait, silent_->wait_limit(SteadyClock().now_ms()));
  errno = 0;  // as in handle_connection_events()
  std::array<fid*, 2> queues = {&completion_queue_->fid, &event_queue_->fid};
  if (fi_trywait(fabric_.get(), queues.data(), queues.size()) != FI_SUCCESS) return false;
  for (const int fd : {completion_fd_, event_fd_, wake_fd_.get()}) descriptors.push_back({fd, POLLIN, 0});
  return true;
}

void TcpWire::wait(std::chrono::microseconds max_wait) {
  std::vector<pollfd> fds;
  if (!arm(fds, max_wait)) return;
  wait_for_any(fds, max_wait);
  if (fds.back().revents != 0) {
    uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = read(wake_fd_.get(), &rings, sizeof rings);
  }
}

void TcpWire::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_fd_.get(), &one, sizeof one);  // full means already rung
}

}  // namespace sluice::transport
