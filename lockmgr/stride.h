#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/extent.h"

namespace sluice::lockmgr {

// Recognises regular accesses: one after the other, forward or backward, with gaps, and nested (runs with a
// jump between them, as a file domain cut into chunks gives). Pure; not thread-safe.
//
// A step is how far an access begins from the one before, and how long it is. A pattern of period p is there
// when the last p steps are the p steps before them again; the smallest p counts. Of period 1 a single step
// is enough while it is the only one ever seen.
//
// observe(): O(1) while the pattern holds, O(kMaxPeriod^2) when it breaks.
class StridePredictor {
 public:
  static constexpr size_t kMaxPeriod = 32;

  void observe(const Extent& access);
  // The next `count` accesses after the newest; fewer when the pattern leaves the file, none without one.
  std::vector<Extent> predict(size_t count) const;
  bool regular() const { return period_ != 0; }
  // How many accesses in a row came as predicted.
  uint64_t confirmed() const { return confirmed_; }

 private:
  struct Step {
    int64_t distance = 0;
    uint64_t bytes = 0;
    bool operator==(const Step&) const = default;
  };

  bool repeats(size_t period) const;
  size_t find_period() const;

  std::deque<Step> steps_;  // the newest last, at most 2 * kMaxPeriod
  Extent last_;
  bool seen_ = false;
  bool first_step_ = false;  // only one step was ever seen
  size_t period_ = 0;        // 0: no pattern
  uint64_t confirmed_ = 0;
};

}  // namespace sluice::lockmgr
