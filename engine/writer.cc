#include "engine/writer.h"

#include <cstring>

#include "base/checksum.h"

namespace sluice::engine {

void Writer::write(const Request& request, const Message& message) {
  admit(request, message, context_.parts.transport.now_ms() + context_.options.full_wait_ms);
}

void Writer::admit(const Request& request, const Message& message, uint64_t deadline_ms) {
  const wire::WriteT& ask = *message->body.AsWrite();
  auto file = files_.writable(request, ask.handle, ask.secret);
  if (!file) return context_.refuse(request, file.error());
  if ((*file)->committing) {
    (*file)->after_commit.push_back(
        [this, request, message, deadline_ms] { admit(request, message, deadline_ms); });
    return;
  }
  if (auto held = locks_.check(request.session, **file, ask.lock, ask.extents); !held) {
    return context_.refuse(request, held.error());
  }
  const Length total(protocol::total_bytes(ask.extents));
  auto slab = context_.parts.hot.reserve(total);
  if (!slab && slab.error().code == ErrorCode::kNoSpace) return wait_for_room(request, message, deadline_ms);
  if (!slab) return context_.refuse(request, slab.error());
  auto txn = files_.transaction(**file);
  if (!txn) {
    context_.parts.hot.cancel(*slab);
    return context_.refuse(request, txn.error());
  }
  fetch(request, message, *txn, *slab);
}

void Writer::wait_for_room(const Request& request, const Message& message, uint64_t deadline_ms) {
  const uint64_t now = context_.parts.transport.now_ms();
  if (now >= deadline_ms) return context_.refuse(request, full(context_.drain->status().state));
  waiting_.push_back({request, message, deadline_ms});
  context_.drain->want_room(Length(protocol::total_bytes(message->body.AsWrite()->extents)));
  context_.parts.transport.after_ms(deadline_ms - now, [this] { give_up_waiting(); });
}

void Writer::give_up_waiting() {
  const uint64_t now = context_.parts.transport.now_ms();
  std::deque<Waiting> still;
  for (auto& waiting : waiting_) {
    if (waiting.deadline_ms > now) {
      still.push_back(std::move(waiting));
    } else {
      context_.refuse(waiting.request, full(context_.drain->status().state));
    }
  }
  waiting_ = std::move(still);
}

void Writer::drain_progress(const Result<>& outcome) {
  auto waiting = std::move(waiting_);
  waiting_.clear();
  for (auto& one : waiting) {
    if (outcome) {
      admit(one.request, one.message, one.deadline_ms);
    } else {
      context_.refuse(one.request, full(outcome.error().message));
    }
  }
}

void Writer::fetch(const Request& request, const Message& message, TxnId txn,
                   const burst_buffer::Slab& slab) {
  const wire::WriteT& ask = *message->body.AsWrite();
  const auto room = context_.parts.hot.bytes(slab);
  if (ask.source == nullptr) {
    std::memcpy(room.data(), ask.inline_.data(), ask.inline_.size());
    return record(request, message, txn, slab);
  }
  const transport::RemoteBuffer source{ask.source->address(), ask.source->key(), ask.source->length()};
  context_.parts.transport.pull(request.peer, source, 0, room,
                                [this, request, message, txn, slab](Result<> pulled) {
                                  if (pulled) return record(request, message, txn, slab);
                                  context_.parts.hot.cancel(slab);
                                  context_.refuse(request, pulled.error());
                                });
}

void Writer::record(const Request& request, const Message& message, TxnId txn,
                    const burst_buffer::Slab& slab) {
  context_.off_loop(
      message->body.AsWrite()->handle,
      [this, message, txn, slab]() -> Result<uint64_t> {
        const wire::WriteT& ask = *message->body.AsWrite();
        if (!checksums_match(context_.parts.hot.bytes(slab), ask.checksums)) {
          context_.parts.hot.cancel(slab);
          return fail(
              Error(ErrorCode::kCorrupt, "bytes were damaged on their way to the service").mark_retryable());
        }
        return context_.parts.hot.write(txn, protocol::extents_of(ask.extents), slab, ask.checksums);
      },
      [this, request, message, txn](Result<uint64_t> recorded) {
        if (!recorded) return context_.refuse(request, recorded.error());
        ++context_.writes;
        context_.bytes_written += protocol::total_bytes(message->body.AsWrite()->extents);
        wire::WrittenT written;
        written.transaction = txn.value;
        written.record = *recorded;
        context_.answer(request, std::move(written));
      });
}

Error Writer::full(const std::string& why) const {
  const auto usage = context_.parts.hot.usage();
  return {ErrorCode::kNoSpace,
          "the hot tier of " + context_.options.pool_name + " is full (" + std::to_string(usage.bytes_used) +
              " of " + std::to_string(usage.bytes_total) + " bytes used) and its drain made no room (" + why +
              "); free space on the targets, or start the service with a larger --hot-size"};
}

}  // namespace sluice::engine
