#include "client/write_behind.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sluice::client {
namespace {

constexpr uint64_t kMostCapacity = 1024 * 1024;

bool touches(const std::vector<Extent>& extents, const Extent& other) {
  return std::any_of(extents.begin(), extents.end(), [&](const Extent& e) { return e.overlaps(other); });
}

}  // namespace

bool Gathered::overlaps(const Extent& extent) const {
  return !covered_.lookup(extent).empty();
}

bool Gathered::takes(const Batch& batch) const {
  if (batch.bytes > capacity_ - copy_.bytes()) return false;
  if (extents_.size() + batch.extents.size() > kMaxExtents) return false;
  return std::none_of(batch.extents.begin(), batch.extents.end(),
                      [this](const Extent& extent) { return overlaps(extent); });
}

void Gathered::append(const Batch& batch, uint64_t lock) {
  MemoryCursor memory(batch.memory);
  copy_.append(memory, batch.bytes);
  for (const Extent& extent : batch.extents) {
    covered_.assign(extent, {});
    if (!extents_.empty() && extents_.back().end == extent.begin && last_lock_ == lock) {
      extents_.back().end = extent.end;
    } else {
      extents_.push_back(extent);
    }
    last_lock_ = lock;
  }
}

bool Gathered::whole(uint64_t chunk_bytes) const {
  if (copy_.bytes() == capacity_ || extents_.size() == kMaxExtents) return true;
  return extents_.size() == 1 && extents_.front().end.value % chunk_bytes == 0;
}

std::pair<BatchBuffer, std::vector<uint32_t>> Gathered::finish() {
  auto sums = copy_.finish();
  buffer_.cut(copy_.bytes());
  return {std::move(buffer_), std::move(sums)};
}

WriteBehind::WriteBehind(FileCounters& counters, ContainerId container, uint64_t chunk_bytes, Links links)
    : counters_(counters),
      container_(container),
      chunk_bytes_(chunk_bytes),
      capacity_(std::min(chunk_bytes, kMostCapacity)),
      links_(std::move(links)) {}

Result<> WriteBehind::take_error() {
  const std::lock_guard lock(mutex_);
  if (!error_) return {};
  return fail(*std::exchange(error_, std::nullopt));
}

Result<> WriteBehind::wait_until(const std::function<bool()>& holds) {
  std::unique_lock lock(mutex_);
  if (holds()) return {};
  const WaitTimer timer(counters_.for_answers);
  if (core_->wait_while_running(lock, changed_, holds)) return {};
  return fail(ErrorCode::kAborted, "the connection to the pool has ended");
}

Result<> WriteBehind::send(std::shared_ptr<Write> write) {
  write->batch.memory.clear();
  write->message_bytes =
      256 + write->batch.extents.size() * sizeof(wire::Extent) + write->sums.size() * 4;
  // Asked as often as anybody likes, so it takes nothing.
  const auto has_room = [&] {
    return may_go_out(write->batch) && core_->may_reserve_behind(write->message_bytes);
  };
  if (has_gathered_) (void)core_->on_loop([this] { send_gathered(/*hurried=*/false); });  // it came before
  while (true) {
    if (auto waited = wait_until(has_room); !waited) return waited;
    const std::lock_guard lock(mutex_);
    if (!has_room() || !core_->reserve_behind(write->message_bytes)) continue;
    under_way_.push_back(write);
    break;
  }
  return core_->on_loop([this, write] { say(write, /*hurried=*/false); });
}

void WriteBehind::say(const std::shared_ptr<Write>& write, bool hurried) {
  links_.say(*write, hurried, [this, write](Result<uint64_t> outcome) { answered(write, outcome); });
}

void WriteBehind::answered(const std::shared_ptr<Write>& write, const Result<uint64_t>& outcome) {
  write->use.hold.reset();
  release_room(write->buffer);
  if (!outcome) links_.failed(outcome.error());
  {
    const std::lock_guard lock(mutex_);
    if (!outcome && !error_) error_ = outcome.error();
    std::erase(under_way_, write);
    if (write->message_bytes != 0) core_->end_behind(write->message_bytes);
    changed_.notify_all();
  }
  std::vector<std::function<void()>> done;
  std::erase_if(flushes_, [&](Flush& flush) {
    const std::lock_guard lock(mutex_);
    if (touched(flush.extent)) return false;
    done.push_back(std::move(flush.done));
    return true;
  });
  for (const auto& tell : done) tell();
}

void WriteBehind::release_room(const BatchBuffer& buffer) {
  if (!buffer.room) return;
  core_->lane.settle(*buffer.room);
  core_->give_back(false);
}

Result<> WriteBehind::gather(const Batch& batch, LockUse use) {
  std::optional<Gathered> fresh;
  Outcome outcome = Outcome::kGathered;
  Result<> went;
  do {
    went = core_->on_loop([&] { outcome = try_gather(batch, use, fresh); });
    if (!went) break;
    if (outcome == Outcome::kNeedsAnswers) went = wait_until([&] { return may_go_out(batch); });
    if (outcome == Outcome::kNeedsRoom) {
      auto room = links_.room(capacity_);
      if (room) fresh.emplace(std::move(*room), capacity_);
      if (!room) went = fail(room.error());
    }
  } while (went && outcome != Outcome::kGathered);
  if (!use.hold && !fresh) return went;
  (void)core_->on_loop([&] {
    use.hold.reset();
    if (fresh) release_room(fresh->finish().first);  // another thread had made one meanwhile
  });
  return went;
}

// One that lies over another goes when that was answered, unless the service records them in the order in
// which it hears of them.
bool WriteBehind::may_go_out(const Batch& batch) const {
  size_t copies = 0;
  for (const auto& write : under_way_) {
    copies += write->buffer.room ? 0 : 1;
    if (write->buffer.room && core_->lane.records_at_once()) continue;
    for (const Extent& extent : batch.extents) {
      if (touches(write->batch.extents, extent)) return false;
    }
  }
  return under_way_.size() < kMostUnderWay && copies < kMostCopiesUnderWay;
}

WriteBehind::Outcome WriteBehind::try_gather(const Batch& batch, LockUse& use,
                                             std::optional<Gathered>& fresh) {
  if (gathered_ && !gathered_->takes(batch)) send_gathered(/*hurried=*/false);
  {
    const std::lock_guard lock(mutex_);
    if (!may_go_out(batch)) return Outcome::kNeedsAnswers;
  }
  if (!gathered_) {
    if (!fresh) return Outcome::kNeedsRoom;
    gathered_ = std::exchange(fresh, std::nullopt);
    has_gathered_ = true;
  }
  gathered_->append(batch, use.id);
  counters_.gathered.add(batch.bytes);
  core_->lane.note_change(container_);
  use.hold.reset();  // may send it: somebody waits for the lock
  if (gathered_ && gathered_->whole(chunk_bytes_)) send_gathered(/*hurried=*/false);
  return Outcome::kGathered;
}

void WriteBehind::send_gathered(bool hurried) {
  if (!gathered_) return;
  const auto write = std::make_shared<Write>();
  bool all_locked = true;
  for (const Extent& extent : gathered_->extents()) {
    const uint64_t lock = core_->locks.covering(container_, extent);
    all_locked = all_locked && lock != 0;
    if (write->locks.empty() || write->locks.back() != lock) write->locks.push_back(lock);
    auto& all = write->batch.extents;
    if (!all.empty() && all.back().end == extent.begin) {
      all.back().end = extent.end;
    } else {
      all.push_back(extent);
    }
  }
  write->batch.bytes = gathered_->bytes();
  std::tie(write->buffer, write->sums) = gathered_->finish();
  if (write->buffer.room) core_->lane.trim(*write->buffer.room, write->batch.bytes);
  gathered_.reset();
  has_gathered_ = false;
  {
    const std::lock_guard lock(mutex_);
    under_way_.push_back(write);
  }
  if (all_locked) return say(write, hurried);
  answered(write, fail(ErrorCode::kAborted,
                       "a lock was lost before what was written under it had reached the service"));
}

void WriteBehind::flush(const Extent& extent, std::function<void()> done) {
  if (gathered_ && gathered_->overlaps(extent)) send_gathered(/*hurried=*/true);
  {
    const std::lock_guard lock(mutex_);
    if (touched(extent)) flushes_.push_back({extent, std::exchange(done, nullptr)});
  }
  if (done) return done();
  hurry_service();
}

void WriteBehind::lost() {
  if (!gathered_) return;
  release_room(gathered_->finish().first);
  gathered_.reset();
  has_gathered_ = false;
}

bool WriteBehind::touched(const Extent& extent) const {
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [&](const auto& write) { return touches(write->batch.extents, extent); });
}

Result<> WriteBehind::settle() {
  const auto quiet = [this] { return under_way_.empty(); };
  if (std::unique_lock lock(mutex_); has_gathered_ || !quiet()) {
    lock.unlock();
    (void)core_->on_loop([this] {
      if (!gathered_) return hurry_service();
      send_gathered(/*hurried=*/true);
    });
  }
  if (auto waited = wait_until(quiet); !waited) return waited;
  return take_error();
}

// It may doze over messages that nobody waited for until now.
void WriteBehind::hurry_service() {
  protocol::Body body;
  body.Set(wire::RenewT{});
  counters_.messages.add();
  core_->session.tell(std::move(body));
}

}  // namespace sluice::client
