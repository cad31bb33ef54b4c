#include "lockmgr/stride.h"

namespace sluice::lockmgr {

void StridePredictor::observe(const Extent& access) {
  if (!seen_) {
    seen_ = true;
    last_ = access;
    return;
  }
  // Both are below 2^62, so the difference fits.
  const Step step{static_cast<int64_t>(access.begin.value) - static_cast<int64_t>(last_.begin.value),
                  access.length().value};
  const bool same_bytes = access.length() == last_.length();
  last_ = access;
  const bool holds = period_ != 0 && period_ <= steps_.size() && steps_[steps_.size() - period_] == step;
  first_step_ = steps_.empty() && same_bytes;
  steps_.push_back(step);
  if (steps_.size() > 2 * kMaxPeriod) steps_.pop_front();
  if (holds) {
    ++confirmed_;
    return;
  }
  confirmed_ = 0;
  period_ = find_period();
}

bool StridePredictor::repeats(size_t period) const {
  const size_t n = steps_.size();
  if (n < 2 * period) return false;
  for (size_t i = 0; i < period; ++i) {
    if (steps_[n - 1 - i] != steps_[n - 1 - i - period]) return false;
  }
  return true;
}

size_t StridePredictor::find_period() const {
  if (first_step_) return 1;
  for (size_t period = 1; period <= kMaxPeriod; ++period) {
    if (repeats(period)) return period;
  }
  return 0;
}

std::vector<Extent> StridePredictor::predict(size_t count) const {
  std::vector<Extent> next;
  if (period_ == 0) return next;
  next.reserve(count);
  uint64_t begin = last_.begin.value;
  for (size_t i = 0; i < count; ++i) {
    const Step& step = steps_[steps_.size() - period_ + i % period_];
    const uint64_t back = static_cast<uint64_t>(-step.distance);
    if (step.distance < 0 && back > begin) break;
    begin += static_cast<uint64_t>(step.distance);  // wraps to the right value for a negative distance
    if (begin > kMaxFileBytes || step.bytes > kMaxFileBytes - begin) break;
    next.push_back(Extent::at(Offset(begin), Length(step.bytes)));
  }
  return next;
}

}  // namespace sluice::lockmgr
