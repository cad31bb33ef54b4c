#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/ofi/wire.h"

// One connection's state, and the steps that need nothing but it and the wire. Loop thread.
namespace sluice::transport {

inline constexpr size_t kRmaChunkBytes = 1024 * 1024;
inline constexpr size_t kRmaBytesInFlight = 4 * kRmaChunkBytes;  // per connection
inline constexpr size_t kRmaChunksInFlight = 32;                 // per connection
inline constexpr size_t kMaxQueuedRmas = 16384;                  // per connection; then kBusy

struct RmaRequest {
  Direction direction = Direction::kPull;
  RemoteBuffer buffer;
  uint64_t offset = 0;
  std::byte* local = nullptr;
  size_t length = 0;
  Completion done;

  size_t started = 0;    // bytes
  size_t in_flight = 0;  // chunks
  std::optional<Error> failed;

  bool finished() const { return in_flight == 0 && (failed.has_value() || started == length); }
};

// A chunk under way.
struct StartedChunk {
  std::shared_ptr<RmaRequest> request;
  size_t length = 0;
};

struct Connection {
  enum class State { kGreeting, kOpen, kClosing };  // kClosing: says farewell, hears nothing

  PeerId peer;
  LinkId link;
  Address address;
  State state = State::kGreeting;
  bool outgoing = false;
  uint64_t local_name = 0;
  uint64_t remote_name = 0;
  uint64_t deadline_ms = 0;  // of greeting and closing
  uint64_t last_heard_ms = 0;
  uint64_t last_sent_ms = 0;

  // Outgoing, in the order they go.
  std::optional<OutgoingFrame> greeting;
  bool ping_due = false;
  bool pong_due = false;
  struct Outgoing {
    std::shared_ptr<const std::vector<std::byte>> bytes;
    bool hurried = true;
  };
  std::deque<Outgoing> messages;
  size_t first_message_sent = 0;  // bytes of messages.front() already handed over
  std::optional<OutgoingFrame> farewell;
  uint64_t data_frames_sent = 0;

  // Incoming.
  uint64_t data_frames_received = 0;
  bool assembling = false;
  std::vector<std::byte> partial_message;

  std::deque<std::shared_ptr<RmaRequest>> rmas;       // with chunks still to start
  std::unordered_map<uint64_t, StartedChunk> chunks;  // in flight, by cookie
  size_t rma_bytes_in_flight = 0;

  bool rma_outstanding() const { return !rmas.empty() || !chunks.empty(); }
  bool all_sent() const { return !greeting && messages.empty() && !farewell; }
  FrameHeader header(FrameKind kind) const;
};

OutgoingFrame make_frame(FrameHeader header, std::vector<std::byte> payload);

// Hands over as much as the wire takes. False when the link is of no more use.
bool flush_frames(Connection& connection, Wire& wire, uint64_t now_ms);

// Starts as many chunks as may be in flight. False when the link is of no more use.
bool start_chunks(Connection& connection, Wire& wire, uint64_t& next_cookie);

// Takes the chunk of a finished piece of RMA out; null when there is none of that cookie.
std::shared_ptr<RmaRequest> finish_chunk(Connection& connection, uint64_t cookie);

// Takes a data frame. The message, when it is whole now: it lies in the frame or in
// connection.partial_message.
Result<std::optional<std::span<const std::byte>>> take_data(Connection& connection, const Frame& frame);

// Every request not finished, taken out, for its completion to be run with an error.
std::vector<std::shared_ptr<RmaRequest>> take_requests(Connection& connection);

}  // namespace sluice::transport
