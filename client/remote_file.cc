#include "client/remote_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <sstream>

#include "base/checksum.h"
#include "client/transfer.h"

namespace sluice::client {
namespace {

Extent bounds(const std::vector<Extent>& extents) {
  Extent all = extents.front();
  for (const Extent& extent : extents) {
    all.begin = std::min(all.begin, extent.begin);
    all.end = std::max(all.end, extent.end);
  }
  return all;
}

// One request's bytes in one piece: the caller's own memory when it is contiguous, otherwise a copy.
struct Buffer {
  explicit Buffer(const Batch& batch) {
    if (batch.contiguous()) {
      span = {static_cast<std::byte*>(batch.memory[0].data), batch.bytes};
    } else {
      copy.resize(batch.bytes);
      span = copy;
    }
  }
  void gather(const Batch& batch) {
    if (copy.empty()) return;
    std::byte* to = copy.data();
    for (const Piece& piece : batch.memory) {
      std::memcpy(to, piece.data, piece.bytes);
      to += piece.bytes;
    }
  }
  void scatter(const Batch& batch, uint64_t bytes) const {
    if (copy.empty()) return;
    const std::byte* from = copy.data();
    for (const Piece& piece : batch.memory) {
      const uint64_t now = std::min<uint64_t>(piece.bytes, bytes);
      std::memcpy(piece.data, from, now);
      from += now;
      bytes -= now;
    }
  }

  std::vector<std::byte> copy;
  std::span<std::byte> span;
};

class RemoteFile final : public File, public Recoverable {
 public:
  RemoteFile(std::shared_ptr<void> keep_alive, Core& core, HandleText handle, FileInfo opened, bool owner)
      : keep_alive_(std::move(keep_alive)),
        core_(core),
        handle_(std::move(handle)),
        opened_(std::move(opened)),
        owner_(owner),
        target_{ContainerId(handle_.container), handle_.handle, handle_.secret, opened_.path,
                LockSettings::read(handle_.lock_mode).value_or(LockSettings{})} {}

  void start() {
    (void)core_.wait_for<bool>([this](auto done) {
      core_.session.add(this);
      core_.locks.opened(target_);
      done(true);
    });
  }

  ~RemoteFile() override {
    if (!closed_) (void)close(false);
  }

  Result<uint64_t> write(std::span<const Extent> extents, std::span<const ConstPiece> memory) override {
    std::vector<Piece> pieces;
    pieces.reserve(memory.size());
    for (const auto& piece : memory)
      pieces.push_back({const_cast<void*>(piece.data), piece.bytes});  // only read from
    return transfer(extents, pieces, /*writing=*/true);
  }
  Result<uint64_t> read(std::span<const Extent> extents, std::span<const Piece> memory) override {
    return transfer(extents, memory, /*writing=*/false);
  }

  Result<uint64_t> size() override {
    if (auto open = check_open(); !open) return fail(open.error());
    wire::SizeT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    auto told = core_.ask<wire::SizeIsT>(std::move(ask));
    if (!told) return fail(told.error());
    return told->size;
  }
  Result<> resize(uint64_t size_bytes) override { return set_size(size_bytes, /*only_grow=*/false); }
  Result<> preallocate(uint64_t size_bytes) override { return set_size(size_bytes, /*only_grow=*/true); }

  // A write that returned has reached the service. Whether it is still there is known when the service has
  // heard from us since it was last started: then our recovery is behind us.
  Result<> flush() override {
    if (auto open = check_open(); !open) return open;
    if (auto whole = check_whole(); !whole) return whole;
    auto heard = core_.ask<wire::DoneT>(wire::RenewT{});
    if (!heard) return fail(heard.error());
    return check_open();
  }

  Result<uint64_t> sync() override {
    if (auto open = check_open(); !open) return fail(open.error());
    if (auto whole = check_whole(); !whole) return fail(whole.error());
    wire::SyncT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    auto synced = core_.ask<wire::SyncedT>(std::move(ask));
    if (!synced) return fail(synced.error());
    return synced->epoch;
  }

  Result<> close(bool commit) override {
    if (closed_.exchange(true))
      return fail(ErrorCode::kInvalidArgument, opened_.path + " was closed already");
    wire::CloseT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    const auto whole = check_whole();
    ask.commit = commit && owner_ && whole;
    auto closed = core_.ask<wire::SyncedT>(std::move(ask));
    const auto why_lost = lost_error();
    (void)core_.wait_for<bool>([this](auto done) {
      core_.session.remove(this);
      core_.locks.closed(target_);
      done(true);
    });
    if (why_lost) return fail(*why_lost);
    if (commit && !whole) return whole;
    if (!closed) return fail(closed.error());
    return {};
  }

  SharedHandle share() const override { return handle_.print(); }

  Result<int64_t> fetch_and_add(int64_t delta) override { return counter(wire::CounterOp::Add, delta); }
  Result<int64_t> exchange_counter(int64_t value) override {
    return counter(wire::CounterOp::Exchange, value);
  }

  Result<uint64_t> lock(Extent extent, bool exclusive) override {
    if (auto open = check_open(); !open) return fail(open.error());
    if (!extent.valid() || extent.empty())
      return fail(ErrorCode::kInvalidArgument, "a lock needs a valid extent that is not empty");
    return core_.wait_for<uint64_t>([this, extent, exclusive](std::function<void(Result<uint64_t>)> done) {
      if (const auto why = lost_error()) return done(fail(*why));
      core_.locks.hold(target_.container, extent, exclusive, std::move(done));
    });
  }
  Result<> unlock(uint64_t lock) override {
    auto done = core_.wait_for<bool>([this, lock](std::function<void(Result<bool>)> told) {
      auto released = core_.locks.release(lock);
      if (!released) return told(fail(released.error()));
      told(true);
    });
    if (!done) return fail(done.error());
    return {};
  }

  const FileInfo& opened() const override { return opened_; }
  std::string lock_mode() const override { return target_.settings.name(); }

  std::vector<std::pair<std::string, std::string>> effective_hints() const override {
    return {{"sluice_object_class", opened_.object_class},
            {"sluice_chunk_size", std::to_string(opened_.chunk_bytes)},
            {"striping_unit", std::to_string(opened_.chunk_bytes)},
            {"sluice_lock_mode", target_.settings.name()},
            {"sluice_lock_reason", target_.settings.explain()},
            {"sluice_lockahead_extents", std::to_string(target_.settings.extents)},
            {"sluice_visibility", "commit"}};
  }

  // --- Recoverable: loop thread ---
  wire::RecoverT recovery() const override {
    wire::RecoverT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.container = handle_.container;
    ask.access = static_cast<wire::Access>(handle_.access);
    ask.owner = owner_;
    ask.last_record = last_record_;
    return ask;
  }
  void lost(const Error& why) override {
    const std::lock_guard lock(lost_mutex_);
    lost_ = why;
  }

 private:
  Result<> check_open() const {
    if (closed_) return fail(ErrorCode::kInvalidArgument, opened_.path + " was closed already");
    if (const auto why = lost_error()) return fail(*why);
    return {};
  }
  // A transaction that lacks a write is no state that anybody meant.
  Result<> check_whole() const {
    const std::lock_guard lock(lost_mutex_);
    if (!failed_write_) return {};
    return fail(*failed_write_);
  }
  void note_failed_write(const Error& why) {
    if (why.code == ErrorCode::kAccess) return;  // a handle for reading: there is nothing to commit
    const std::lock_guard lock(lost_mutex_);
    if (failed_write_) return;
    failed_write_ =
        Error(ErrorCode::kAborted, "an earlier write to " + opened_.path +
                                       " failed, so nothing since its last sync is committed; open it again "
                                       "and write again (" +
                                       why.message + ")");
  }
  std::optional<Error> lost_error() const {
    const std::lock_guard lock(lost_mutex_);
    return lost_;
  }

  Result<> set_size(uint64_t size_bytes, bool only_grow) {
    if (auto open = check_open(); !open) return open;
    if (size_bytes > kMaxFileBytes) {
      return fail(ErrorCode::kTooLarge, "a file of " + std::to_string(size_bytes) +
                                            " bytes is beyond the largest, " + std::to_string(kMaxFileBytes));
    }
    wire::ResizeT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.size = size_bytes;
    ask.only_grow = only_grow;
    auto done = core_.ask<wire::DoneT>(std::move(ask));
    if (!done) return fail(done.error());
    return {};
  }

  Result<int64_t> counter(wire::CounterOp op, int64_t value) {
    if (auto open = check_open(); !open) return fail(open.error());
    wire::CounterT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.op = op;
    ask.value = value;
    auto was = core_.ask<wire::CounterWasT>(std::move(ask));
    if (!was) return fail(was.error());
    return was->value;
  }

  // --- transfers ---
  Result<uint64_t> transfer(std::span<const Extent> extents, std::span<const Piece> memory, bool writing) {
    if (auto open = check_open(); !open) return fail(open.error());
    auto plan = plan_batches(extents, memory, {});
    if (!plan) return fail(plan.error());
    if (writing) expect_locks(*plan);
    Transfer transfer(core_);
    std::vector<std::unique_ptr<Buffer>> buffers(plan->size());
    std::vector<std::vector<uint32_t>> checksums(plan->size());
    for (size_t i = 0; i < plan->size(); ++i) {
      const Batch& batch = (*plan)[i];
      transfer.expect(i, batch.bytes);
      if (!transfer.start_next()) break;
      buffers[i] = std::make_unique<Buffer>(batch);
      if (writing) {
        buffers[i]->gather(batch);
        checksums[i] = block_checksums(buffers[i]->span);
      }
      core_.transport.post([this, &transfer, &batch, &sums = checksums[i], &buffer = buffers[i], i, writing] {
        // A copy goes with its batch, so that the window bounds the memory too.
        const auto finished = [&transfer, &batch, &sums, &buffer, i, writing](Result<uint64_t> bytes) {
          if (bytes && !writing) bytes = take_bytes(batch, *buffer, sums, *bytes);
          buffer.reset();
          transfer.finished(i, std::move(bytes));
        };
        if (writing) return send_write(batch, *buffer, sums, kLockAttempts, finished);
        send_read(batch, *buffer, sums, finished);
      });
    }
    transfer.wait_all();
    if (auto error = transfer.error()) {
      error->message += " (" + std::to_string(transfer.bytes()) + " bytes were " +
                        (writing ? "written" : "read") + " before)";
      if (writing) note_failed_write(*error);
      return fail(*error);
    }
    return transfer.bytes();
  }

  // Checks what arrived and puts it where the caller wants it.
  static Result<uint64_t> take_bytes(const Batch& batch, const Buffer& buffer,
                                     const std::vector<uint32_t>& sums, uint64_t bytes) {
    if (!checksums_match(buffer.span.first(bytes), sums)) {
      return fail(Error(ErrorCode::kCorrupt, "bytes were damaged on their way from the service; read again")
                      .mark_retryable());
    }
    buffer.scatter(batch, bytes);
    return bytes;
  }

  using Finished = std::function<void(Result<uint64_t>)>;
  static constexpr int kLockAttempts = 8;  // a lock that is lost more often than this is no accident

  // Loop thread, as are those below. The batch, its buffer and sums live until `finished`.
  void send_write(const Batch& batch, const Buffer& buffer, const std::vector<uint32_t>& sums, int attempts,
                  Finished finished) {
    with_lock(batch, /*write=*/true, finished,
              [this, &batch, &buffer, &sums, attempts, finished](LockUse use) {
                wire::WriteT ask;
                ask.handle = handle_.handle;
                ask.secret = handle_.secret;
                ask.extents = protocol::to_wire(batch.extents);
                ask.checksums = sums;
                ask.lock = use.id;
                std::shared_ptr<transport::ExposedMemory> exposed;
                if (batch.bytes <= protocol::kMaxInlineBytes) {
                  const auto* data = reinterpret_cast<const uint8_t*>(buffer.span.data());
                  ask.inline_.assign(data, data + buffer.span.size());
                } else {
                  auto memory = core_.transport.expose(buffer.span, transport::Access::kRemoteRead);
                  if (!memory) return finished(fail(memory.error()));
                  exposed = std::move(*memory);
                  ask.source = to_wire(exposed->remote());
                }
                core_.session.call(std::move(ask), [this, &batch, &buffer, &sums, attempts, finished, exposed,
                                                    use](Result<Answer> answer) mutable {
                  exposed.reset();
                  use.hold.reset();
                  auto written = answer ? Core::body_of<wire::WrittenT>(*answer)
                                        : Result<wire::WrittenT>(fail(answer.error()));
                  if (written) {
                    last_record_ = std::max(last_record_, written->record);
                    return finished(batch.bytes);
                  }
                  // The lock went with a restart of the service, or to another client after a revoke: take
                  // one again.
                  if (written.error().code == ErrorCode::kConflict && use.id != 0 && attempts > 1) {
                    core_.locks.refused(target_.container, use.id);
                    return send_write(batch, buffer, sums, attempts - 1, finished);
                  }
                  finished(fail(written.error()));
                });
              });
  }

  void send_read(const Batch& batch, Buffer& buffer, std::vector<uint32_t>& sums, Finished finished) {
    with_lock(batch, /*write=*/false, finished, [this, &batch, &buffer, &sums, finished](LockUse use) {
      wire::ReadT ask;
      ask.handle = handle_.handle;
      ask.secret = handle_.secret;
      ask.extents = protocol::to_wire(batch.extents);
      std::shared_ptr<transport::ExposedMemory> exposed;
      if (batch.bytes > protocol::kMaxInlineBytes) {
        auto memory = core_.transport.expose(buffer.span, transport::Access::kRemoteWrite);
        if (!memory) return finished(fail(memory.error()));
        exposed = std::move(*memory);
        ask.destination = to_wire(exposed->remote());
      }
      core_.session.call(
          std::move(ask), [&batch, &buffer, &sums, finished, exposed, use](Result<Answer> answer) mutable {
            exposed.reset();
            use.hold.reset();
            auto read = answer ? Core::body_of<wire::ReadDoneT>(*answer)
                               : Result<wire::ReadDoneT>(fail(answer.error()));
            if (!read) return finished(fail(read.error()));
            if (read->bytes > batch.bytes || read->inline_.size() > batch.bytes) {
              return finished(
                  fail(ErrorCode::kProtocol, "the service answered with more bytes than were asked for"));
            }
            if (!read->inline_.empty())
              std::memcpy(buffer.span.data(), read->inline_.data(), read->inline_.size());
            sums = std::move(read->checksums);
            finished(read->bytes);
          });
    });
  }

  // So that the locks of the later parts are there when it is their turn.
  void expect_locks(const std::vector<Batch>& plan) {
    if (!target_.settings.takes_locks() || plan.size() < 2) return;
    std::vector<Extent> writes;
    for (const Batch& batch : plan) writes.push_back(bounds(batch.extents));
    core_.transport.post(
        [this, writes = std::move(writes)] { core_.locks.expect(target_.container, writes); });
  }

  void with_lock(const Batch& batch, bool write, const Finished& finished, std::function<void(LockUse)> go) {
    if (const auto why = lost_error()) return finished(fail(*why));
    if (!target_.settings.takes_locks()) return go({});
    core_.locks.acquire(target_.container, bounds(batch.extents), write,
                        [finished, go = std::move(go)](Result<LockUse> use) {
                          if (!use) return finished(fail(use.error()));
                          go(std::move(*use));
                        });
  }

  static std::unique_ptr<wire::Buffer> to_wire(const transport::RemoteBuffer& buffer) {
    return std::make_unique<wire::Buffer>(buffer.address, buffer.key, buffer.length);
  }

  std::shared_ptr<void> keep_alive_;
  Core& core_;
  const HandleText handle_;
  const FileInfo opened_;
  const bool owner_;
  const LockTarget target_;
  std::atomic<bool> closed_{false};
  uint64_t last_record_ = 0;  // newest acknowledged; loop thread
  mutable std::mutex lost_mutex_;
  std::optional<Error> lost_;          // why the file cannot go on
  std::optional<Error> failed_write_;  // why its transaction cannot commit
};

}  // namespace

std::string HandleText::print() const {
  std::ostringstream text;
  text << "sluice-handle 1 " << handle << ' ' << secret << ' ' << container << ' ' << static_cast<int>(access)
       << ' ' << lock_mode << ' ' << unavailable_after_ms << ' ' << pool;
  return text.str();
}

Result<HandleText> HandleText::parse(const std::string& text) {
  std::istringstream in(text);
  std::string magic;
  int version = 0;
  int access = -1;
  HandleText handle;
  in >> magic >> version >> handle.handle >> handle.secret >> handle.container >> access >>
      handle.lock_mode >> handle.unavailable_after_ms;
  in.get();  // one space; the rest is the pool's path, which may contain more
  std::getline(in, handle.pool, '\0');
  if (text.size() > kMaxHandleBytes || !in || !LockSettings::read(handle.lock_mode) ||
      magic != "sluice-handle" || version != 1 || access < 0 || access > 2 || handle.pool.empty()) {
    return fail(ErrorCode::kInvalidArgument, "this is not the handle of an open file");
  }
  handle.access = static_cast<AccessMode>(access);
  return handle;
}

FileInfo to_file_info(const wire::FileInfoT& told) {
  FileInfo info;
  info.path = told.path;
  info.uid = told.uid;
  info.gid = told.gid;
  info.mode = told.mode;
  info.size_bytes = told.size;
  info.object_class = told.object_class;
  info.chunk_bytes = told.chunk;
  info.committed_epoch = told.committed;
  info.persisted_epoch = told.published;
  info.hot_bytes = told.hot_bytes;
  info.drained_bytes = told.drained;
  info.created_s = told.created;
  info.modified_s = told.modified;
  return info;
}

std::unique_ptr<File> make_remote_file(std::shared_ptr<void> keep_alive, Core& core, HandleText handle,
                                       FileInfo opened, bool owner) {
  auto file =
      std::make_unique<RemoteFile>(std::move(keep_alive), core, std::move(handle), std::move(opened), owner);
  file->start();
  return file;
}

}  // namespace sluice::client
