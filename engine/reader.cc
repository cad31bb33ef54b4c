#include "engine/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"

namespace sluice::engine {

Result<OpenFile*> Reader::readable(const Request& request, const wire::ReadT& ask) {
  auto file = files_.find(request, ask.handle, ask.secret);
  if (file && (*file)->access == wire::Access::WriteOnly)
    return fail(ErrorCode::kAccess, (*file)->path + " was opened for writing only; open it for reading");
  return file;
}

void Reader::read(const Request& request, const Message& message) {
  const wire::ReadT& ask = *message->body.AsRead();
  const auto file = readable(request, ask);
  if (!file) return context_.refuse(request, file.error());
  if (ask.mapped && tell_places(request, **file, ask)) return;
  if (!ask.mapped || !stage_in_.usable()) return gather(request, message, **file);
  auto extents = protocol::extents_of(ask.extents);
  extents.push_back(ahead_of(extents, ask.ahead));
  stage_in_.bring((*file)->container, extents, [this, request, message] {
    const wire::ReadT& again = *message->body.AsRead();
    const auto still = readable(request, again);
    if (!still) return context_.refuse(request, still.error());
    if (!tell_places(request, **still, again)) gather(request, message, **still);
  });
}

void Reader::gather(const Request& request, const Message& message, const OpenFile& file) {
  const wire::ReadT& ask = *message->body.AsRead();
  if (ask.destination == nullptr && protocol::total_bytes(ask.extents) > protocol::kMaxInlineBytes) {
    return context_.refuse(request, {ErrorCode::kUnsupported, "not all of these bytes lie in the hot tier"});
  }
  context_.off_loop(
      turn_++,
      [this, message, source = Source{file.container, file.path, file.txn}]() -> Result<Gathered> {
        auto gathered = gather(source, protocol::extents_of(message->body.AsRead()->extents));
        if (!gathered)
          return fail(or_removed(context_.parts, source.container, source.path, gathered.error()));
        return gathered;
      },
      [this, request, message](Result<Gathered> gathered) {
        if (!gathered) return context_.refuse(request, gathered.error());
        deliver(request, message, std::move(*gathered));
      });
}

bool Reader::release(SessionId session, std::span<const uint64_t> pins) {
  const auto held = pins_.find(session);
  if (held == pins_.end()) return false;
  size_t released = 0;
  for (const uint64_t pin : pins) released += held->second.erase(pin);
  return released > 0;
}

// What is told ahead is pinned too, so it is a small part of the hot tier.
Extent Reader::ahead_of(const std::vector<Extent>& extents, uint64_t ahead) const {
  if (ahead == 0) return {};
  constexpr uint64_t kShare = 8;
  const uint64_t share =
      context_.parts.hot.usage().bytes_total / kShare / std::max<uint64_t>(context_.sessions.size(), 1);
  const Offset begin = extents.back().end;
  const uint64_t bytes = std::min({ahead, share, kMaxFileBytes - begin.value});
  return {begin, Offset(begin.value + bytes)};
}

bool Reader::tell_places(const Request& request, const OpenFile& file, const wire::ReadT& ask) {
  auto& held = pins_[request.session];
  if (held.size() >= kMaxPins) return false;
  const auto extents = protocol::extents_of(ask.extents);
  auto staged = context_.parts.hot.staged(file.container, file.txn, extents, ahead_of(extents, ask.ahead),
                                          kMostPiecesWithAhead);
  if (!staged || !*staged || (*staged)->segments.size() > protocol::kMaxMappedPieces) return false;
  wire::ReadDoneT done;
  done.version = file.txn ? 0 : (*staged)->committed.value;
  done.pieces.reserve((*staged)->segments.size());
  uint64_t told = 0;
  for (const auto& segment : (*staged)->segments) {
    const uint64_t bytes = segment.bytes.size();
    done.pieces.emplace_back(told, segment.area_offset, bytes, segment.in_slab, segment.slab_length);
    const auto blocks = protocol::whole_blocks(segment.in_slab, bytes, segment.slab_length);
    const auto sums = segment.checksums.subspan(blocks.count == 0 ? 0 : blocks.first, blocks.count);
    done.checksums.insert(done.checksums.end(), sums.begin(), sums.end());
    told += bytes;
  }
  done.bytes = std::min(told, protocol::total_bytes(ask.extents));
  done.ahead = told - done.bytes;
  // Asked again because the answer was lost, it is the same pin.
  done.pin = request.id;
  held.insert_or_assign(done.pin, std::move((*staged)->pin));
  ++context_.reads;
  context_.drain->busy();
  context_.bytes_read += done.bytes;
  protocol::Body body;
  body.Set(std::move(done));
  context_.answer_once(request, std::move(body));
  return true;
}

Result<Reader::Gathered> Reader::gather(const Source& source, const std::vector<Extent>& extents) {
  // A commit or a publication between two extents would mix versions: gather again until none came between. A
  // file that is committed to without end is answered as it is after that many attempts.
  constexpr int kAttempts = 8;
  Result<Gathered> gathered;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto before = versions(source.container);
    if (!before) return fail(before.error());
    gathered = gather_once(source, extents);
    auto after = versions(source.container);
    if (!after) return fail(after.error());
    if (gathered) gathered->version = source.txn ? 0 : before->first.value;
    if (*before == *after) break;
  }
  if (gathered) gathered->checksums = block_checksums(gathered->bytes);
  return gathered;
}

Result<std::pair<Epoch, Epoch>> Reader::versions(ContainerId container) {
  auto info = context_.parts.store.find(container);
  if (!info) return fail(info.error());
  return std::pair(context_.parts.hot.committed(container, info->published), info->published);
}

Result<Reader::Gathered> Reader::gather_once(const Source& source, const std::vector<Extent>& extents) {
  auto size = visible_size(context_.parts, source.container, source.txn);
  if (!size) return fail(size.error());
  const Extent file{Offset(0), Offset(size->value)};
  std::vector<Extent> present;
  uint64_t total = 0;
  for (const Extent& extent : extents) {
    const auto inside = extent.intersect(file);
    if (!inside) break;
    present.push_back(*inside);
    total += inside->length().value;
    if (*inside != extent) break;
  }
  Gathered gathered;
  gathered.bytes.resize(total);
  std::span<std::byte> room(gathered.bytes);
  HotBytes hot;
  for (const Extent& extent : present) {
    const auto piece = room.first(extent.length().value);
    if (auto ok = fill(source, extent, piece, hot); !ok) return fail(ok.error());
    room = room.subspan(piece.size());
  }
  return gathered;
}

Result<> Reader::fill(const Source& source, Extent extent, std::span<std::byte> out, HotBytes& hot) {
  auto view = context_.parts.hot.view(source.container, source.txn, extent);
  if (!view && view.error().code == ErrorCode::kNotFound && source.txn) {
    view = context_.parts.hot.view(source.container, std::nullopt, extent);  // committed meanwhile
  }
  if (!view) return fail(view.error());
  hot.pins.push_back(std::move(view->pin));
  for (const auto& segment : view->segments) {
    const auto piece =
        out.subspan((segment.extent.begin - extent.begin).value, segment.extent.length().value);
    Result<storage::ReadReport> read;
    switch (segment.kind) {
      case burst_buffer::Segment::Kind::kBytes:
        if (auto ok = fill_from_hot(source, segment, piece, hot); !ok) return ok;
        break;
      case burst_buffer::Segment::Kind::kZeros:
        std::memset(piece.data(), 0, piece.size());
        break;
      case burst_buffer::Segment::Kind::kStripe:
        read = context_.parts.store.read_stripe(segment.stripe, segment.stripe_offset, piece);
        break;
      case burst_buffer::Segment::Kind::kBelow:
        read = context_.parts.store.read(source.container, segment.extent, piece);
        break;
    }
    if (!read) return fail(read.error());
  }
  return {};
}

Result<> Reader::fill_from_hot(const Source& source, const burst_buffer::Segment& segment,
                               std::span<std::byte> out, HotBytes& hot) {
  if (hot.checked.copy(segment, out)) return {};
  if (segment.clean) {
    context_.parts.hot.damaged(source.container, segment);
    return fill(source, segment.extent, out, hot);
  }
  Error error(ErrorCode::kCorrupt,
              fmt::format("bytes [{}, {}) of {} in the hot tier do not match the checksums they were written "
                          "with; write them again",
                          segment.extent.begin.value, segment.extent.end.value, source.path));
  return fail(error.mark_data_loss());
}

void Reader::deliver(const Request& request, const Message& message, Gathered gathered) {
  const wire::ReadT& ask = *message->body.AsRead();
  auto held = std::make_shared<Gathered>(std::move(gathered));
  const auto answer = [this, request, held](bool inline_bytes) {
    ++context_.reads;
    context_.drain->busy();
    context_.bytes_read += held->bytes.size();
    wire::ReadDoneT done;
    done.bytes = held->bytes.size();
    done.checksums = std::move(held->checksums);
    done.version = held->version;
    if (inline_bytes) {
      const auto* data = reinterpret_cast<const uint8_t*>(held->bytes.data());
      done.inline_.assign(data, data + held->bytes.size());
    }
    protocol::Body body;
    body.Set(std::move(done));
    context_.answer_once(request, std::move(body));
  };
  if (ask.destination == nullptr || held->bytes.empty()) return answer(true);
  const auto peer = context_.peer_of(request);
  if (!peer) return context_.interrupted(request);
  const transport::RemoteBuffer to{ask.destination->address(), ask.destination->key(),
                                   ask.destination->length()};
  context_.parts.transport.push(*peer, to, 0, held->bytes, [this, request, held, answer](Result<> pushed) {
    if (pushed) return answer(false);
    if (lost_connection(pushed.error())) return context_.interrupted(request);
    context_.refuse(request, pushed.error());
  });
}

}  // namespace sluice::engine
