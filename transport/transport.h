#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os.h"
#include "base/result.h"
#include "base/types.h"

// Messages and remote memory access between processes.
//
// Thread rule: a Transport belongs to one loop thread. post() may be called from any thread; every other
// call, every handler and every completion happens on the loop thread (between start and stop of the loop
// that owns it; the simulated transport has one loop for all). Nothing here blocks.
namespace sluice::transport {

// One connection, as this process knows it. Never reused while the process lives.
using PeerId = Strong<struct PeerTag, uint64_t>;

// "tcp://127.0.0.1:40001", "shm://NAME", "sim://NAME".
struct Address {
  std::string text;
  bool operator==(const Address&) const = default;
};

inline constexpr size_t kMaxMessageBytes = 256 * 1024;  // a longer message is refused with kTooLarge
inline constexpr size_t kMaxQueuedMessages = 4096;      // per peer, not yet handed to the fabric; then kBusy
inline constexpr size_t kMaxRmaBytes = 64 * 1024 * 1024;  // per pull or push; a longer one is kTooLarge

// Memory that its owner lets a peer read (pull) or write (push). Sent to that peer inside a message.
struct RemoteBuffer {
  uint64_t address = 0;
  uint64_t key = 0;
  uint64_t length = 0;
};

enum class Access { kRemoteRead, kRemoteWrite };

// The owner of an exposed piece of memory: while it lives peers may reach the memory, which must live as
// long. Destroyed on the loop thread and before its transport. A peer that may still be pushing into the
// memory is disconnected first; afterwards nothing reaches it.
class ExposedMemory {
 public:
  virtual ~ExposedMemory() = default;
  virtual RemoteBuffer remote() const = 0;
};

// What a transport tells its user.
class Handler {
 public:
  virtual ~Handler() = default;
  // A peer introduced itself. Not called for connections that this side made.
  virtual void on_connected(PeerId peer) = 0;
  // A whole message, valid only during the call. Hostile until verified.
  virtual void on_message(PeerId peer, std::span<const std::byte> message) = 0;
  // The connection is gone: closed by the peer, silent for too long, sent garbage, or could not be made.
  // Called exactly once for a connection, unless this side called disconnect(). Its outstanding completions
  // have run, with an error.
  virtual void on_disconnected(PeerId peer, const Error& reason) = 0;
};

using Completion = std::function<void(Result<>)>;

class Transport {
 public:
  virtual ~Transport() = default;

  // Where others reach this one.
  virtual Address address() const = 0;
  // Before anything else; the handler outlives the transport or is replaced.
  virtual void set_handler(Handler* handler) = 0;

  // Starts a connection. The peer may be used at once: messages wait until the other side has answered. When
  // it does not answer in time, on_disconnected(kUnavailable). An address that cannot be understood fails
  // here.
  virtual Result<PeerId> connect(const Address& address) = 0;
  // Ends a connection from this side, telling the other if possible. Outstanding completions run with
  // `reason`.
  virtual void disconnect(PeerId peer, const Error& reason) = 0;

  // Messages between two peers arrive in the order sent, whole, at most once; a lost one ends the connection.
  // Over shared memory also those of different peers do: what was sent before another peer's sending began is
  // told before that, unless the sender's queue was full.
  virtual Result<> send(PeerId peer, std::vector<std::byte> message) = 0;
  // The same for a message that nobody waits for: a receiver that has fallen asleep over many such ones is
  // not woken by it, but looks by itself within a millisecond. Whatever is sent hurried after it wakes it.
  virtual Result<> send_unhurried(PeerId peer, std::vector<std::byte> message) {
    return send(peer, std::move(message));
  }

  // Makes memory reachable. Bounded in number by the provider: kBusy when there is no more room.
  virtual Result<std::unique_ptr<ExposedMemory>> expose(std::span<std::byte> memory, Access access) = 0;

  // Copies [offset, offset + into.size()) of the peer's buffer here, or `from` there. Exactly one completion;
  // until then the local memory must live. A range outside the buffer is kInvalidArgument. After an error the
  // destination is undefined.
  virtual void pull(PeerId peer, const RemoteBuffer& buffer, uint64_t offset, std::span<std::byte> into,
                    Completion done) = 0;
  virtual void push(PeerId peer, const RemoteBuffer& buffer, uint64_t offset, std::span<const std::byte> from,
                    Completion done) = 0;

  // Runs `work` on the loop thread, in the order posted. Any thread.
  virtual void post(std::function<void()> work) = 0;
  // Runs `work` on the loop thread after at least `delay_ms`. Loop thread only.
  virtual void after_ms(uint64_t delay_ms, std::function<void()> work) = 0;
  virtual uint64_t now_ms() const = 0;

  // Of a peer that is a process of the same user on this host, over a wire that can tell: its number, vouched
  // for by the kernel; and the files that it lent this process when it was connected to, which stay its own
  // and open as long as the connection does. Nothing for every other peer, and before it has answered.
  virtual std::optional<pid_t> peer_process(PeerId) const { return std::nullopt; }
  virtual std::span<const UniqueFd> lent_files(PeerId) const { return {}; }
};

}  // namespace sluice::transport
