#include "burst_buffer/drain.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/assert.h"
#include "base/log.h"
#include "burst_buffer/layout_optimizer.h"

namespace sluice::burst_buffer {
namespace {

using Steady = std::chrono::steady_clock;
using Pieces = std::vector<const DrainWork::Piece*>;

// So much is placed before its slabs are given back and the rest is looked at anew.
constexpr uint64_t kBatchBytes = uint64_t{32} << 20;
// A transaction of so many pieces is worth a stripe of its own when the log is full: one table names them
// all.
constexpr size_t kManyPieces = 64;

std::chrono::milliseconds ms(uint64_t count) {
  return std::chrono::milliseconds(count);
}

uint64_t bytes_of(const Pieces& pieces) {
  uint64_t bytes = 0;
  for (const auto* piece : pieces) bytes += piece->extent.length().value;
  return bytes;
}

uint64_t bytes_of(const std::vector<PlacedPiece>& pieces) {
  uint64_t bytes = 0;
  for (const PlacedPiece& piece : pieces) bytes += piece.extent.length().value;
  return bytes;
}

// Neighbours in the file that are neighbours in their stripe are one extent of the publication.
void append_published(std::vector<PublishedExtent>& published, const PublishedExtent& next) {
  if (!published.empty()) {
    PublishedExtent& last = published.back();
    const bool adjoins = last.stripe == next.stripe && last.extent.end == next.extent.begin &&
                         last.stripe_offset + last.extent.length().value == next.stripe_offset;
    if (adjoins) {
      last.extent.end = next.extent.end;
      return;
    }
  }
  published.push_back(next);
}

// One container, one round. The drain's thread.
class ContainerRound {
 public:
  ContainerRound(HotTier& hot, DrainSink& sink, ContainerId container, const std::atomic<bool>& stopping,
                 const std::function<void(uint64_t)>& moved, const std::function<void()>& pace)
      : hot_(hot), sink_(sink), container_(container), stopping_(stopping), moved_(moved), pace_(pace) {}

  // Places and publishes what is committed.
  Result<> drain_committed();
  // Places full stripes of open transactions; with `partial` what is left as well, of each that has so many
  // pieces.
  Result<> place_open(std::optional<size_t> partial);

 private:
  // Places pieces as stripes, at most kBatchBytes of full ones unless `all`; checks them first. What was
  // placed is in `placed`, also after an error.
  Result<> place(const Pieces& pieces, bool all, std::vector<PlacedPiece>& placed);
  Result<> place_stripe(const Pieces& pieces, const StripePlan& plan, std::vector<PlacedPiece>& placed);
  Result<> record(const std::vector<PlacedPiece>& placed);
  // Stripes that are neither recorded nor published.
  void discard(const std::vector<PlacedPiece>& placed);
  Result<> publish(const DrainWork& work, const std::vector<PlacedPiece>& placed);
  Result<Length> stripe_bytes();

  HotTier& hot_;
  DrainSink& sink_;
  const ContainerId container_;
  const std::atomic<bool>& stopping_;
  const std::function<void(uint64_t)>& moved_;
  const std::function<void()>& pace_;  // before each stripe
  std::set<uint64_t> verified_;        // pieces of the work in hand, by where their extents begin
};

Result<Length> ContainerRound::stripe_bytes() {
  auto bytes = sink_.stripe_bytes(container_);
  if (bytes && bytes->value == 0) {
    return fail(ErrorCode::kInternal, fmt::format("container {} has stripes of no bytes", container_.value));
  }
  return bytes;
}

Result<> ContainerRound::place_stripe(const Pieces& pieces, const StripePlan& plan,
                                      std::vector<PlacedPiece>& placed) {
  std::vector<std::span<const std::byte>> spans;
  spans.reserve(plan.parts.size());
  for (const StripePlanPart& part : plan.parts) {
    const DrainWork::Piece& piece = *pieces[part.source];
    if (verified_.insert(piece.extent.begin.value).second) {
      if (auto ok = hot_.verify(piece); !ok) return ok;
    }
    spans.push_back(
        piece.bytes.subspan((part.extent.begin - piece.extent.begin).value, part.extent.length().value));
  }
  const auto stripe = sink_.place(container_, spans);
  if (!stripe) return fail(stripe.error());
  for (const StripePlanPart& part : plan.parts) {
    const DrainWork::Piece& piece = *pieces[part.source];
    const StagedPlace before = piece.place.advanced(part.extent.begin - piece.extent.begin);
    placed.push_back({part.extent, before, *stripe, part.stripe_offset});
  }
  return {};
}

Result<> ContainerRound::place(const Pieces& pieces, bool all, std::vector<PlacedPiece>& placed) {
  if (pieces.empty()) return {};
  const auto full = stripe_bytes();
  if (!full) return fail(full.error());
  std::vector<Extent> extents;
  extents.reserve(pieces.size());
  for (const auto* piece : pieces) extents.push_back(piece->extent);
  verified_.clear();
  uint64_t bytes = 0;
  for (const StripePlan& plan : plan_stripes(extents, *full)) {
    if (!all && (plan.length < *full || bytes >= kBatchBytes)) break;
    pace_();
    if (stopping_) return fail(ErrorCode::kAborted, "the drain was stopped");
    if (auto ok = place_stripe(pieces, plan, placed); !ok) return ok;
    bytes += plan.length.value;
  }
  return {};
}

Result<> ContainerRound::record(const std::vector<PlacedPiece>& placed) {
  if (placed.empty()) return {};
  const auto dead = hot_.placed(container_, placed);
  if (!dead) return fail(dead.error());
  for (const StripeId stripe : *dead) sink_.discard(stripe);
  return {};
}

void ContainerRound::discard(const std::vector<PlacedPiece>& placed) {
  std::set<StripeId> stripes;
  for (const PlacedPiece& piece : placed) stripes.insert(piece.stripe);
  for (const StripeId stripe : stripes) sink_.discard(stripe);
}

// Each turn of the loop works on a snapshot of its own, so that slabs of what was placed are not pinned until
// all is. New commits lengthen the work; after as many bytes as there were at first, the snapshot in hand is
// the last.
Result<> ContainerRound::drain_committed() {
  uint64_t first_total = 0;
  uint64_t done = 0;
  for (bool first = true, last = false;; first = false) {
    DrainWork work = hot_.drain_work(container_, false);
    if (work.to == work.from) return {};
    Pieces hot;
    for (const auto& piece : work.pieces) {
      if (piece.place.tier == StagedPlace::Tier::kHot) hot.push_back(&piece);
    }
    const uint64_t bytes = bytes_of(hot);
    if (first) first_total = bytes;
    last = last || bytes <= kBatchBytes || done >= first_total;

    std::vector<PlacedPiece> placed;
    const auto outcome = place(hot, last, placed);
    const auto recorded = record(placed);
    // Without room for the record the pieces stay where they are until the publication says the same of all
    // of them.
    const bool log_full = !recorded && recorded.error().code == ErrorCode::kNoSpace;
    if (log_full && (!outcome || !last)) discard(placed);
    if (!outcome) return outcome;
    if (!recorded && !log_full) return recorded;
    if (last) {
      if (auto ok = publish(work, placed); !ok) {
        if (log_full && !ok.error().outcome_unknown) discard(placed);
        return ok;
      }
    }
    work.pin.reset();
    const uint64_t moved = bytes_of(placed);
    moved_(moved);
    if (last) return {};
    if (log_full || placed.empty()) last = true;
    done += moved;
  }
}

Result<> ContainerRound::publish(const DrainWork& work, const std::vector<PlacedPiece>& placed) {
  std::map<Offset, PublishedExtent> in_order;
  for (const auto& piece : work.pieces) {
    if (piece.place.tier != StagedPlace::Tier::kStripe) continue;
    in_order[piece.extent.begin] = {piece.extent, StripeId(piece.place.where), piece.place.offset};
  }
  for (const PlacedPiece& piece : placed)
    in_order[piece.extent.begin] = {piece.extent, piece.stripe, piece.stripe_offset};
  std::vector<PublishedExtent> extents;
  for (const auto& [begin, extent] : in_order) append_published(extents, extent);

  const auto published = sink_.publish(container_, work.from, work.to, work.cut, work.size, extents);
  if (published) return hot_.drained(container_, work.to);
  const auto now = hot_.reconcile(container_);
  if (now && work.to <= *now) return {};  // it had happened
  if (!now && now.error().code == ErrorCode::kConflict) return fail(now.error());
  return fail(published.error());
}

Result<> ContainerRound::place_open(std::optional<size_t> partial) {
  while (true) {
    DrainWork work = hot_.drain_work(container_, true);
    std::map<TxnId, Pieces> open;
    for (const auto& piece : work.pieces) {
      if (piece.open_txn) open[*piece.open_txn].push_back(&piece);
    }
    std::vector<PlacedPiece> placed;
    Result<> outcome;
    for (const auto& [txn, pieces] : open) {
      if (partial && pieces.size() < *partial) continue;
      outcome = place(pieces, partial.has_value(), placed);
      if (!outcome) break;
    }
    if (auto ok = record(placed); !ok) {
      if (ok.error().code == ErrorCode::kNoSpace) discard(placed);
      return ok;
    }
    work.pin.reset();
    moved_(bytes_of(placed));
    if (!outcome || placed.empty() || partial) return outcome;
  }
}

class DrainThread final : public Drain {
 public:
  DrainThread(HotTier& hot, DrainSink& sink, Options options)
      : hot_(hot), sink_(sink), options_(std::move(options)) {}
  ~DrainThread() override { stop(); }

  void start() override;
  void stop() override;
  void kick() override;
  void busy() override { busy_at_ms_.store(now_ms(), std::memory_order_relaxed); }
  void drain_all() override;
  void want_room(Length length) override;
  Result<> run_once(bool include_open) override;
  DrainStatus status() override;

 private:
  struct Decision {
    bool go = false;
    bool include_open = false;
  };

  void run();
  static uint64_t now_ms() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now().time_since_epoch()).count());
  }
  // Lets those who move bytes go first.
  void pace();
  bool told() const { return stopping_ || kicked_ || drain_all_ || wanted_; }
  Result<> discard_dead();
  Decision decide();
  void after_round(const Result<>& outcome, bool moved_any, std::unique_lock<std::mutex>& lock);
  // Tells waiting writers, without the mutex.
  void report(Result<> outcome, std::unique_lock<std::mutex>& lock);
  void on_moved(uint64_t bytes);

  HotTier& hot_;
  DrainSink& sink_;
  const Options options_;

  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> bytes_drained_{0};
  std::atomic<uint64_t> busy_at_ms_{0};
  bool hurry_ = false;  // somebody waits for the end of the round in hand
  std::mutex mutex_;
  std::condition_variable wake_;
  bool kicked_ = false;
  bool drain_all_ = false;
  bool pressing_ = false;  // above the high watermark, and not yet down to the low one
  bool in_round_ = false;
  std::optional<Length> wanted_;
  std::string blocked_;
  ErrorCode blocked_code_ = ErrorCode::kInternal;  // of blocked_
  uint64_t failures_ = 0;
  uint64_t failed_rounds_ = 0;
  uint64_t seen_activity_ = 0;
  Steady::time_point active_at_ = Steady::now();
  Steady::time_point progress_at_ = Steady::now();
  std::thread thread_;
};

void DrainThread::start() {
  SLUICE_ASSERT(!thread_.joinable());
  stopping_ = false;
  thread_ = std::thread([this] { run(); });
}

void DrainThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DrainThread::kick() {
  {
    const std::lock_guard lock(mutex_);
    kicked_ = true;
    active_at_ = Steady::now();
  }
  wake_.notify_all();
}

void DrainThread::drain_all() {
  {
    const std::lock_guard lock(mutex_);
    drain_all_ = true;
  }
  wake_.notify_all();
}

void DrainThread::want_room(Length length) {
  {
    const std::lock_guard lock(mutex_);
    if (!wanted_) {
      progress_at_ = Steady::now();
      failures_ = 0;
    }
    wanted_ = wanted_ ? std::min(*wanted_, length) : length;
  }
  wake_.notify_all();
}

DrainStatus DrainThread::status() {
  DrainStatus now;
  now.bytes_left = hot_.unpublished_bytes();
  now.bytes_drained = bytes_drained_;
  const std::lock_guard lock(mutex_);
  if (!blocked_.empty()) now.blocked = blocked_code_;
  now.failed_rounds = failed_rounds_;
  now.state = !blocked_.empty() ? "blocked: " + blocked_ : in_round_ ? "draining" : "idle";
  return now;
}

void DrainThread::on_moved(uint64_t bytes) {
  if (bytes == 0) return;
  bytes_drained_ += bytes;
  std::unique_lock lock(mutex_);
  progress_at_ = Steady::now();
  if (!wanted_) return;
  // A waiting writer goes on with the first batch that makes room, not at the end of the round.
  const Length length = *wanted_;
  lock.unlock();
  const auto slab = hot_.reserve(length);
  if (!slab) return;
  hot_.cancel(*slab);
  lock.lock();
  report({}, lock);
}

Result<> DrainThread::run_once(bool include_open) {
  Result<> first;
  const auto keep = [&](ContainerId container, const Result<>& outcome) {
    if (outcome || !first) return;
    // A container that was removed has nothing to drain any more.
    if (outcome.error().code == ErrorCode::kNotFound) {
      const auto now = hot_.reconcile(container);
      if (!now && now.error().code == ErrorCode::kNotFound) return;
    }
    first = outcome;
  };
  if (auto ok = discard_dead(); !ok) return ok;
  const bool log_full = hot_.usage().log_full;
  uint64_t moved_bytes = 0;
  const std::function<void()> pacing = [this] { pace(); };
  const std::function<void(uint64_t)> moved = [&](uint64_t bytes) {
    moved_bytes += bytes;
    on_moved(bytes);
  };
  for (const ContainerId container : hot_.undrained()) {
    if (stopping_) return first;
    keep(container, ContainerRound(hot_, sink_, container, stopping_, moved, pacing).drain_committed());
  }
  if (!include_open) return first;
  std::set<ContainerId> with_open;
  for (const auto& txn : hot_.open_transactions()) with_open.insert(txn.container);
  const auto place_open = [&](std::optional<size_t> partial) {
    for (const ContainerId container : with_open) {
      if (stopping_) return;
      keep(container, ContainerRound(hot_, sink_, container, stopping_, moved, pacing).place_open(partial));
    }
  };
  place_open(std::nullopt);
  // Partial stripes of open transactions are costly: of those that fill the log with many pieces, or when
  // full ones gave nothing.
  if (log_full) place_open(kManyPieces);
  if (moved_bytes == 0 || hot_.usage().log_full) place_open(1);
  return first;
}

Result<> DrainThread::discard_dead() {
  const auto dead = hot_.placed(ContainerId(0), {});
  if (!dead) return fail(dead.error());
  for (const StripeId stripe : *dead) sink_.discard(stripe);
  return {};
}

void DrainThread::pace() {
  if (options_.quiet_ms == 0) return;
  const uint64_t begin = now_ms();
  std::unique_lock lock(mutex_);
  const auto go_on = [&] {
    const uint64_t now = now_ms();
    const bool quiet = now - busy_at_ms_.load(std::memory_order_relaxed) >= options_.quiet_ms;
    return stopping_ || hurry_ || drain_all_ || wanted_ || quiet || now - begin >= options_.quiet_ms;
  };
  while (!go_on()) {
    const Usage usage = hot_.usage();
    if (static_cast<double>(usage.bytes_used) >=
        options_.high_watermark * static_cast<double>(usage.bytes_total))
      return;
    wake_.wait_for(lock, ms(std::max<uint64_t>(options_.quiet_ms / 4, 1)), go_on);
  }
}

DrainThread::Decision DrainThread::decide() {
  const Usage usage = hot_.usage();
  const double used = usage.bytes_total == 0
                          ? 0
                          : static_cast<double>(usage.bytes_used) / static_cast<double>(usage.bytes_total);
  if (used >= options_.high_watermark) pressing_ = true;
  if (used <= options_.low_watermark) pressing_ = false;
  const uint64_t activity = hot_.last_record();
  if (activity != seen_activity_) active_at_ = Steady::now();
  seen_activity_ = activity;
  if (wanted_ || pressing_) return {true, true};

  if (hot_.undrained().empty()) {
    blocked_.clear();  // what could not be drained was removed
    return {};
  }
  if (drain_all_) return {true, false};
  switch (options_.policy) {
    case DrainPolicy::kImmediate:
      return {true, false};
    case DrainPolicy::kOnSync:
      return {kicked_, false};
    case DrainPolicy::kWatermark:
      return {};
    case DrainPolicy::kIdle:
      return {Steady::now() - active_at_ >= ms(options_.idle_ms), false};
  }
  return {};
}

void DrainThread::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (hot_.usage().dead_stripes) {
      // Whatever the policy: a full storage tier may wait for them.
      lock.unlock();
      if (auto ok = discard_dead(); !ok) log::warn("drain: {}", ok.error().message);
      lock.lock();
    }
    const Decision decision = decide();
    const bool all = std::exchange(drain_all_, false);
    const bool kicked = std::exchange(kicked_, false);
    if (!decision.go) {
      wake_.wait_for(lock, ms(options_.poll_ms), [&] { return told(); });
      continue;
    }
    const uint64_t before = bytes_drained_;
    hurry_ = all;
    in_round_ = true;
    lock.unlock();
    const auto outcome = run_once(decision.include_open);
    const bool moved_any = bytes_drained_ != before;
    lock.lock();
    in_round_ = false;
    if (stopping_) break;
    if (!outcome) {
      drain_all_ = drain_all_ || all;
      kicked_ = kicked_ || kicked;
    }
    after_round(outcome, moved_any, lock);
  }
}

void DrainThread::after_round(const Result<>& outcome, bool moved_any, std::unique_lock<std::mutex>& lock) {
  const auto stopped = [&] { return stopping_.load(); };
  if (!outcome) {
    ++failures_;
    ++failed_rounds_;
    if (blocked_ != outcome.error().message) log::warn("drain: {}", outcome.error().message);
    blocked_ = outcome.error().message;
    blocked_code_ = outcome.error().code;
    const bool pointless = !outcome.error().retryable || failures_ >= options_.failures_to_report;
    if (wanted_ && pointless) report(outcome, lock);
    wake_.wait_for(lock, ms(options_.retry_ms), stopped);
    return;
  }
  failures_ = 0;
  blocked_.clear();
  if (!wanted_) {
    // Nothing more can be moved now, perhaps because others have to finish first: no reason to look again at
    // once.
    if (!moved_any) wake_.wait_for(lock, ms(options_.poll_ms), [&] { return told(); });
    return;
  }
  const Length length = *wanted_;
  lock.unlock();
  const bool log_full = hot_.usage().log_full;
  const auto slab = hot_.reserve(length);
  if (slab) hot_.cancel(*slab);
  lock.lock();
  if (slab && (moved_any || !log_full)) return report({}, lock);
  const bool stuck = Steady::now() - progress_at_ >= ms(options_.stuck_ms);
  if (slab && log_full) {
    return report(
        fail(ErrorCode::kNoSpace, "its log is full of open transactions, which the drain cannot shorten"),
        lock);
  }
  if (!slab && (slab.error().code != ErrorCode::kNoSpace || stuck)) return report(fail(slab.error()), lock);
  wake_.wait_for(lock, ms(options_.poll_ms), stopped);
}

void DrainThread::report(Result<> outcome, std::unique_lock<std::mutex>& lock) {
  wanted_.reset();
  if (!options_.on_progress) return;
  lock.unlock();
  options_.on_progress(std::move(outcome));
  lock.lock();
}

}  // namespace

std::unique_ptr<Drain> Drain::create(HotTier& hot, DrainSink& sink, Options options) {
  return std::make_unique<DrainThread>(hot, sink, std::move(options));
}

}  // namespace sluice::burst_buffer
