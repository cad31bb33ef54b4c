#include "engine/writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/checksum.h"

namespace sluice::engine {

void Writer::write(const Request& request, const Message& message) {
  const uint64_t deadline_ms = context_.parts.transport.now_ms() + context_.options.full_wait_ms;
  Waiting write{request, message, deadline_ms, next_number_++};
  if (must_queue(write) || !admit(write)) wait_for_room(std::move(write));
}

// What waits for room comes in its turn. But a filled write brings its room with it: if it waited behind
// those that want some, what it holds could not be drained for them. It keeps its place behind what its
// program, or a filled write before it, may rely on.
bool Writer::must_queue(const Waiting& write) const {
  const auto* ask = write.message->body.AsWrite();
  if (ask == nullptr || ask->slab == nullptr) return !waiting_.empty();
  return std::ranges::any_of(waiting_, [&](const Waiting& before) {
    const auto* other = before.message->body.AsWrite();
    return other != nullptr && other->handle == ask->handle &&
           (other->slab != nullptr || before.request.session == write.request.session);
  });
}

Length Writer::wanted(const Waiting& waiting) {
  const auto* lease = waiting.message->body.AsLease();
  return Length(lease != nullptr ? lease->need
                                 : protocol::total_bytes(waiting.message->body.AsWrite()->extents));
}

bool Writer::admit_lease(const Waiting& lease) {
  auto leased = lane_.lease(lease.request.session, *lease.message->body.AsLease());
  if (leased) {
    context_.answer(lease.request, std::move(*leased));
    return true;
  }
  if (leased.error().code == ErrorCode::kNoSpace) return false;
  context_.refuse(lease.request, leased.error());
  return true;
}

bool Writer::admit(const Waiting& write) {
  if (write.message->body.type == wire::Body::Lease) return admit_lease(write);
  const wire::WriteT& ask = *write.message->body.AsWrite();
  auto file = files_.writable(write.request, ask.handle, ask.secret);
  if (!file) {
    context_.refuse(write.request, file.error());
    return true;
  }
  if ((*file)->committing) {
    begin_waiting(write);
    (*file)->after_commit.push_back([this, write] {
      if (must_queue(write) || !admit(write)) wait_for_room(write);
      end_waiting(write);
    });
    return true;
  }
  if (auto held = locks_.check(write.request.session, **file, ask.locks, ask.extents); !held) {
    context_.refuse(write.request, held.error());
    return true;
  }
  if (ask.slab != nullptr) {
    auto txn = files_.transaction(**file);
    if (txn) return admit_filled(write, **file, *txn);
    if (txn.error().code == ErrorCode::kNoSpace) return false;  // the staging log is full
    context_.refuse(write.request, txn.error());
    return true;
  }
  auto slab = context_.parts.hot.reserve(wanted(write));
  if (!slab && slab.error().code == ErrorCode::kNoSpace) return false;
  if (!slab) {
    context_.refuse(write.request, slab.error());
    return true;
  }
  auto txn = files_.transaction(**file);
  if (!txn) {
    context_.parts.hot.cancel(*slab);
    if (txn.error().code == ErrorCode::kNoSpace) return false;  // the staging log is full
    context_.refuse(write.request, txn.error());
    return true;
  }
  files_.write_began(**file);
  fetch(write, *txn, *slab);
  return true;
}

bool Writer::admit_filled(const Waiting& write, OpenFile& file, TxnId txn) {
  const wire::WriteT& ask = *write.message->body.AsWrite();
  auto& hot = context_.parts.hot;
  auto slab = lane_.take(write.request.session, *ask.slab, wanted(write));
  if (!slab && slab.error().code == ErrorCode::kExists) return admit_copy(write, file, txn);
  if (!slab) {
    context_.refuse(write.request, slab.error());
    return true;
  }
  const auto append = [this, message = write.message, txn, slab = *slab, container = file.container,
                       path = file.path]() -> Result<uint64_t> {
    const wire::WriteT& filled = *message->body.AsWrite();
    auto record =
        context_.parts.hot.record(txn, protocol::extents_of(filled.extents), slab, filled.checksums);
    if (!record) return fail(or_removed(context_.parts, container, path, record.error()));
    return record;
  };
  files_.write_began(file);
  if (!hot.appends_at_once()) {
    context_.off_loop(ask.handle, append, [this, write](Result<uint64_t> record) {
      const wire::WriteT& asked = *write.message->body.AsWrite();
      files_.write_ended(HandleId(asked.handle));
      if (!record) lane_.untake(*asked.slab, wanted(write));
      if (!record && record.error().code == ErrorCode::kNoSpace) return wait_for_room(write);
      recorded(write, record);
    });
    return true;
  }
  const auto record = append();
  files_.write_ended(HandleId(ask.handle));
  if (!record) lane_.untake(*ask.slab, wanted(write));
  if (!record && record.error().code == ErrorCode::kNoSpace) return false;
  recorded(write, record);
  return true;
}

// Asked again after a restart: the record may have survived, or be gone because a later one covered it, and
// writes that came after it may have been recorded. A record of the same bytes on top of all is right either
// way, since the writes that came after are asked again after this one. A slab belongs to one record, so it
// is a copy; and what the slab holds by now is for the checksums to say.
bool Writer::admit_copy(const Waiting& write, OpenFile& file, TxnId txn) {
  const wire::WriteT& ask = *write.message->body.AsWrite();
  auto& hot = context_.parts.hot;
  auto slab = hot.reserve(wanted(write));
  if (!slab && slab.error().code == ErrorCode::kNoSpace) return false;
  if (!slab) {
    context_.refuse(write.request, slab.error());
    return true;
  }
  const auto room = hot.bytes(*slab);
  std::memcpy(room.data(), hot.bytes({ask.slab->offset(), wanted(write)}).data(), room.size());
  files_.write_began(file);
  if (!hot.appends_at_once()) {
    record(write, txn, *slab);
    return true;
  }
  Result<uint64_t> outcome =
      fail(ErrorCode::kCorrupt, "what was written before the restart is gone; write it again");
  if (checksums_match(room, ask.checksums)) {
    outcome = hot.write(txn, protocol::extents_of(ask.extents), *slab, ask.checksums);
    if (!outcome) outcome = fail(or_removed(context_.parts, file.container, file.path, outcome.error()));
  } else {
    hot.cancel(*slab);
  }
  files_.write_ended(HandleId(ask.handle));
  if (!outcome && outcome.error().code == ErrorCode::kNoSpace) return false;
  recorded(write, outcome);
  return true;
}

void Writer::wait_for_room(Waiting write) {
  const uint64_t now = context_.parts.transport.now_ms();
  if (now >= write.deadline_ms) return context_.refuse(write.request, full(context_.drain->status().state));
  begin_waiting(write);
  const Length length = wanted(write);
  const uint64_t left_ms = write.deadline_ms - now;
  waiting_.push_back(std::move(write));
  lane_.recall();  // what others were granted and do not use may be all it needs
  context_.drain->want_room(length);
  context_.parts.transport.after_ms(left_ms, [this] { give_up_waiting(); });
}

void Writer::begin_waiting(const Waiting& write) {
  if (const auto* ask = write.message->body.AsWrite()) numbers_.emplace(ask->handle, write.number);
}

void Writer::end_waiting(const Waiting& write) {
  const auto* ask = write.message->body.AsWrite();
  if (ask == nullptr) return;
  const auto at = numbers_.find({ask->handle, write.number});
  SLUICE_ASSERT(at != numbers_.end());
  numbers_.erase(at);
  std::vector<std::function<void()>> due;
  std::erase_if(later_, [&](Later& later) {
    const auto first = numbers_.lower_bound({later.handle, 0});
    const bool waits =
        first != numbers_.end() && first->first == later.handle && first->second <= later.number;
    if (!waits) due.push_back(std::move(later.work));
    return !waits;
  });
  for (const auto& work : due) work();
}

bool Writer::after_waiting(uint64_t handle, std::function<void()> work) {
  const auto first = numbers_.lower_bound({handle, 0});
  if (first == numbers_.end() || first->first != handle) return false;
  later_.push_back({handle, next_number_ - 1, std::move(work)});
  return true;
}

void Writer::give_up_waiting() {
  const uint64_t now = context_.parts.transport.now_ms();
  std::deque<Waiting> over;
  std::erase_if(waiting_, [&](Waiting& waiting) {
    if (waiting.deadline_ms > now) return false;
    over.push_back(std::move(waiting));
    return true;
  });
  for (const Waiting& waiting : over) refuse_full(waiting, context_.drain->status().state);
}

void Writer::refuse_full(const Waiting& write, const std::string& why) {
  context_.refuse(write.request, full(why));
  end_waiting(write);
}

void Writer::drain_progress(const Result<>& outcome) {
  if (!outcome) {
    for (const Waiting& one : std::exchange(waiting_, {})) refuse_full(one, outcome.error().message);
    return;
  }
  while (!waiting_.empty()) {
    const Waiting next = waiting_.front();
    if (!admit(next)) {
      context_.drain->want_room(wanted(next));
      return;
    }
    waiting_.pop_front();
    end_waiting(next);
  }
}

void Writer::fetch(const Waiting& write, TxnId txn, const burst_buffer::Slab& slab) {
  const wire::WriteT& ask = *write.message->body.AsWrite();
  const auto room = context_.parts.hot.bytes(slab);
  if (ask.source == nullptr) {
    std::memcpy(room.data(), ask.inline_.data(), ask.inline_.size());
    return record(write, txn, slab);
  }
  const auto broke_off = [this, write, slab] {
    context_.parts.hot.cancel(slab);
    files_.write_ended(HandleId(write.message->body.AsWrite()->handle));
    context_.interrupted(write.request);
  };
  const auto peer = context_.peer_of(write.request);
  if (!peer) return broke_off();
  const transport::RemoteBuffer source{ask.source->address(), ask.source->key(), ask.source->length()};
  context_.parts.transport.pull(*peer, source, 0, room, [this, write, txn, slab, broke_off](Result<> pulled) {
    if (pulled) return record(write, txn, slab);
    if (lost_connection(pulled.error())) return broke_off();
    context_.parts.hot.cancel(slab);
    files_.write_ended(HandleId(write.message->body.AsWrite()->handle));
    context_.refuse(write.request, pulled.error());
  });
}

void Writer::record(const Waiting& write, TxnId txn, const burst_buffer::Slab& slab) {
  const wire::WriteT& asked = *write.message->body.AsWrite();
  const OpenFile* file = files_.find(HandleId(asked.handle));
  const auto container = file == nullptr ? ContainerId(0) : file->container;
  const std::string path = file == nullptr ? std::string("the file") : file->path;
  // Asked again after the bytes came: an evicted client's write must not land on what another was granted.
  if (file != nullptr) {
    if (auto held = locks_.check(write.request.session, *file, asked.locks, asked.extents); !held) {
      context_.parts.hot.cancel(slab);
      files_.write_ended(HandleId(asked.handle));
      return context_.refuse(write.request, held.error());
    }
  }
  context_.off_loop(
      write.message->body.AsWrite()->handle,
      [this, message = write.message, txn, slab, container, path]() -> Result<uint64_t> {
        const wire::WriteT& ask = *message->body.AsWrite();
        if (!checksums_match(context_.parts.hot.bytes(slab), ask.checksums)) {
          context_.parts.hot.cancel(slab);
          return fail(
              Error(ErrorCode::kCorrupt, "bytes were damaged on their way to the service").mark_retryable());
        }
        auto recorded = context_.parts.hot.write(txn, protocol::extents_of(ask.extents), slab, ask.checksums);
        if (!recorded) return fail(or_removed(context_.parts, container, path, recorded.error()));
        return recorded;
      },
      [this, write](Result<uint64_t> recorded) {
        files_.write_ended(HandleId(write.message->body.AsWrite()->handle));
        if (!recorded && recorded.error().code == ErrorCode::kNoSpace)
          return wait_for_room(write);  // the log is full
        this->recorded(write, recorded);
      });
}

void Writer::recorded(const Waiting& write, const Result<uint64_t>& record) {
  if (!record) return context_.refuse(write.request, record.error());
  ++context_.writes;
  context_.drain->busy();
  context_.bytes_written += wanted(write).value;
  wire::WrittenT written;
  written.record = *record;
  context_.answer(write.request, std::move(written));
}

Error Writer::full(const std::string& why) const {
  const auto usage = context_.parts.hot.usage();
  return {ErrorCode::kNoSpace,
          "the hot tier of " + context_.options.pool_name + " is full (" + std::to_string(usage.bytes_used) +
              " of " + std::to_string(usage.bytes_total) + " bytes used) and the drain made no room (" + why +
              "); free space on the targets, or make a pool with a larger --hot-size"};
}

}  // namespace sluice::engine
