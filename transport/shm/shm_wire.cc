#include "transport/shm/shm_wire.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "transport/ofi/socket_address.h"

namespace sluice::transport {
namespace {

constexpr std::string_view kScheme = "shm://";
constexpr size_t kMaxNameBytes = 64;
constexpr int kBacklog = 4096;
constexpr uint64_t kWakeTag = 0;  // links count from 1
constexpr uint64_t kListenerTag = UINT64_MAX;
constexpr int kEmptyTurnsUntilCold = 64;
constexpr size_t kClockBytes = 64;
constexpr std::chrono::microseconds kDoze{200};
constexpr int kDozes = 10;  // without an unhurried frame, until it sleeps
constexpr int kReadyAtOnce = 512;
constexpr uint64_t kCopyPatienceMs = 2000;
constexpr uint64_t kPausedAcceptMs = 100;

// The first bytes on a socket, each way. Descriptors travel with them: from the side that made the link its
// queues and its exposure table; back the other's table, its clock and the files that it lends.
struct Handshake {
  uint64_t magic;
  uint64_t version;
};
constexpr uint64_t kHandshakeMagic = 0x3148535345434C53;  // "SLCESSH1"
constexpr uint64_t kHandshakeVersion = 2;

bool sensible(std::string_view name) {
  const auto good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, good) &&
         name.front() != '.';
}

// In the abstract namespace: the kernel forgets it with the socket.
std::pair<sockaddr_un, socklen_t> socket_name(std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("sluice-transport/{}/{}", geteuid(), name);
  SLUICE_ASSERT(path.size() + 1 <= sizeof address.sun_path);
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size())};
}

Result<pid_t> verified_peer(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return fail(errno_error(errno, "ask for the peer's identity", "a local socket"));
  }
  if (peer.uid != geteuid()) return fail(ErrorCode::kAccess, "the other process belongs to another user");
  return peer.pid;
}

Result<> send_handshake(int socket, std::span<const int> fds) {
  Handshake hello{kHandshakeMagic, kHandshakeVersion};
  iovec bytes{&hello, sizeof hello};
  alignas(cmsghdr) std::array<char, CMSG_SPACE((2 + ShmWire::kMaxLent) * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof hello) {
    return fail(errno_error(errno, "offer memory through", "a local socket"));
  }
  return {};
}

// Nothing when there is no message yet.
Result<std::optional<std::vector<UniqueFd>>> receive_handshake(int socket) {
  Handshake hello{};
  iovec bytes{&hello, sizeof hello};
  alignas(cmsghdr) std::array<char, CMSG_SPACE((3 + ShmWire::kMaxLent) * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<std::vector<UniqueFd>>();
  std::vector<UniqueFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); got >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if (got != sizeof hello) return fail(ErrorCode::kUnavailable, "the peer is gone");
  if (hello.magic != kHandshakeMagic || hello.version != kHandshakeVersion) {
    return fail(ErrorCode::kProtocol,
                "the other process speaks another protocol; use the same release at both ends");
  }
  return std::optional(std::move(fds));
}

std::atomic<uint64_t>& clock_word(const SharedMapping& clock) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(clock.data());
}

}  // namespace

struct ShmWire::Link {
  LinkId id;
  UniqueFd socket;
  pid_t process = 0;
  bool outgoing = false;
  SharedMapping memory;
  std::optional<RingPair> ring;  // once the memory is mapped
  SharedMapping table;           // the peer's
  SharedMapping clock;           // the peer's, of a link that this side made
  std::vector<UniqueFd> lent;    // by the peer
  bool wants_writable = false;
  bool hot = false;
  int empty_turns = 0;
};

class ShmWire::Exposure final : public ExposedMemory {
 public:
  Exposure(std::weak_ptr<ShmWire*> wire, RemoteBuffer remote) : wire_(std::move(wire)), remote_(remote) {}
  ~Exposure() override {
    if (const auto wire = wire_.lock()) (*wire)->withdraw(remote_.key);
  }
  RemoteBuffer remote() const override { return remote_; }

 private:
  std::weak_ptr<ShmWire*> wire_;
  const RemoteBuffer remote_;
};

Result<std::unique_ptr<ShmWire>> ShmWire::create(const std::string& name) {
  auto table = ExposureTable::create();
  if (!table) return fail(table.error());
  std::unique_ptr<ShmWire> wire(new ShmWire(std::move(*table)));
  if (auto ok = wire->start(name); !ok) return fail(ok.error());
  return wire;
}

ShmWire::ShmWire(ExposureTable table) : table_(std::move(table)) {}

ShmWire::~ShmWire() {
  self_.reset();
  while (!links_.empty()) close(LinkId(links_.begin()->first));
}

Result<> ShmWire::start(const std::string& given) {
  self_ = std::make_shared<ShmWire*>(this);
  auto clock = SharedMapping::create(kClockBytes);
  if (!clock) return fail(clock.error());
  clock_ = std::move(clock->first);
  clock_fd_ = std::move(clock->second);
  clock_word(clock_).store(1);
  frame_.reset(new std::byte[kRingRecordBytes]);
  const std::string name = given.empty() ? fmt::format("p{}-{:016x}", getpid(), random_name()) : given;
  if (!sensible(name)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is no name: use up to {} letters, digits, '.', '_' and '-'", name, kMaxNameBytes));
  }
  address_.text = std::string(kScheme) + name;
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  wake_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!epoll_ || !wake_fd_ || !listener_) return fail(errno_error(errno, "open sockets for", address_.text));
  const auto [address, length] = socket_name(name);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) {
      return fail(ErrorCode::kExists, address_.text + " is taken by another process; choose another name");
    }
    return fail(errno_error(errno, "bind", address_.text));
  }
  if (listen(listener_.get(), kBacklog) != 0) return fail(errno_error(errno, "listen on", address_.text));
  for (const auto& [fd, tag] : {std::pair(wake_fd_.get(), kWakeTag), {listener_.get(), kListenerTag}}) {
    epoll_event event{EPOLLIN, {.u64 = tag}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return fail(errno_error(errno, "watch", address_.text));
  }
  return {};
}

ShmWire::Link* ShmWire::find(LinkId id) {
  const auto at = links_.find(id.value);
  return at == links_.end() ? nullptr : at->second.get();
}

ShmWire::Link& ShmWire::add(std::unique_ptr<Link> link) {
  Link& added = *link;
  links_.emplace(added.id.value, std::move(link));
  return added;
}

void ShmWire::heat(Link& link) {
  link.empty_turns = 0;
  if (link.ring) link.ring->arm(Sleep::kAwake);
  if (!std::exchange(link.hot, true)) hot_.push_back(link.id);
}

void ShmWire::ring_bell(Link& link) {
  const char bell = 1;
  // A full socket holds unheard bells already; a broken one tells its end by itself.
  [[maybe_unused]] const ssize_t sent = ::send(link.socket.get(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Result<LinkId> ShmWire::open(const Address& address) {
  const std::string_view text = address.text;
  if (!text.starts_with(kScheme) || !sensible(text.substr(kScheme.size()))) {
    return fail(ErrorCode::kInvalidArgument, "'" + address.text + "' is not an address; expected shm://NAME");
  }
  auto link = std::make_unique<Link>();
  link->id = LinkId(next_link_++);
  link->outgoing = true;
  Link& added = add(std::move(link));
  // Told like every other failed connection, by an event.
  if (auto ok = connect_socket(added, std::string(text.substr(kScheme.size()))); !ok) {
    failed_opens_.emplace_back(added.id, ok.error());
  }
  return added.id;
}

Result<> ShmWire::connect_socket(Link& link, const std::string& name) {
  link.socket = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!link.socket) return fail(errno_error(errno, "open a socket to", name));
  const auto [address, length] = socket_name(name);
  if (::connect(link.socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return fail(ErrorCode::kUnavailable,
                errno == EAGAIN ? "too many processes connect at once" : "nobody answers");
  }
  auto process = verified_peer(link.socket.get());
  if (!process) return fail(process.error());
  link.process = *process;
  if (auto ok = offer_memory(link); !ok) return ok;
  epoll_event event{EPOLLIN | EPOLLRDHUP, {.u64 = link.id.value}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link.socket.get(), &event) != 0) {
    return fail(errno_error(errno, "watch", name));
  }
  heat(link);
  return {};
}

Result<> ShmWire::offer_memory(Link& link) {
  auto memory = SharedMapping::create(kRingMemoryBytes);
  if (!memory) return fail(memory.error());
  link.memory = std::move(memory->first);
  link.ring.emplace(link.memory.data(), 0);
  const std::array<int, 2> fds = {memory->second.get(), table_.descriptor().get()};
  return send_handshake(link.socket.get(), fds);
}

void ShmWire::accept_all(WireEvents& events) {
  for (;;) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) {
        // Would be ready for ever: look again later.
        log::warn("{}: no descriptors left to accept a process (see ulimit -n)", address_.text);
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
        listener_paused_ = true;
        paused_until_ms_ = SteadyClock().now_ms() + kPausedAcceptMs;
      }
      return;
    }
    auto process = verified_peer(socket.get());
    if (!process) {
      log::warn("{}: turned a process away: {}", address_.text, process.error().message);
      continue;
    }
    auto link = std::make_unique<Link>();
    link->id = LinkId(next_link_++);
    link->socket = std::move(socket);
    link->process = *process;
    epoll_event event{EPOLLIN | EPOLLRDHUP, {.u64 = link->id.value}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link->socket.get(), &event) == 0) {
      events.on_incoming_link(add(std::move(link)).id);
    }
  }
}

Result<> ShmWire::attach_memory(Link& link, std::vector<UniqueFd> fds) {
  const bool agreed = link.outgoing ? fds.size() >= 2 && fds.size() <= 2 + kMaxLent : fds.size() == 2;
  if (!agreed) return fail(ErrorCode::kProtocol, "memory was not offered as agreed");
  auto table = SharedMapping::attach(link.outgoing ? fds.front() : fds.back(), kExposureTableBytes,
                                     /*writable=*/false);
  if (!table) return fail(table.error());
  link.table = std::move(*table);
  if (link.outgoing) {
    auto clock = SharedMapping::attach(fds[1], kClockBytes, /*writable=*/true);
    if (!clock) return fail(clock.error());
    link.clock = std::move(*clock);
    fds.erase(fds.begin(), fds.begin() + 2);
    link.lent = std::move(fds);
    return {};
  }
  auto memory = SharedMapping::attach(fds.front(), kRingMemoryBytes, /*writable=*/true);
  if (!memory) return fail(memory.error());
  link.memory = std::move(*memory);
  link.ring.emplace(link.memory.data(), 1);
  std::vector<int> mine = {table_.descriptor().get(), clock_fd_.get()};
  for (const UniqueFd& file : lending_) mine.push_back(file.get());
  return send_handshake(link.socket.get(), mine);
}

Result<bool> ShmWire::read_socket(Link& link, WireEvents& events) {
  const LinkId id = link.id;
  if (!link.table) {
    auto fds = receive_handshake(link.socket.get());
    if (!fds) return fail(fds.error());
    if (!*fds) return true;
    if (auto ok = attach_memory(link, std::move(**fds)); !ok) return fail(ok.error());
    heat(link);
    if (std::exchange(link.wants_writable, false)) events.on_writable(id);
    return true;
  }
  std::array<char, 256> bells;
  const ssize_t got = recv(link.socket.get(), bells.data(), bells.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
  heat(link);
  return true;
}

Result<> ShmWire::collect_frames(Link& link, WireEvents& events, bool& any) {
  if (!link.ring) return {};
  ++link.empty_turns;
  const LinkId id = link.id;
  RingPair* ring = &*link.ring;
  // In bytes, because what the other side says need not be the end of a record.
  const uint64_t begin = ring->taken();
  const uint64_t there = std::min<uint64_t>(ring->put_until_now() - begin, kRingBytes);
  while (ring->taken() - begin < there) {
    auto record = ring->take(frame_.get());
    if (!record) return fail(record.error());
    if (!*record) break;
    if (ring->peer_waited()) ring_bell(link);
    any = true;
    link.empty_turns = 0;
    if (!(*record)->hurried) dozes_left_ = kDozes;
    const std::span bytes(frame_.get(), (*record)->length);
    // Of the one that this side opened the link to there is nobody to be in order with.
    if ((*record)->ticket != 0) {
      arrived_.push_back({(*record)->ticket, id, {bytes.begin(), bytes.end()}});
      continue;
    }
    events.on_frame(id, bytes);
    if (find(id) != &link || !link.ring) return {};
  }
  return {};
}

// A frame whose ticket is below `now`, which was the clock before the queues were looked at: whatever was put
// before that ticket was drawn has been collected too. The others wait for the next turn, and are told then.
void ShmWire::tell_arrived(uint64_t now, WireEvents& events) {
  if (arrived_.empty()) return;
  std::vector<Arrived> due = std::exchange(arrived_, {});
  std::ranges::stable_sort(due, {}, &Arrived::ticket);
  for (Arrived& frame : due) {
    const bool held = std::exchange(frame.turns, frame.turns + 1) == 0 && frame.ticket >= now;
    if (held) {
      arrived_.push_back(std::move(frame));
    } else if (find(frame.link) != nullptr) {
      events.on_frame(frame.link, frame.bytes);
    }
  }
}

void ShmWire::collect_ready() {
  std::array<epoll_event, kReadyAtOnce> events;
  for (int count = kReadyAtOnce; count == kReadyAtOnce && ready_.size() <= links_.size();) {
    // At most so many as fit; the kernel goes on behind those at the next call.
    count = epoll_wait(epoll_.get(), events.data(), kReadyAtOnce, 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
      if (tag == kWakeTag) {
        uint64_t rings = 0;
        [[maybe_unused]] const ssize_t got = read(wake_fd_.get(), &rings, sizeof rings);
      } else if (tag == kListenerTag) {
        connections_ready_ = true;
      } else {
        ready_.push_back(LinkId(tag));
      }
    }
  }
}

bool ShmWire::poll(WireEvents& events) {
  const uint64_t now = clock_word(clock_).load();
  wake_up();
  collect_ready();
  bool any = !arrived_.empty();
  if (std::exchange(connections_ready_, false)) {
    accept_all(events);
    any = true;
  }
  for (; !failed_opens_.empty(); any = true) {
    const auto [id, reason] = failed_opens_.front();
    failed_opens_.pop_front();
    if (find(id) != nullptr) lose(id, reason, events);
  }
  for (const LinkId id : std::exchange(ready_, {})) {
    Link* link = find(id);
    if (link == nullptr) continue;
    any = true;
    const auto alive = read_socket(*link, events);
    if (alive.value_or(false)) continue;
    if (alive && find(id) == link) (void)collect_frames(*link, events, any);
    ending_.emplace_back(id, alive ? Error(ErrorCode::kUnavailable, "the peer is gone") : alive.error());
  }
  look_at_hot(events, any);
  tell_arrived(now, events);
  // What they said before their end is heard first.
  for (const auto& [id, reason] : std::exchange(ending_, {})) {
    if (std::ranges::find(arrived_, id, &Arrived::link) != arrived_.end()) {
      ending_.emplace_back(id, reason);
    } else if (find(id) != nullptr) {
      lose(id, reason, events);
    }
  }
  for (size_t due = rma_done_.size(); due > 0 && !rma_done_.empty(); --due) {
    const RmaDone done = std::move(rma_done_.front());
    rma_done_.pop_front();
    any = true;
    if (find(done.link) != nullptr) events.on_rma_done(done.link, done.cookie, done.outcome);
  }
  return any;
}

// Senders need not ring any more.
void ShmWire::wake_up() {
  if (!std::exchange(armed_, false)) return;
  for (const LinkId id : hot_) {
    Link* link = find(id);
    if (link != nullptr && link->ring) link->ring->arm(Sleep::kAwake);
  }
}

void ShmWire::look_at_hot(WireEvents& events, bool& any) {
  for (const LinkId id : std::exchange(hot_, {})) {
    Link* link = find(id);
    if (link == nullptr) continue;
    const auto collected = collect_frames(*link, events, any);
    link = find(id);
    if (link == nullptr) continue;
    if (!collected) {
      link->hot = false;
      ending_.emplace_back(id, collected.error());
      continue;
    }
    if (link->wants_writable && link->ring && link->table) {
      link->wants_writable = false;
      events.on_writable(id);
      link = find(id);
      if (link == nullptr) continue;
    }
    if (link->empty_turns < kEmptyTurnsUntilCold || !link->ring) {
      hot_.push_back(id);
      continue;
    }
    link->hot = false;
    link->ring->arm(Sleep::kAsleep);
    if (link->ring->anything_to_take()) heat(*link);
  }
}

void ShmWire::lose(LinkId id, const Error& reason, WireEvents& events) {
  close(id);
  events.on_link_lost(id, reason);
}

bool ShmWire::arm(std::vector<pollfd>& descriptors, std::chrono::microseconds& max_wait) {
  const bool more = !rma_done_.empty() || !failed_opens_.empty() || !ready_.empty() || connections_ready_ ||
                    !arrived_.empty() || !ending_.empty();
  if (more) return false;
  // After messages that nobody waits for more of them are likely: to be woken by each would cost more than
  // they do.
  const bool dozing = dozes_left_ > 0;
  if (dozing) {
    --dozes_left_;
    max_wait = std::min(max_wait, kDoze);
  }
  bool anything = false;
  for (const LinkId id : std::exchange(hot_, {})) {
    Link* link = find(id);
    if (link == nullptr) continue;
    if (link->ring) link->ring->arm(dozing ? Sleep::kDozing : Sleep::kAsleep);
    const bool full = link->ring && link->ring->anything_to_take();
    anything |= full;
    link->hot = dozing || full;
    if (link->hot) hot_.push_back(id);
  }
  armed_ = !hot_.empty();
  if (anything) {
    wake_up();
    return false;
  }
  if (listener_paused_) {
    epoll_event event{EPOLLIN, {.u64 = kListenerTag}};
    if (SteadyClock().now_ms() >= paused_until_ms_)
      listener_paused_ = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0;
    max_wait = std::min<std::chrono::microseconds>(max_wait, std::chrono::milliseconds(kPausedAcceptMs));
  }
  descriptors.push_back({epoll_.get(), POLLIN, 0});
  return true;
}

void ShmWire::wait(std::chrono::microseconds max_wait) {
  std::vector<pollfd> fds;
  if (!arm(fds, max_wait)) return;
  wait_for_any(fds, max_wait);
}

Result<> ShmWire::lend(std::span<const int> files) {
  lending_.clear();
  for (const int file : files) {
    UniqueFd copy(::fcntl(file, F_DUPFD_CLOEXEC, 0));
    if (!copy) return fail(errno_error(errno, "lend a file through", address_.text));
    lending_.push_back(std::move(copy));
  }
  return {};
}

std::optional<pid_t> ShmWire::process(LinkId id) const {
  const auto at = links_.find(id.value);
  return at == links_.end() ? std::nullopt : std::optional(at->second->process);
}

std::span<const UniqueFd> ShmWire::lent(LinkId id) const {
  const auto at = links_.find(id.value);
  return at == links_.end() ? std::span<const UniqueFd>() : at->second->lent;
}

void ShmWire::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_fd_.get(), &one, sizeof one);  // full means already rung
}

Accepted ShmWire::send(LinkId id, const OutgoingFrame& frame) {
  Link* link = find(id);
  if (link == nullptr || !link->ring) return Accepted::kNo;
  const uint64_t ticket = link->clock ? clock_word(link->clock).fetch_add(1) : 0;
  if (link->ring->put(ticket, frame.hurried, frame.header, frame.payload()) == RingPair::Put::kFull) {
    link->wants_writable = true;
    if (link->ring->disarm_peer(/*hurried=*/true)) ring_bell(*link);
    // The bell that tells of room wakes this link; it is looked at again then.
    return Accepted::kFull;
  }
  if (link->ring->disarm_peer(frame.hurried)) ring_bell(*link);
  return Accepted::kYes;
}

Accepted ShmWire::start_rma(LinkId id, const RmaChunk& chunk) {
  Link* link = find(id);
  if (link == nullptr || !link->ring) return Accepted::kNo;
  if (!link->table) {
    link->wants_writable = true;
    return Accepted::kFull;
  }
  const bool pull = chunk.direction == Direction::kPull;
  const uint64_t address = chunk.buffer.address + chunk.offset;
  Result<> outcome;
  // Said before looking: the owner withdraws first and then waits for copies that were said.
  link->ring->my_copying().store(chunk.buffer.key);
  if (link->ring->peer_closed() || !may_reach(link->table, chunk.buffer.key, address, chunk.length,
                                              pull ? Access::kRemoteRead : Access::kRemoteWrite)) {
    outcome = fail(ErrorCode::kIo, "the peer's memory cannot be reached: it is not exposed like that");
  } else if (pull) {
    outcome = copy_from_process(link->process, address, {chunk.local, chunk.length});
  } else {
    outcome = copy_to_process(link->process, address, {chunk.local, chunk.length});
  }
  link->ring->my_copying().store(0);
  rma_done_.push_back({id, chunk.cookie, std::move(outcome)});
  return Accepted::kYes;
}

Result<std::unique_ptr<ExposedMemory>> ShmWire::expose(std::span<std::byte> memory, Access access) {
  auto remote = table_.expose(memory, access);
  if (!remote) return fail(remote.error());
  return std::make_unique<Exposure>(self_, *remote);
}

void ShmWire::withdraw(uint64_t key) {
  table_.withdraw(key);
  for (const auto& [id, link] : links_) wait_for_copies(*link, key);
}

// Until the peer is not copying memory of ours: that of `key`, or any for 0. A piece takes well under a
// millisecond, and a dead peer copies nothing.
void ShmWire::wait_for_copies(Link& link, uint64_t key) {
  if (!link.ring) return;
  const SteadyClock clock;
  const uint64_t give_up_ms = clock.now_ms() + kCopyPatienceMs;
  for (;;) {
    const uint64_t copying = link.ring->peer_copying();
    if (copying == 0 || (key != 0 && copying != key)) return;
    char byte = 0;
    if (recv(link.socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;
    if (clock.now_ms() > give_up_ms) {
      log::error("process {} was stopped while it copies memory of this one; it may go on later",
                 link.process);
      return;
    }
    const timespec moment{0, 20'000};
    nanosleep(&moment, nullptr);
  }
}

void ShmWire::close(LinkId id) {
  const auto at = links_.find(id.value);
  if (at == links_.end()) return;
  const std::unique_ptr<Link> link = std::move(at->second);
  links_.erase(at);
  std::erase_if(rma_done_, [&](const RmaDone& done) { return done.link == id; });
  if (link->ring) {
    link->ring->close();
    wait_for_copies(*link, 0);
  }
}

}  // namespace sluice::transport
