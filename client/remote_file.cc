#include "client/remote_file.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>

#include "base/checksum.h"
#include "base/hints.h"
#include "base/log.h"
#include "client/batch_buffer.h"
#include "client/file_faults.h"
#include "client/file_stats.h"
#include "client/read_ahead.h"
#include "client/transfer.h"
#include "client/write_behind.h"

namespace sluice::client {
namespace {

class RemoteFile final : public File, public Recoverable {
 public:
  RemoteFile(HandleText handle, bool owner, uint32_t asked_factor, Reach reach)
      : reach_(std::move(reach)),
        handle_(std::move(handle)),
        opened_(handle_.info),
        owner_(owner),
        asked_factor_(asked_factor),
        target_{ContainerId(handle_.container), handle_.handle, handle_.secret, opened_.path,
                LockSettings::read(handle_.lock_mode).value_or(LockSettings{}),
                [this](const Extent& extent, std::function<void()> done) {
                  behind_.flush(extent, std::move(done));
                }},
        behind_(counters_, target_.container, opened_.chunk_bytes, links()) {}

  // What comes before the first access: an owner is known to the service already, a sharer makes itself
  // known.
  Result<> join() {
    if (joined_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(join_mutex_);
    if (joined_) return {};
    auto core = reach_();
    if (!core) return fail(core.error());
    core_ = std::move(*core);
    behind_.join(*core_);
    auto known = core_->wait_for<bool>([this](std::function<void(Result<bool>)> done) {
      if (owner_) return done(take_part());
      wire::AttachT ask;
      ask.handle = handle_.handle;
      ask.secret = handle_.secret;
      counters_.messages.add();
      core_->session.call(std::move(ask), [this, done = std::move(done)](Result<Answer> answer) {
        auto attached =
            answer ? Core::body_of<wire::DoneT>(*answer) : Result<wire::DoneT>(fail(answer.error()));
        if (!attached) return done(fail(attached.error()));
        done(take_part());
      });
    });
    if (!known) return fail(known.error());
    joined_.store(true, std::memory_order_release);
    return {};
  }

  ~RemoteFile() override {
    if (!closed_) (void)close(false);
  }

  Result<uint64_t> write(std::span<const Extent> extents, std::span<const ConstPiece> memory) override {
    std::vector<Piece> pieces;
    pieces.reserve(memory.size());
    for (const auto& piece : memory)
      pieces.push_back({const_cast<void*>(piece.data), piece.bytes});  // only read from
    counters_.writes.add();
    return transfer(extents, pieces, /*writing=*/true);
  }
  Result<uint64_t> read(std::span<const Extent> extents, std::span<const Piece> memory) override {
    counters_.reads.add();
    return transfer(extents, memory, /*writing=*/false);
  }

  Result<uint64_t> size() override {
    if (auto open = ready(); !open) return fail(open.error());
    auto told = ask_size(std::nullopt);
    // Other sharers may have gathered writes beyond.
    return told && gathers() ? ask_size(*told) : told;
  }
  Result<> resize(uint64_t size_bytes) override { return set_size(size_bytes, /*only_grow=*/false); }
  Result<> preallocate(uint64_t size_bytes) override { return set_size(size_bytes, /*only_grow=*/true); }

  // When every write was answered, whether they are still there is known when the service has heard from us
  // since it was last started: then our recovery is behind us.
  Result<> flush() override {
    if (auto open = check_open(); !open) return open;
    (void)behind_.settle();
    if (auto whole = faults_.check_whole(); !whole) return whole;
    if (!changed_) return {};
    auto heard = ask_service<wire::DoneT>(wire::RenewT{});
    if (!heard) return fail(heard.error());
    return check_open();
  }

  Result<uint64_t> sync() override {
    if (auto open = check_open(); !open) return fail(open.error());
    (void)behind_.settle();
    if (auto whole = faults_.check_whole(); !whole) return fail(whole.error());
    if (auto known = join(); !known) return fail(known.error());
    wire::SyncT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    auto synced = ask_service<wire::SyncedT>(std::move(ask));
    if (!synced) return fail(synced.error());
    return synced->epoch;
  }

  Result<> close(bool commit) override {
    if (closed_.exchange(true))
      return fail(ErrorCode::kInvalidArgument, opened_.path + " was closed already");
    (void)behind_.settle();
    const auto whole = faults_.check_whole();
    const auto ended = owner_ ? end_handle(commit && whole) : Result<>();
    const auto why_lost = faults_.why_lost();
    leave();
    if (why_lost) return fail(*why_lost);
    if (commit && !whole) return whole;
    return ended;
  }

  SharedHandle share() const override { return handle_.print(); }

  Result<uint64_t> shape(uint64_t chunk_bytes, const std::string& reason) override {
    if (auto open = ready(); !open) return fail(open.error());
    wire::ShapeT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.chunk = chunk_bytes;
    ask.reason = reason.substr(0, protocol::kMaxReasonBytes);
    auto shaped = ask_service<wire::ShapedT>(std::move(ask));
    if (!shaped) return fail(shaped.error());
    chunk_bytes_ = shaped->chunk;
    return shaped->chunk;
  }

  Result<int64_t> fetch_and_add(int64_t delta) override { return counter(wire::CounterOp::Add, delta); }
  Result<int64_t> exchange_counter(int64_t value) override {
    return counter(wire::CounterOp::Exchange, value);
  }

  Result<uint64_t> lock(Extent extent, bool exclusive) override {
    if (auto open = check_open(); !open) return fail(open.error());
    if (auto settled = behind_.settle(); !settled) return fail(settled.error());
    if (!extent.valid() || extent.empty())
      return fail(ErrorCode::kInvalidArgument, "a lock needs a valid extent that is not empty");
    if (auto known = join(); !known) return fail(known.error());
    return core_->wait_for<uint64_t>([this, extent, exclusive](std::function<void(Result<uint64_t>)> done) {
      if (const auto why = faults_.why_lost()) return done(fail(*why));
      core_->locks.hold(target_.container, extent, exclusive, std::move(done));
    });
  }
  Result<> unlock(uint64_t lock) override {
    if (auto known = join(); !known) return known;
    const auto settled = behind_.settle();  // whoever gets the lock next sees what was written under it
    auto done = core_->wait_for<bool>([this, lock](std::function<void(Result<bool>)> told) {
      auto released = core_->locks.release(lock);
      if (!released) return told(fail(released.error()));
      told(true);
    });
    if (!done) return fail(done.error());
    return settled;
  }

  const FileInfo& opened() const override { return opened_; }
  std::string lock_mode() const override { return target_.settings.name(); }

  std::vector<std::pair<std::string, std::string>> effective_hints() const override {
    auto hints = with_aliases({{"sluice_object_class", opened_.object_class},
                               {"sluice_chunk_size", std::to_string(chunk_bytes_)},
                               {"sluice_lock_mode", target_.settings.name()},
                               {"sluice_lockahead_extents", std::to_string(target_.settings.extents)},
                               {"sluice_visibility", "commit"},
                               {"sluice_drain", handle_.drain},
                               {"sluice_lock_reason", target_.settings.explain()}});
    if (asked_factor_ != 0) hints.emplace_back("striping_factor", std::to_string(opened_.targets));
    return hints;
  }

  void count_plan(bool two_phase, uint64_t exchanged_bytes) override {
    (two_phase ? counters_.two_phase : counters_.direct).add();
    if (exchanged_bytes != 0) counters_.exchanged_bytes.add(exchanged_bytes);
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
    behind_.lost();
    faults_.lost(why);
  }
  void room_is_wanted() override {
    behind_.send_gathered(/*hurried=*/true);
    release_pins(/*all=*/true);
  }

 private:
  // Loop thread.
  bool take_part() {
    core_->session.add(this);
    core_->locks.opened(target_);
    return true;
  }

  // The service ends the handle for all who share it.
  Result<> end_handle(bool commit) {
    wire::CloseT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.commit = commit;
    auto closed = ask_service<wire::SyncedT>(std::move(ask));
    if (!closed) return fail(closed.error());
    return {};
  }

  void leave() {
    std::optional<LockStats> locks;
    if (joined_) {
      (void)core_->wait_for<bool>([this, &locks](auto done) {
        release_pins(/*all=*/true);
        *alive_ = false;
        core_->give_back(true);
        core_->session.remove(this);
        locks = core_->locks.closed(target_);
        done(true);
      });
    }
    tell_stats_if_asked({opened_.path, target_.settings, counters_, std::move(locks)});
  }

  template <class T, class Question>
  Result<T> ask_service(Question question, WaitTally FileCounters::*waits = &FileCounters::for_answers) {
    const WaitTimer timer(counters_.*waits);
    counters_.messages.add();
    auto answer = core_->ask<T>(std::move(question));
    if (!answer) return fail(faults_.explain(answer.error()));
    return answer;
  }

  Result<> check_open() const {
    if (closed_) return fail(ErrorCode::kInvalidArgument, opened_.path + " was closed already");
    if (const auto why = faults_.why_lost()) return fail(*why);
    return {};
  }
  // For a request other than a transfer: it comes after the writes that have returned.
  Result<> ready() {
    if (auto open = check_open(); !open) return open;
    if (auto known = join(); !known) return known;
    return behind_.settle();
  }

  Result<uint64_t> ask_size(std::optional<uint64_t> look_beyond) {
    wire::SizeT ask;
    ask.look = look_beyond.has_value();
    ask.beyond = look_beyond.value_or(0);
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    auto told = ask_service<wire::SizeIsT>(std::move(ask));
    if (!told) return fail(told.error());
    return told->size;
  }

  Result<> set_size(uint64_t size_bytes, bool only_grow) {
    if (auto open = ready(); !open) return open;
    if (size_bytes > kMaxFileBytes) {
      return fail(ErrorCode::kTooLarge, "a file of " + std::to_string(size_bytes) +
                                            " bytes is beyond the largest, " + std::to_string(kMaxFileBytes));
    }
    changed_ = true;
    wire::ResizeT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.size = size_bytes;
    ask.only_grow = only_grow;
    auto done = ask_service<wire::DoneT>(std::move(ask));
    if (!done) return fail(done.error());
    return {};
  }

  Result<int64_t> counter(wire::CounterOp op, int64_t value) {
    if (auto open = ready(); !open) return fail(open.error());
    wire::CounterT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.op = op;
    ask.value = value;
    auto was = ask_service<wire::CounterWasT>(std::move(ask));
    if (!was) return fail(was.error());
    return was->value;
  }

  // --- transfers ---
  Result<uint64_t> transfer(std::span<const Extent> extents, std::span<const Piece> memory, bool writing) {
    if (auto open = check_open(); !open) return fail(open.error());
    auto plan = plan_batches(extents, memory, {});
    if (!plan) return fail(plan.error());
    if (plan->empty() && !joined_) return uint64_t{0};
    if (auto known = join(); !known) {
      if (writing) faults_.write_failed(known.error());
      return fail(known.error());
    }
    if (writing) changed_ = true;
    if (writing) return write_plan(std::move(*plan));
    if (auto settled = settle_before_read(extents, plan->empty()); !settled) return fail(settled.error());
    if (const auto bytes = read_told(*plan)) return *bytes;
    auto bytes = read_plan(*plan);
    if (!bytes || !gathers() || *bytes == total_bytes(extents)) return bytes;
    // The end of the file may be farther on than the service knows.
    const auto end = size();
    if (!end) return fail(end.error());
    return *end > place_of(extents, *bytes) ? read_plan(*plan) : bytes;
  }

  // What this process wrote goes before what it reads. Its locks let in all of its own files.
  Result<> settle_before_read(std::span<const Extent> extents, bool of_nothing) {
    if (!gathers() || of_nothing) return behind_.settle();
    auto flushed = core_->wait_for<bool>([&](std::function<void(Result<bool>)> done) {
      core_->locks.flush(target_.container, bounds(extents), [done = std::move(done)] { done(true); });
    });
    if (!flushed) return fail(flushed.error());
    return behind_.take_error();
  }

  Result<uint64_t> read_plan(const std::vector<Batch>& plan) {
    // A commit by others between two requests of one read would mix versions.
    for (int attempts = kReadAttempts;; --attempts) {
      std::set<uint64_t> versions;
      auto bytes = carry_out(plan, /*writing=*/false, versions);
      if (!bytes || versions.size() <= 1 || attempts <= 1) return bytes;
    }
  }

  Result<uint64_t> write_plan(std::vector<Batch> plan) {
    expect_locks(plan);
    if (may_gather(plan)) return gather(plan.front());
    if (may_write_behind()) return write_behind(std::move(plan));
    if (auto settled = behind_.settle(); !settled) return fail(settled.error());
    std::set<uint64_t> versions;
    return carry_out(plan, /*writing=*/true, versions);
  }

  // `versions`: those that the requests of a read met.
  Result<uint64_t> carry_out(const std::vector<Batch>& plan, bool writing, std::set<uint64_t>& versions) {
    Transfer transfer(*core_, counters_.for_answers);
    std::vector<std::unique_ptr<BatchBuffer>> buffers(plan.size());
    std::vector<std::vector<uint32_t>> checksums(plan.size());
    for (size_t i = 0; i < plan.size(); ++i) {
      const Batch& batch = plan[i];
      transfer.expect(i, batch.bytes);
      if (!transfer.start_next()) break;
      if (auto ready = writing ? prepare_write(batch, buffers[i], checksums[i])
                               : prepare_read(batch, buffers[i], /*last=*/i + 1 == plan.size());
          !ready) {
        transfer.finished(i, fail(ready.error()));
        break;
      }
      core_->transport.post(
          [this, &transfer, &batch, &sums = checksums[i], &buffer = buffers[i], i, writing, &versions] {
            // A copy goes with its batch, so that the window bounds the memory too.
            const auto finished = [this, &transfer, &batch, &sums, &buffer, i, writing,
                                   &versions](Result<uint64_t> bytes) {
              if (bytes && !writing && !buffer->placed) bytes = buffer->deliver(batch, sums, *bytes);
              if (buffer->room) {
                core_->lane.settle(*buffer->room);
                core_->give_back(false);
              }
              if (!writing && bytes && *bytes > 0) versions.insert(buffer->version);
              buffer.reset();
              transfer.finished(i, std::move(bytes));
            };
            if (writing) return send_write(batch, *buffer, sums, kLockAttempts, finished);
            send_read(batch, *buffer, sums, kReadAttempts, finished);
          });
    }
    transfer.wait_all();
    if (auto error = transfer.error()) {
      error = faults_.explain(*error);
      error->message += " (" + std::to_string(transfer.bytes()) + " bytes were " +
                        (writing ? "written" : "read") + " before)";
      if (writing) faults_.write_failed(*error);
      return fail(*error);
    }
    return transfer.bytes();
  }

  // --- writing behind the caller's back (client/write_behind.h) ---
  WriteBehind::Links links() {
    return {[this](const WriteBehind::Write& write, bool hurried, const Finished& answered) {
              say_write({write.batch, write.buffer, write.sums, write.locks, hurried}, answered);
            },
            [this](uint64_t bytes) { return room_to_gather(bytes); },
            [this](const Error& why) { faults_.write_failed(why); }};
  }

  // Whether writes may be gathered: under locks that keep out whoever would have to see them. Members of a
  // group are let in.
  bool gathers() const {
    return target_.settings.takes_locks() && target_.settings.policy != lockmgr::LockPolicy::kGroup;
  }
  bool may_gather(const std::vector<Batch>& plan) const {
    return gathers() && plan.size() == 1 && plan.front().bytes <= behind_.most_gathered() &&
           handle_.access != AccessMode::kReadOnly;
  }
  // The bytes are in the hot tier, in a grant that outlives the service; that they are there is said, and the
  // caller need not wait until it was heard. When the service is lost meanwhile, it is said again. Who must see
  // them waits for the lock, or is heard later by a service that records them at once.
  bool may_write_behind() const {
    return core_->lane.usable() && (core_->lane.records_at_once() || gathers()) &&
           handle_.access != AccessMode::kReadOnly;
  }

  Result<uint64_t> gather(const Batch& batch) {
    const uint64_t leased_until_ms = core_->session.leased_until_ms();
    if (auto told = behind_.take_error(); !told) return fail(told.error());
    auto use = take_lock(bounds(batch.extents), /*write=*/true);
    Result<> gathered = use ? behind_.gather(batch, std::move(*use)) : Result<>(fail(use.error()));
    if (!gathered) {
      faults_.write_failed(gathered.error());
      return fail(gathered.error());
    }
    return settle_when_away(batch.bytes, leased_until_ms);
  }

  Result<uint64_t> write_behind(std::vector<Batch> plan) {
    const uint64_t leased_until_ms = core_->session.leased_until_ms();
    if (auto told = behind_.take_error(); !told) return fail(told.error());
    uint64_t bytes = 0;
    for (Batch& batch : plan) {
      bytes += batch.bytes;
      if (auto sent = send_behind(std::move(batch)); !sent) {
        faults_.write_failed(sent.error());
        (void)behind_.settle();
        return fail(sent.error());
      }
      core_->lane.note_change(target_.container);  // after it was sent: who is told later is told of it
    }
    return settle_when_away(bytes, leased_until_ms);
  }

  Result<> send_behind(Batch batch) {
    // The lock first: nobody keeps room while it waits for a lock whose holder may wait for room.
    auto use = take_lock(bounds(batch.extents), /*write=*/true);
    if (!use) return fail(use.error());
    auto room = find_room(batch.bytes);
    if (!room) {
      (void)core_->on_loop([&] { use->hold.reset(); });
      return fail(room.error());
    }
    auto write = std::make_shared<WriteBehind::Write>();
    write->sums = Lane::fill(*room, batch);
    write->buffer = BatchBuffer(std::move(*room));
    write->use = std::move(*use);
    if (write->use.id != 0) write->locks = {write->use.id};
    write->batch = std::move(batch);
    return behind_.send(std::move(write));
  }

  // While the service is away, or may have given this process up, nothing is done behind the caller's back.
  // `leased_until_ms`: as it was before the write, since a process that was stopped in the middle may have
  // another session by now.
  Result<uint64_t> settle_when_away(uint64_t bytes, uint64_t leased_until_ms) {
    if (core_->session.connected() && core_->transport.now_ms() < leased_until_ms) return bytes;
    if (auto settled = behind_.settle(); !settled) return fail(settled.error());
    if (auto open = check_open(); !open) return fail(open.error());
    return bytes;
  }

  Result<BatchBuffer> room_to_gather(uint64_t bytes) {
    if (!core_->lane.usable()) return BatchBuffer(bytes);
    auto room = find_room(bytes);
    if (!room && room.error().code == ErrorCode::kUnsupported) return BatchBuffer(bytes);
    if (!room) return fail(room.error());
    room->mapping->make_present(room->offset, room->bytes);
    return BatchBuffer(std::move(*room));
  }

  // Waits for it.
  Result<LockUse> take_lock(const Extent& extent, bool write) {
    return core_->wait_for<LockUse>([=, this](std::function<void(Result<LockUse>)> done) {
      with_lock(extent, write, std::move(done));
    });
  }

  // --- caller's thread ---
  Result<> prepare_write(const Batch& batch, std::unique_ptr<BatchBuffer>& buffer,
                         std::vector<uint32_t>& sums) {
    if (core_->lane.usable()) {
      auto room = find_room(batch.bytes);
      if (room) {
        buffer = std::make_unique<BatchBuffer>(batch, /*in_place=*/true);
        buffer->room = std::move(*room);
        sums = Lane::fill(*buffer->room, batch);
        return {};
      }
      // The service came back somewhere else: then by the other lane.
      if (room.error().code != ErrorCode::kUnsupported) return fail(room.error());
    }
    buffer = std::make_unique<BatchBuffer>(batch, /*in_place=*/false);
    buffer->gather(batch);
    sums = block_checksums(buffer->span);
    return {};
  }

  Result<> prepare_read(const Batch& batch, std::unique_ptr<BatchBuffer>& buffer, bool last) {
    buffer = std::make_unique<BatchBuffer>(batch, /*in_place=*/core_->lane.usable() && !cold_);
    if (last && core_->lane.usable() && batch.extents.size() == 1) buffer->ahead = ahead_.wanted(batch.extents.front());
    return {};
  }

  // Out of the hot tier, without asking. Pins hold as long as the session does, so the lease that counts is
  // that of before: a process that was stopped in the middle may have another one by now.
  // Under locks it takes one as any read: who gathered writes there has sent them then, and what was told
  // does not stand any more.
  std::optional<uint64_t> read_told(std::span<const Batch> plan) {
    if (!core_->lane.usable() || !ahead_.has(plan)) return std::nullopt;
    std::optional<LockUse> use;
    if (target_.settings.takes_locks()) {
      if (plan.size() != 1) return std::nullopt;
      auto taken = take_lock(bounds(plan.front().extents), /*write=*/false);
      if (!taken) return std::nullopt;  // the request that follows says why
      use = std::move(*taken);
    }
    const uint64_t leased_until_ms = core_->session.leased_until_ms();
    const auto bytes = ahead_.serve(plan, core_->transport.now_ms());
    if (use) (void)core_->on_loop([&] { use->hold.reset(); });
    if (!bytes || core_->transport.now_ms() >= leased_until_ms) return std::nullopt;
    counters_.read_told.add(*bytes);
    return bytes;
  }

  Result<Lane::Room> find_room(uint64_t bytes) {
    if (auto room = core_->lane.take(bytes)) return std::move(*room);
    wire::LeaseT ask;
    ask.need = bytes;
    ask.want = std::max(bytes, core_->lane.wanted_bytes());
    auto leased = ask_service<wire::LeasedT>(std::move(ask), &FileCounters::for_room);
    if (!leased) return fail(leased.error());
    if (auto room = core_->lane.add(*leased, bytes)) return std::move(*room);
    return fail(ErrorCode::kUnsupported, "the service granted room that is not mapped here");
  }

  using Finished = std::function<void(Result<uint64_t>)>;
  static constexpr int kReadAttempts = 8;
  static constexpr int kLockAttempts = 8;  // a lock that is lost more often than this is no accident

  // Loop thread, as are those below. The batch, its buffer and sums live until `finished`.
  void send_write(const Batch& batch, const BatchBuffer& buffer, const std::vector<uint32_t>& sums,
                  int attempts, Finished finished) {
    with_lock(bounds(batch.extents), /*write=*/true, [=, this, &batch, &buffer, &sums](Result<LockUse> use) {
      if (!use) return finished(fail(use.error()));
      const uint64_t lock = use->id;
      const auto locks = lock == 0 ? std::vector<uint64_t>() : std::vector<uint64_t>{lock};
      const auto answered = [=, this, &batch, &buffer, &sums, hold = use->hold](Result<uint64_t> done) mutable {
        hold.reset();
        // The lock went with a restart of the service, or to another client after a revoke: take one again.
        const bool lost_lock = !done && done.error().code == ErrorCode::kConflict && lock != 0;
        if (!lost_lock || attempts <= 1) return finished(std::move(done));
        core_->locks.refused(target_.container, lock);
        send_write(batch, buffer, sums, attempts - 1, finished);
      };
      say_write({batch, buffer, sums, locks, /*hurried=*/true}, answered);
    });
  }

  struct WriteParts {
    const Batch& batch;
    const BatchBuffer& buffer;
    const std::vector<uint32_t>& sums;
    const std::vector<uint64_t>& locks;
    bool hurried;  // somebody waits for the answer
  };
  void say_write(const WriteParts& parts, Finished finished) {
    if (const auto why = faults_.why_lost()) return finished(fail(*why));
    wire::WriteT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.extents = protocol::to_wire(parts.batch.extents);
    ask.checksums = parts.sums;
    ask.locks = parts.locks;
    std::shared_ptr<transport::ExposedMemory> exposed;
    if (parts.buffer.room) {
      ask.slab = std::make_unique<wire::Slab>(parts.buffer.room->grant, parts.buffer.room->offset);
    } else if (parts.batch.bytes <= protocol::kMaxInlineBytes) {
      const auto* data = reinterpret_cast<const uint8_t*>(parts.buffer.span.data());
      ask.inline_.assign(data, data + parts.buffer.span.size());
    } else {
      auto memory = core_->transport.expose(parts.buffer.span, transport::Access::kRemoteRead);
      if (!memory) return finished(fail(memory.error()));
      exposed = std::move(*memory);
      ask.source = to_wire(exposed->remote());
    }
    Tally& way = ask.slab     ? counters_.written_slab
                 : ask.source ? counters_.written_remote
                              : counters_.written_inline;
    counters_.messages.add();
    const auto heard = [this, bytes = parts.batch.bytes, finished = std::move(finished), exposed,
                        &way](Result<Answer> answer) mutable {
      exposed.reset();
      auto written = answer ? Core::body_of<wire::WrittenT>(*answer)
                            : Result<wire::WrittenT>(fail(answer.error()));
      if (!written) return finished(fail(faults_.explain(written.error())));
      last_record_ = std::max(last_record_, written->record);
      way.add(bytes);
      finished(bytes);
    };
    core_->session.call(std::move(ask), heard, parts.hurried);
  }

  void send_read(const Batch& batch, BatchBuffer& buffer, std::vector<uint32_t>& sums, int attempts,
                 Finished finished) {
    with_lock(bounds(batch.extents), /*write=*/false, [=, this, &batch, &buffer, &sums](Result<LockUse> use) {
      if (!use) return finished(fail(use.error()));
      ask_read(batch, buffer, sums, attempts, *use, finished);
    });
  }

  void ask_read(const Batch& batch, BatchBuffer& buffer, std::vector<uint32_t>& sums, int attempts,
                LockUse use, Finished finished) {
    wire::ReadT ask;
    ask.handle = handle_.handle;
    ask.secret = handle_.secret;
    ask.extents = protocol::to_wire(batch.extents);
    ask.mapped = core_->lane.usable();
    if (ask.mapped) ask.ahead = buffer.ahead;
    ask.release = take_spent_pins(/*all=*/false);
    const ChangeMark mark = core_->lane.mark_changes(target_.container);
    // Without the lane, the buffer is there; with it, it may not have been needed.
    if (buffer.span.empty() && !ask.mapped) buffer = BatchBuffer(batch, /*in_place=*/false);
    std::shared_ptr<transport::ExposedMemory> exposed;
    if (batch.bytes > protocol::kMaxInlineBytes && !buffer.span.empty()) {
      auto memory = core_->transport.expose(buffer.span, transport::Access::kRemoteWrite);
      if (!memory) return finished(fail(memory.error()));
      exposed = std::move(*memory);
      ask.destination = to_wire(exposed->remote());
    }
    counters_.messages.add();
    core_->session.call(std::move(ask), [=, this, &batch, &buffer, &sums](Result<Answer> answer) mutable {
      exposed.reset();
      auto read =
          answer ? Core::body_of<wire::ReadDoneT>(*answer) : Result<wire::ReadDoneT>(fail(answer.error()));
      auto bytes =
          read ? take_answer(batch, buffer, sums, *read, mark) : Result<uint64_t>(fail(read.error()));
      if (!bytes && attempts > 1 && bytes.error().code == ErrorCode::kUnsupported && buffer.span.empty()) {
        // Part of it has left the hot tier: the service gathers it, under the same lock.
        cold_ = true;
        buffer = BatchBuffer(batch, /*in_place=*/false);
        return ask_read(batch, buffer, sums, attempts - 1, use, finished);
      }
      use.hold.reset();
      if (!bytes && attempts > 1 && bytes.error().code == ErrorCode::kConflict)
        return send_read(batch, buffer, sums, attempts - 1, finished);
      finished(std::move(bytes));
    });
  }

  Result<uint64_t> take_answer(const Batch& batch, BatchBuffer& buffer, std::vector<uint32_t>& sums,
                               wire::ReadDoneT& read, const ChangeMark& mark) {
    if (read.bytes > batch.bytes || read.inline_.size() > batch.bytes)
      return fail(ErrorCode::kProtocol, "the service answered with more bytes than were asked for");
    const uint64_t version = read.version;
    Tally& way = read.pin != 0           ? counters_.read_mapped
                 : !read.inline_.empty() ? counters_.read_inline
                                         : counters_.read_remote;
    auto taken = read.pin != 0 ? take_told(batch, buffer, read, mark) : take_moved(batch, buffer, sums, read);
    buffer.version = version;
    if (taken && *taken > 0) way.add(*taken);
    return taken;
  }

  static Result<uint64_t> take_moved(const Batch& batch, BatchBuffer& buffer, std::vector<uint32_t>& sums,
                                     wire::ReadDoneT& read) {
    if (!read.inline_.empty()) {
      if (buffer.span.empty()) buffer = BatchBuffer(batch, /*in_place=*/false);
      std::memcpy(buffer.span.data(), read.inline_.data(), read.inline_.size());
    }
    if (read.bytes > buffer.span.size())
      return fail(ErrorCode::kProtocol, "the service answered without the bytes that were asked for");
    sums = std::move(read.checksums);
    return read.bytes;
  }

  Result<uint64_t> take_told(const Batch& batch, BatchBuffer& buffer, wire::ReadDoneT& read,
                             const ChangeMark& mark) {
    spent_pins_.push_back(read.pin);
    look_at_pins_later();
    const auto told = core_->lane.told(std::move(read), mark);
    if (!told) return fail(ErrorCode::kInternal, "the hot tier is not mapped");
    MemoryCursor memory(batch.memory);
    auto copied = told->copy_out(0, told->bytes(), memory);
    if (copied && core_->transport.now_ms() >= core_->session.leased_until_ms())
      copied = fail(Error(ErrorCode::kConflict, "this process was silent for too long").mark_retryable());
    if (copied && told->ahead() > 0) {
      spent_pins_.pop_back();
      ahead_.keep(told, batch.extents.front(), core_->transport.now_ms());
    }
    if (!copied) return fail(copied.error());
    cold_ = false;
    buffer.placed = true;
    return told->bytes();
  }

  // Pins are given back with the next read; when none comes, by themselves.
  std::vector<uint64_t> take_spent_pins(bool all) {
    std::vector<uint64_t> pins = ahead_.take_spent(core_->transport.now_ms(), all);
    pins.insert(pins.end(), spent_pins_.begin(), spent_pins_.end());
    spent_pins_.clear();
    return pins;
  }
  void look_at_pins_later() {
    if (std::exchange(looks_at_pins_, true)) return;
    core_->transport.after_ms(ReadAhead::kIdleMs, [this, alive = alive_] {
      if (!*alive) return;
      looks_at_pins_ = false;
      release_pins(/*all=*/false);
      if (ahead_.holds_pins() || !spent_pins_.empty()) look_at_pins_later();
    });
  }
  void release_pins(bool all) {
    if (!core_->session.ready_now()) return;  // they stay, for the next time
    wire::ReleaseT release;
    release.pins = take_spent_pins(all);
    if (release.pins.empty()) return;
    protocol::Body body;
    body.Set(std::move(release));
    counters_.messages.add();
    core_->session.tell(std::move(body));
  }

  // So that the locks of the later parts are there when it is their turn.
  void expect_locks(const std::vector<Batch>& plan) {
    if (!target_.settings.takes_locks() || plan.size() < 2) return;
    std::vector<Extent> writes;
    for (const Batch& batch : plan) writes.push_back(bounds(batch.extents));
    (void)core_->on_loop([&] { core_->locks.expect(target_.container, writes); });
  }

  void with_lock(const Extent& extent, bool write, std::function<void(Result<LockUse>)> go) {
    if (const auto why = faults_.why_lost()) return go(fail(*why));
    if (!target_.settings.takes_locks()) return go(LockUse{});
    core_->locks.acquire(target_.container, extent, write, std::move(go));
  }

  static std::unique_ptr<wire::Buffer> to_wire(const transport::RemoteBuffer& buffer) {
    return std::make_unique<wire::Buffer>(buffer.address, buffer.key, buffer.length);
  }

  const Reach reach_;
  std::shared_ptr<Core> core_;  // from join() on
  std::mutex join_mutex_;
  std::atomic<bool> joined_{false};
  const HandleText handle_;
  const FileInfo& opened_;
  std::atomic<uint64_t> chunk_bytes_{opened_.chunk_bytes};  // in effect, as far as this process knows
  const bool owner_;
  const uint32_t asked_factor_;
  const LockTarget target_;
  FileFaults faults_{opened_.path};
  FileCounters counters_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> changed_{false};  // by this process, since the open
  uint64_t last_record_ = 0;          // newest acknowledged; loop thread
  WriteBehind behind_;
  ReadAhead ahead_;
  std::vector<uint64_t> spent_pins_;  // loop thread
  bool looks_at_pins_ = false;        // loop thread
  std::atomic<bool> cold_ = false;    // the last read found bytes that are not in the hot tier
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for timers; loop thread
};

}  // namespace

std::unique_ptr<File> make_remote_file(std::shared_ptr<Core> core, HandleText handle,
                                       const OpenOptions& asked) {
  auto file = std::make_unique<RemoteFile>(std::move(handle), /*owner=*/true, asked.striping_factor,
                                           [core = std::move(core)] { return core; });
  (void)file->join();
  return file;
}

std::unique_ptr<File> make_shared_file(HandleText handle, Reach reach) {
  return std::make_unique<RemoteFile>(std::move(handle), /*owner=*/false, 0, std::move(reach));
}

}  // namespace sluice::client
