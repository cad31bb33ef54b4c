#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/os.h"
#include "base/result.h"
#include "base/types.h"
#include "transport/frame.h"
#include "transport/transport.h"

// What carries frames and remote memory access between two processes; connections and their rules live above
// it, in OfiTransport. Two kinds: TcpWire (connected libfabric endpoints) and ShmWire (one reliable datagram
// endpoint).
//
// Thread rule: the loop thread, but for wake().
namespace sluice::transport {

// One way to one process. Never reused while the wire lives.
using LinkId = Strong<struct LinkTag, uint64_t>;

struct OutgoingFrame {
  FrameHeaderBytes header;
  std::shared_ptr<const std::vector<std::byte>>
      message;  // the payload is a piece of it; null when there is none
  size_t offset = 0;
  size_t length = 0;
  bool hurried = true;  // otherwise a receiver that dozes need not be woken

  std::span<const std::byte> payload() const {
    return length == 0 ? std::span<const std::byte>() : std::span(*message).subspan(offset, length);
  }
};

enum class Direction { kPull, kPush };

struct RmaChunk {
  Direction direction = Direction::kPull;
  RemoteBuffer buffer;
  uint64_t offset = 0;         // into the buffer
  std::byte* local = nullptr;  // written by a pull, only read by a push
  size_t length = 0;
  uint64_t cookie = 0;  // given back in on_rma_done
};

enum class Accepted {
  kYes,
  kFull,
  kNo
};  // kFull: try again after on_writable; kNo: the link is of no more use

// Called from poll() only. A callback may call any method of the wire, close() of the same link included.
class WireEvents {
 public:
  virtual ~WireEvents() = default;
  // Someone opened a link to this process. Only wires with links at both ends.
  virtual void on_incoming_link(LinkId link) = 0;
  // A frame, valid during the call. A wire that cannot tell whose it is says no link.
  virtual void on_frame(std::optional<LinkId> link, std::span<const std::byte> bytes) = 0;
  // Sending is worth another try.
  virtual void on_writable(LinkId link) = 0;
  virtual void on_rma_done(LinkId link, uint64_t cookie, const Result<>& outcome) = 0;
  // The link is closed; nothing more comes of it, and as after close() nothing touches memory for it.
  virtual void on_link_lost(LinkId link, const Error& reason) = 0;
};

// poll(2) by microseconds.
inline void wait_for_any(std::span<pollfd> descriptors, std::chrono::microseconds max_wait) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(max_wait);
  const timespec limit{seconds.count(), std::chrono::nanoseconds(max_wait - seconds).count()};
  ::ppoll(descriptors.data(), descriptors.size(), &limit, nullptr);
}

class Wire {
 public:
  virtual ~Wire() = default;

  virtual Address address() const = 0;
  // The largest frame, header included.
  virtual size_t max_frame_bytes() const = 0;

  // True when a completed RMA tells that the peer runs.
  virtual bool rma_shows_life(LinkId link) const = 0;

  // Starts a link. It may be used at once.
  virtual Result<LinkId> open(const Address& address) = 0;
  // Ends a link. On return no operation of the link touches memory any more, and no event of it will come.
  virtual void close(LinkId link) = 0;

  // Takes the frame, or not at all.
  virtual Accepted send(LinkId link, const OutgoingFrame& frame) = 0;
  // True when every frame taken has left this process or its memory.
  virtual bool flushed(LinkId link) const = 0;
  virtual Accepted start_rma(LinkId link, const RmaChunk& chunk) = 0;
  virtual Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, Access access) = 0;

  // Handles what is ready, without blocking. True when there was something.
  virtual bool poll(WireEvents& events) = 0;
  // Blocks until poll() has something to do, wake() is called, or max_wait has passed.
  virtual void wait(std::chrono::microseconds max_wait) = 0;
  // For a caller that waits for several wires at once: adds the descriptors that become readable when poll()
  // has something to do, and lowers `max_wait` to when it must be looked at anyway. False when it has
  // something to do already.
  virtual bool arm(std::vector<pollfd>& descriptors, std::chrono::microseconds& max_wait) = 0;
  // Any thread.
  virtual void wake() = 0;

  // The process at the other end, vouched for by the kernel, and the files that it lent; for links between
  // processes of one user on one host.
  virtual std::optional<pid_t> process(LinkId) const { return std::nullopt; }
  virtual std::span<const UniqueFd> lent(LinkId) const { return {}; }
};

}  // namespace sluice::transport
