#include "client/read_ahead.h"

#include <algorithm>
#include <utility>

namespace sluice::client {
namespace {

// Ranks that read in turns leave each other's bytes out.
constexpr uint64_t kMostSkippedReads = 64;
constexpr unsigned kMostInVain = 2;
constexpr unsigned kTryAgain = 16;

}  // namespace

uint64_t ReadAhead::wanted(Extent extent) {
  const std::lock_guard lock(mutex_);
  const uint64_t length = extent.length().value;
  const bool forward =
      extent.begin >= last_end_ && (extent.begin - last_end_).value / kMostSkippedReads <= length;
  last_end_ = extent.end;
  ahead_ = forward ? std::clamp(ahead_ * 2, kLeastBytes, kMostBytes) : 0;
  if (in_vain_ < kMostInVain || ++spared_ % kTryAgain == 0) return ahead_;
  return 0;
}

void ReadAhead::retire() {
  if (!kept_) return;
  in_vain_ = kept_->used ? 0 : in_vain_ + 1;
  if (!kept_->used) ahead_ = 0;
  retired_.push_back(std::move(kept_->told));
  kept_.reset();
}

void ReadAhead::keep(std::shared_ptr<const Told> told, Extent extent, uint64_t now_ms) {
  const std::lock_guard lock(mutex_);
  retire();
  const Extent all{extent.begin, Offset(extent.end.value + told->ahead())};
  kept_ = Kept{std::move(told), all, now_ms, now_ms};
}

bool ReadAhead::covers(std::span<const Batch> plan) const {
  if (!kept_) return false;
  for (const Batch& batch : plan) {
    for (const Extent& extent : batch.extents) {
      if (!kept_->extent.contains(extent)) return false;
    }
  }
  return true;
}

bool ReadAhead::has(std::span<const Batch> plan) const {
  const std::lock_guard lock(mutex_);
  return covers(plan);
}

std::optional<uint64_t> ReadAhead::serve(std::span<const Batch> plan, uint64_t now_ms) {
  std::shared_ptr<const Told> told;
  Offset begin;
  {
    const std::lock_guard lock(mutex_);
    if (!covers(plan)) return std::nullopt;
    if (!kept_->told->holds() || is_old(now_ms)) {
      retire();
      return std::nullopt;
    }
    kept_->used_ms = now_ms;
    told = kept_->told;
    begin = kept_->extent.begin;
  }
  uint64_t bytes = 0;
  for (const Batch& batch : plan) {
    MemoryCursor memory(batch.memory);
    for (const Extent& extent : batch.extents) {
      if (told->copy_out((extent.begin - begin).value, extent.length().value, memory)) continue;
      const std::lock_guard lock(mutex_);
      if (kept_ && kept_->told == told) retire();
      return std::nullopt;
    }
    bytes += batch.bytes;
  }
  const std::lock_guard lock(mutex_);
  if (!plan.empty()) last_end_ = plan.back().extents.back().end;
  if (kept_ && kept_->told == told) kept_->used = true;
  return bytes;
}

std::vector<uint64_t> ReadAhead::take_spent(uint64_t now_ms, bool all) {
  const std::lock_guard lock(mutex_);
  if (kept_ && (all || now_ms >= kept_->used_ms + kIdleMs || is_old(now_ms))) retire();
  std::vector<uint64_t> pins;
  std::erase_if(retired_, [&](const std::shared_ptr<const Told>& told) {
    if (told.use_count() > 1) return false;
    pins.push_back(told->pin());
    return true;
  });
  return pins;
}

bool ReadAhead::holds_pins() const {
  const std::lock_guard lock(mutex_);
  return kept_ || !retired_.empty();
}

}  // namespace sluice::client
