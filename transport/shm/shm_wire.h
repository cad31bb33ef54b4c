#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/os.h"
#include "transport/ofi/wire.h"
#include "transport/shm/exposure_table.h"

namespace sluice::transport {

// Frames through shared memory and RMA by the kernel's copy between processes, for processes of one user on
// one host.
//
// Not on libfabric's shm provider. That one (1.17) has nothing to block on, knows 256 peers, installs signal
// handlers, holds a lock in the peer's memory while it copies (a process killed then leaves its peer spinning
// for ever), and dereferences null when a peer leaves before its first message is read. Nothing above this
// class would repair that.
//
// A frame whose sending ended before that of another one began is told before it, whoever sent them, among
// all processes that opened links to this one. For that each carries a ticket, drawn from the receiver's
// *clock*, a word that those processes count up. Only what is sent before the clock is there has none: the
// greeting.
//
// A link is a Unix socket and a pair of queues (ring.h). The socket proves who the peer is (SO_PEERCRED: the
// user, and the process whose memory is copied), passes the memory, is the bell when a side sleeps, and tells
// when the peer dies. Names live in the kernel's abstract namespace: nothing is left behind by a kill -9.
class ShmWire final : public Wire {
 public:
  // An empty name takes a fresh one. A name in use is kExists.
  static Result<std::unique_ptr<ShmWire>> create(const std::string& name);
  ~ShmWire() override;

  Address address() const override { return address_; }
  size_t max_frame_bytes() const override { return kRingRecordBytes; }
  bool rma_shows_life(LinkId) const override {
    return false;
  }  // the kernel copies from a stopped process too
  Result<LinkId> open(const Address& address) override;
  void close(LinkId link) override;
  Accepted send(LinkId link, const OutgoingFrame& frame) override;
  // What was sent lies in memory that outlives this process.
  bool flushed(LinkId) const override { return true; }
  Accepted start_rma(LinkId link, const RmaChunk& chunk) override;
  Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, Access access) override;
  bool poll(WireEvents& events) override;
  void wait(std::chrono::microseconds max_wait) override;
  bool arm(std::vector<pollfd>& descriptors, std::chrono::microseconds& max_wait) override;
  void wake() override;
  std::optional<pid_t> process(LinkId link) const override;
  std::span<const UniqueFd> lent(LinkId link) const override;

  // Hands copies of these descriptors to every process that connects from now on.
  Result<> lend(std::span<const int> files);
  static constexpr size_t kMaxLent = 3;

 private:
  struct Link;
  class Exposure;
  struct Arrived {
    uint64_t ticket;
    LinkId link;
    std::vector<std::byte> bytes;
    int turns = 0;  // in which it could have been told
  };
  struct RmaDone {
    LinkId link;
    uint64_t cookie;
    Result<> outcome;
  };

  explicit ShmWire(ExposureTable table);
  Result<> start(const std::string& name);
  Result<> connect_socket(Link& link, const std::string& name);
  Result<> offer_memory(Link& link);
  Link& add(std::unique_ptr<Link> link);
  Link* find(LinkId id);
  void heat(Link& link);
  void ring_bell(Link& link);
  void accept_all(WireEvents& events);
  // Takes what the socket holds. False when the peer has closed it.
  Result<bool> read_socket(Link& link, WireEvents& events);
  Result<> attach_memory(Link& link, std::vector<UniqueFd> fds);
  void lose(LinkId id, const Error& reason, WireEvents& events);
  void wait_for_copies(Link& link, uint64_t key);
  void withdraw(uint64_t key);
  void collect_ready();
  // Takes what was in the link's queue at the call.
  Result<> collect_frames(Link& link, WireEvents& events, bool& any);
  void look_at_hot(WireEvents& events, bool& any);
  void wake_up();
  void tell_arrived(uint64_t now, WireEvents& events);

  ExposureTable table_;
  SharedMapping clock_;  // counted up by those who open links to this process
  UniqueFd clock_fd_;
  Address address_;
  UniqueFd epoll_;
  UniqueFd listener_;
  UniqueFd wake_fd_;
  bool listener_paused_ = false;
  uint64_t paused_until_ms_ = 0;
  std::vector<UniqueFd> lending_;
  uint64_t next_link_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<Link>> links_;
  std::vector<LinkId> hot_;  // looked at in every turn; the others ring
  bool armed_ = false;       // the hot ones are, too
  int dozes_left_ = 0;
  std::vector<LinkId> ready_;  // their sockets have something
  bool connections_ready_ = false;
  std::vector<Arrived> arrived_;                  // collected and not told
  std::vector<std::pair<LinkId, Error>> ending_;  // when what they said before is told
  std::deque<RmaDone> rma_done_;
  std::deque<std::pair<LinkId, Error>> failed_opens_;
  std::unique_ptr<std::byte[]> frame_;
  std::shared_ptr<ShmWire*> self_;  // for exposures that outlive the wire
};

}  // namespace sluice::transport
