#include "burst_buffer/sim_domain.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/rng.h"

namespace sluice::burst_buffer {

Result<> SimDomain::persist(const void* begin, size_t length) {
  const auto* from = static_cast<const std::byte*>(begin);
  SLUICE_ASSERT(from >= memory_.data() &&
                length <= memory_.size() - static_cast<size_t>(from - memory_.data()));
  if (on_persist_) on_persist_();
  {
    const std::lock_guard lock(mutex_);
    const uint64_t number = persists_++;
    if (failing_ == number) return fail(ErrorCode::kIo, "the simulated medium failed");
    std::memcpy(persisted_.data() + (from - memory_.data()), from, length);
  }
  if (on_persist_) on_persist_();
  return {};
}

uint64_t SimDomain::persists() const {
  const std::lock_guard lock(mutex_);
  return persists_;
}

std::shared_ptr<SimDomain> SimDomain::after_process_crash() const {
  const std::lock_guard lock(mutex_);
  auto next = std::make_shared<SimDomain>(memory_.size());
  next->memory_ = memory_;
  next->persisted_ = persisted_;
  next->existed_ = true;
  return next;
}

std::shared_ptr<SimDomain> SimDomain::after_power_loss(uint64_t seed) const {
  const std::lock_guard lock(mutex_);
  auto next = std::make_shared<SimDomain>(memory_.size());
  next->existed_ = true;
  SeededRng rng(seed);
  // One seed in eight loses everything that was not persisted, one loses nothing; the others lose a share of
  // the words.
  const uint64_t kept_of_8 = rng.below(9);
  constexpr size_t kWord = 8;
  constexpr size_t kBlock = 4096;
  next->memory_ = persisted_;
  for (size_t block = 0; block < memory_.size(); block += kBlock) {
    const size_t end = std::min(block + kBlock, memory_.size());
    if (std::memcmp(memory_.data() + block, persisted_.data() + block, end - block) == 0) continue;
    for (size_t at = block; at < end; at += kWord) {
      const size_t bytes = std::min(kWord, end - at);
      if (rng.below(8) < kept_of_8) std::memcpy(next->memory_.data() + at, memory_.data() + at, bytes);
    }
  }
  next->persisted_ = next->memory_;
  return next;
}

}  // namespace sluice::burst_buffer
