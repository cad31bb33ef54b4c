#include <algorithm>

#include "tests/sim/lock_world_parts.h"

namespace sluice::sim {

using lockmgr::LockMode;
using lockmgr::LockUse;

Client::Client(World& world, uint32_t number, transport::Transport& transport)
    : world_(world), number_(number), transport_(transport) {
  cache_ = std::make_unique<lockmgr::LockCache>(
      world.network.clock(), *this, *this,
      lockmgr::LockCache::Options{.max_idle_locks = 4 + world.rng.below(60), .max_idle_ms = 200});
  if (world.rng.below(3) == 0) cache_->use_strategy(kContended, std::make_unique<lockmgr::AutoStrategy>(8));
  cache_->use_strategy(kStrided, std::make_unique<lockmgr::LockaheadStrategy>(1 + world.rng.below(32)));
  transport_.set_handler(this);
  connect();
  renew();
  transport_.after_ms(world.rng.below(20), [this] { work(); });
}

std::string Client::state() const {
  return "client " + std::to_string(number_) + " (" + std::to_string(waiting_) + " acquires, " +
         std::to_string(dirty_.size()) + " dirty, " + std::to_string(reads_.size()) + " reads, " +
         std::to_string(cache_->pending_count()) + " requests" + (ready_ ? ")" : ", not connected)");
}

// --- the session ---

void Client::connect() {
  ready_ = false;
  const auto peer = transport_.connect({"sim://server"});
  if (!peer) {
    transport_.after_ms(20, [this] { connect(); });
    return;
  }
  peer_ = *peer;
  Packet hello;
  hello.kind = Kind::kHello;
  hello.session = session_;
  hello.boot = boot_;
  hello.heard = in_.heard;
  hello.operation = number_;
  (void)transport_.send(*peer_, world_.put(hello));
}

void Client::on_disconnected(transport::PeerId peer, const Error&) {
  if (peer_ != peer) return;
  ++world_.met.reconnects;
  peer_.reset();
  ready_ = false;
  transport_.after_ms(5 + world_.rng.below(30), [this] {
    if (!peer_) connect();
  });
}

void Client::renew() {
  if (ready_) {
    Packet packet;
    packet.kind = Kind::kRenew;
    say(packet);
  }
  cache_->tick();
  transport_.after_ms(kRenewMs, [this] { renew(); });
}

void Client::say(Packet packet) {
  if (!alive_) return;
  packet.number = ++out_.sent;
  out_.unheard.push_back(packet);
  transmit(packet);
}
void Client::transmit(const Packet& packet) {
  // Before the welcome the server does not know whose it is; then all that it has not heard is said.
  if (alive_ && peer_ && boot_ != 0 && (ready_ || replays_left_ > 0))
    (void)transport_.send(*peer_, world_.put(packet));
}

void Client::on_message(transport::PeerId peer, std::span<const std::byte> bytes) {
  const Packet packet = world_.take(bytes);
  if (peer_ != peer || !alive_) return;
  if (packet.kind == Kind::kWelcome) return welcome(packet);
  if (packet.number != in_.heard + 1) return;
  in_.heard = packet.number;
  take(packet);
}

void Client::welcome(const Packet& packet) {
  const bool fenced = session_.value != 0 && packet.session != session_;
  const bool new_boot = boot_ != 0 && packet.boot != boot_;
  session_ = packet.session;
  boot_ = packet.boot;
  // It may have been given up before it is heard of.
  if (!world_.sessions.contains(session_)) {
    world_.ledger.fenced(number_);
  } else if (world_.ledger.is_fenced(number_) && fenced) {
    world_.ledger.back(number_);
  }
  if (fenced) {
    out_ = in_ = {};
    replays_left_ = 0;
    ready_ = true;
    return lost();
  }
  if (new_boot) return replay();
  while (!out_.unheard.empty() && out_.unheard.front().number <= packet.heard) out_.unheard.pop_front();
  for (const Packet& again : out_.unheard) (void)transport_.send(*peer_, world_.put(again));
  ready_ = replays_left_ == 0;
}

// The server gave us up: nothing of ours will be taken any more.
void Client::lost() {
  cache_->session_lost();
  dirty_.clear();
  flushes_.clear();
  for (const Reading& reading : std::exchange(reads_, {}) | std::views::values)
    world_.ledger.use_ends(number_, reading.file, reading.extent, false);
}

void Client::replay() {
  out_ = in_ = {};
  replaying_.clear();
  cache_->suspend();
  replays_left_ = 1;
  for (const auto& [file, held] : cache_->held()) {
    Packet packet;
    packet.kind = Kind::kReplay;
    packet.file = file;
    packet.held = held;
    packet.operation = next_operation_++;
    replaying_[packet.operation] = {file, held};
    say(packet);
  }
  Packet done;
  done.kind = Kind::kReplayDone;
  say(done);
}

void Client::replayed(const Packet& packet) {
  const auto at = replaying_.find(packet.operation);
  if (at == replaying_.end()) return;
  cache_->replayed(at->second.first, at->second.second, packet.handles);
  replaying_.erase(at);
}

void Client::take(const Packet& packet) {
  switch (packet.kind) {
    case Kind::kGrant:
      return cache_->on_answer(packet.ask.id, packet.file, packet.answers);
    case Kind::kError:
      return cache_->on_error(packet.ask.id, Error(ErrorCode::kBusy, "refused"));
    case Kind::kRevoke:
      return cache_->on_revoke(packet.file, packet.handles);
    case Kind::kReplayed:
      return replayed(packet);
    case Kind::kReady:
      replays_left_ = 0;
      ready_ = true;
      cache_->resend();
      for (Dirty& dirty : dirty_) {
        if (dirty.sent) send_dirty(dirty);
      }
      for (const auto& [operation, reading] : reads_) send_read(operation);
      return;
    case Kind::kWritten:
      return written(packet);
    case Kind::kValue:
      return value(packet);
    default:
      return;
  }
}

// --- locks ---

void Client::send_request(const lockmgr::LockAsk& ask) {
  Packet packet;
  packet.kind = Kind::kAsk;
  packet.ask = ask;
  say(packet);
}
void Client::send_release(ContainerId file, const std::vector<lockmgr::LockHandle>& handles) {
  Packet packet;
  packet.kind = Kind::kRelease;
  packet.file = file;
  packet.handles = handles;
  say(packet);
}
void Client::flush(ContainerId file, Extent extent, std::function<void()> done) {
  if (!alive_) return;
  flushes_.push_back({file, extent, std::move(done)});
  send_dirty_in(file, extent);
  end_flushes();
}

void Client::end_flushes() {
  for (auto at = flushes_.begin(); at != flushes_.end();) {
    const auto in_it = [&](const Dirty& d) { return d.file == at->file && d.extent.overlaps(at->extent); };
    if (std::any_of(dirty_.begin(), dirty_.end(), in_it)) {
      ++at;
      continue;
    }
    const auto done = std::move(at->done);
    flushes_.erase(at);
    done();
    at = flushes_.begin();
  }
}

// --- what it does ---

Extent Client::some_extent(ContainerId file) {
  if (file == kContended || world_.rng.below(40) == 0) {
    const uint64_t begin = world_.rng.below(kContendedBytes);
    return {Offset(begin),
            Offset(begin + 1 + world_.rng.below(world_.rng.below(8) == 0 ? kContendedBytes : 6))};
  }
  const uint64_t at = (stride_at_++ * world_.schedule.clients + number_) * 2 + kContendedBytes * 2;
  return {Offset(at), Offset(at + 2)};
}

void Client::work() {
  if (!world_.busy) return;
  if (waiting_ < 4) {
    const uint64_t what = world_.rng.below(24);
    // With many clients most keep to their own strides, as aggregators do.
    const bool strided = world_.rng.below(world_.schedule.clients > 20 ? 60 : 2) != 0;
    const ContainerId file = strided ? kStrided : kContended;
    if (what == 0) {
      cache_->drop(file);
    } else if (what < 3) {
      sync();
    } else {
      access(file, some_extent(file), what < 18);
    }
  }
  transport_.after_ms(1 + world_.rng.below(world_.schedule.clients > 20 ? 60 : 12), [this] { work(); });
}

void Client::access(ContainerId file, Extent extent, bool writes) {
  ++waiting_;
  const auto at_once = std::make_shared<bool>(true);
  cache_->acquire(file, extent, writes ? LockMode::kPw : LockMode::kPr,
                  [this, file, extent, writes, at_once](Result<LockUse> use) {
                    --waiting_;
                    world_.met.waits += *at_once ? 0 : 1;
                    if (use && alive_) begin(file, extent, writes, std::move(*use));
                  });
  *at_once = false;
}

void Client::begin(ContainerId file, Extent extent, bool writes, LockUse use) {
  ++world_.met.uses;
  world_.ledger.use_begins(number_, file, extent, writes);
  if (!writes) {
    // What it wrote itself and did not send yet goes before the question.
    send_dirty_in(file, extent);
    const uint64_t operation = next_operation_++;
    reads_[operation] = {file, extent, std::move(use)};
    return send_read(operation);
  }
  dirty_.push_back({file, extent, world_.ledger.written(number_, file, extent), false, false});
  world_.ledger.use_ends(number_, file, extent, true);
  // Written back some time later, or when the lock is asked back.
  transport_.after_ms(world_.rng.below(30), [this, version = dirty_.back().version] {
    for (Dirty& dirty : dirty_) {
      if (dirty.version == version) send_dirty_in(dirty.file, dirty.extent);
    }
  });
}

// In the order written, so that an older one does not come after a newer.
void Client::send_dirty_in(ContainerId file, const Extent& extent) {
  Extent reach = extent;
  for (bool grew = true; grew;) {
    grew = false;
    for (const Dirty& d : dirty_) {
      if (d.sent || d.file != file || !d.extent.overlaps(reach) || reach.contains(d.extent)) continue;
      reach = {std::min(reach.begin, d.extent.begin), std::max(reach.end, d.extent.end)};
      grew = true;
    }
  }
  for (Dirty& d : dirty_) {
    if (!d.sent && d.file == file && d.extent.overlaps(reach)) send_dirty(d);
  }
}

void Client::send_dirty(Dirty& dirty) {
  dirty.sent = true;
  if (!ready_ && replays_left_ > 0) return;  // its lock has no name now; it goes when it has
  const lockmgr::LockToken token = cache_->covering(dirty.file, dirty.extent, LockMode::kPw);
  if (token.handle == lockmgr::kNoLock && !world_.ledger.is_fenced(number_))
    world_.ledger.report("client " + std::to_string(number_) + " has dirty bytes without a lock");
  Packet packet;
  packet.kind = Kind::kWrite;
  packet.file = dirty.file;
  packet.extent = dirty.extent;
  packet.version = dirty.version;
  packet.handles = {token.handle};
  say(packet);
}

void Client::written(const Packet& packet) {
  const auto at =
      std::find_if(dirty_.begin(), dirty_.end(), [&](const Dirty& d) { return d.version == packet.version; });
  if (at == dirty_.end()) return;
  if (at->syncing) world_.ledger.synced(at->file, at->extent, at->version);
  dirty_.erase(at);
  end_flushes();
}

void Client::sync() {
  ++world_.met.syncs;
  for (Dirty& dirty : dirty_) dirty.syncing = true;
  for (Dirty& dirty : dirty_) {
    if (!dirty.sent) send_dirty(dirty);
  }
}

void Client::send_read(uint64_t operation) {
  const Reading& reading = reads_.at(operation);
  Packet packet;
  packet.kind = Kind::kRead;
  packet.operation = operation;
  packet.file = reading.file;
  packet.extent = reading.extent;
  say(packet);
}

void Client::value(const Packet& packet) {
  const auto at = reads_.find(packet.operation);
  if (at == reads_.end()) return;  // asked twice
  ++world_.met.reads;
  world_.ledger.use_ends(number_, packet.file, packet.extent, false);
  if (std::none_of(dirty_.begin(), dirty_.end(),
                   [&](const Dirty& d) { return d.file == packet.file && d.extent.overlaps(packet.extent); }))
    world_.ledger.read(number_, packet.file, packet.extent, packet.seen);
  reads_.erase(at);
}

}  // namespace sluice::sim
