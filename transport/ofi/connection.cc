#include "transport/ofi/connection.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::transport {

FrameHeader Connection::header(FrameKind kind) const {
  FrameHeader h;
  h.kind = kind;
  h.to_connection = remote_name;
  h.from_connection = local_name;
  if (kind == FrameKind::kPing || kind == FrameKind::kPong || kind == FrameKind::kBye)
    h.sequence = data_frames_sent;
  return h;
}

OutgoingFrame make_frame(FrameHeader header, std::vector<std::byte> payload) {
  OutgoingFrame frame;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  frame.header = encode_header(header);
  frame.length = payload.size();
  if (!payload.empty()) frame.message = std::make_shared<const std::vector<std::byte>>(std::move(payload));
  return frame;
}

namespace {

OutgoingFrame next_fragment(const Connection& c, size_t max_payload) {
  const auto& message = c.messages.front().bytes;
  OutgoingFrame frame;
  frame.hurried = c.messages.front().hurried;
  frame.message = message;
  frame.offset = c.first_message_sent;
  frame.length = std::min(message->size() - c.first_message_sent, max_payload);
  FrameHeader header = c.header(FrameKind::kData);
  header.sequence = c.data_frames_sent + 1;
  header.payload_bytes = static_cast<uint32_t>(frame.length);
  if (frame.offset + frame.length < message->size()) header.flags = kMoreFragments;
  frame.header = encode_header(header);
  return frame;
}

}  // namespace

bool flush_frames(Connection& c, Wire& wire, uint64_t now_ms) {
  Accepted accepted = Accepted::kYes;
  const auto hand_over = [&](const OutgoingFrame& frame) {
    accepted = wire.send(c.link, frame);
    if (accepted == Accepted::kYes) c.last_sent_ms = now_ms;
    return accepted == Accepted::kYes;
  };
  if (c.greeting) {
    if (!hand_over(*c.greeting)) return accepted == Accepted::kFull;
    c.greeting.reset();
  }
  if (c.state == Connection::State::kGreeting) return true;
  for (const auto& [due, kind] :
       {std::pair(&c.ping_due, FrameKind::kPing), {&c.pong_due, FrameKind::kPong}}) {
    if (!*due) continue;
    if (!hand_over(make_frame(c.header(kind), {}))) return accepted == Accepted::kFull;
    *due = false;
  }
  const size_t max_payload = wire.max_frame_bytes() - kFrameHeaderBytes;
  while (!c.messages.empty()) {
    const OutgoingFrame frame = next_fragment(c, max_payload);
    if (!hand_over(frame)) return accepted == Accepted::kFull;
    ++c.data_frames_sent;
    c.first_message_sent += frame.length;
    if (c.first_message_sent == c.messages.front().bytes->size()) {
      c.messages.pop_front();
      c.first_message_sent = 0;
    }
  }
  if (c.farewell) {
    if (!hand_over(*c.farewell)) return accepted == Accepted::kFull;
    c.farewell.reset();
  }
  return true;
}

bool start_chunks(Connection& c, Wire& wire, uint64_t& next_cookie) {
  if (c.state == Connection::State::kGreeting) return true;
  while (!c.rmas.empty() && c.chunks.size() < kRmaChunksInFlight &&
         c.rma_bytes_in_flight < kRmaBytesInFlight) {
    const std::shared_ptr<RmaRequest> request = c.rmas.front();
    if (request->failed || request->started == request->length) {
      c.rmas.pop_front();
      continue;
    }
    RmaChunk chunk;
    chunk.direction = request->direction;
    chunk.buffer = request->buffer;
    chunk.offset = request->offset + request->started;
    chunk.local = request->local + request->started;
    chunk.length = std::min(request->length - request->started, kRmaChunkBytes);
    chunk.cookie = next_cookie++;
    const Accepted accepted = wire.start_rma(c.link, chunk);
    if (accepted != Accepted::kYes) return accepted == Accepted::kFull;
    request->started += chunk.length;
    ++request->in_flight;
    c.rma_bytes_in_flight += chunk.length;
    c.chunks.emplace(chunk.cookie, StartedChunk{request, chunk.length});
    if (request->started == request->length) c.rmas.pop_front();
  }
  return true;
}

std::shared_ptr<RmaRequest> finish_chunk(Connection& c, uint64_t cookie) {
  const auto at = c.chunks.find(cookie);
  if (at == c.chunks.end()) return nullptr;
  const StartedChunk chunk = std::move(at->second);
  c.chunks.erase(at);
  c.rma_bytes_in_flight -= chunk.length;
  --chunk.request->in_flight;
  return chunk.request;
}

Result<std::optional<std::span<const std::byte>>> take_data(Connection& c, const Frame& frame) {
  using Whole = std::optional<std::span<const std::byte>>;
  if (frame.header.sequence != c.data_frames_received + 1) {
    return fail(ErrorCode::kProtocol, fmt::format("frame {} came where {} was due: a message was lost",
                                                  frame.header.sequence, c.data_frames_received + 1));
  }
  ++c.data_frames_received;
  const bool more = frame.header.flags == kMoreFragments;
  const size_t so_far = c.assembling ? c.partial_message.size() : 0;
  if (so_far + frame.payload.size() > kMaxMessageBytes) {
    return fail(ErrorCode::kProtocol, "a message longer than the limit came in pieces");
  }
  if (!c.assembling && !more) return Whole(frame.payload);
  if (!c.assembling) c.partial_message.clear();
  c.assembling = more;
  c.partial_message.insert(c.partial_message.end(), frame.payload.begin(), frame.payload.end());
  return more ? Whole() : Whole(c.partial_message);
}

std::vector<std::shared_ptr<RmaRequest>> take_requests(Connection& c) {
  std::vector<std::shared_ptr<RmaRequest>> requests;
  // In flight first: they were asked for earlier. One request may have several chunks.
  std::vector<std::pair<uint64_t, std::shared_ptr<RmaRequest>>> flying;
  for (const auto& [cookie, chunk] : c.chunks) flying.emplace_back(cookie, chunk.request);
  std::sort(flying.begin(), flying.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto add = [&](const std::shared_ptr<RmaRequest>& request) {
    if (std::find(requests.begin(), requests.end(), request) == requests.end()) requests.push_back(request);
  };
  for (const auto& [cookie, request] : flying) add(request);
  const size_t flying_count = requests.size();
  for (const auto& request : c.rmas) {
    // Only the first few of the queue can be in flight too.
    const auto begin = requests.begin();
    if (std::find(begin, begin + static_cast<ptrdiff_t>(flying_count), request) !=
        begin + static_cast<ptrdiff_t>(flying_count)) {
      continue;
    }
    requests.push_back(request);
  }
  c.chunks.clear();
  c.rma_bytes_in_flight = 0;
  c.rmas.clear();
  return requests;
}

}  // namespace sluice::transport
