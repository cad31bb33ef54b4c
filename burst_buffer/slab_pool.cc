#include "burst_buffer/slab_pool.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace sluice::burst_buffer {

SlabHold::~SlabHold() {
  if (pool_) pool_->released(*this);
}

StripeHold::~StripeHold() {
  if (pool_) pool_->released(*this);
}

SlabPool::SlabPool(std::shared_ptr<PersistDomain> domain, uint64_t data_offset, uint64_t data_bytes)
    : domain_(std::move(domain)),
      data_(domain_->memory().subspan(data_offset, data_bytes)),
      allocator_(data_bytes) {}

std::optional<Slab> SlabPool::allocate(Length length) {
  const std::lock_guard lock(mutex_);
  return allocator_.allocate(length);
}

void SlabPool::free(const Slab& slab) {
  const std::lock_guard lock(mutex_);
  allocator_.free(slab);
}

std::vector<Slab> SlabPool::claim(uint64_t begin, uint64_t end) {
  const std::lock_guard lock(mutex_);
  return allocator_.take_free(begin, end);
}

std::span<std::byte> SlabPool::bytes(const Slab& slab) const {
  return data_.subspan(slab.offset, slab.length.value);
}

void SlabPool::adopt(const std::shared_ptr<SlabHold>& hold) {
  const std::lock_guard lock(mutex_);
  hold->pool_ = shared_from_this();
  holds_[hold->slab.offset] = hold;
}

bool SlabPool::adopt_found(const std::shared_ptr<SlabHold>& hold) {
  const std::lock_guard lock(mutex_);
  if (!allocator_.take(hold->slab)) return false;
  hold->pool_ = shared_from_this();
  holds_[hold->slab.offset] = hold;
  return true;
}

std::shared_ptr<SlabHold> SlabPool::hold_at(uint64_t slab_offset) const {
  const std::lock_guard lock(mutex_);
  const auto found = holds_.find(slab_offset);
  return found == holds_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<StripeHold> SlabPool::stripe(ContainerId container, StripeId stripe) {
  // A dying hold must not be the last reference while the mutex is held, so it is made outside.
  auto fresh = std::make_shared<StripeHold>(container, stripe);
  const std::lock_guard lock(mutex_);
  auto& known = stripes_[stripe];
  if (auto living = known.lock()) return living;
  fresh->pool_ = shared_from_this();
  known = fresh;
  return fresh;
}

void SlabPool::offered(StripeId stripe) {
  std::shared_ptr<StripeHold> living;  // dropped after the mutex
  const std::lock_guard lock(mutex_);
  const auto found = stripes_.find(stripe);
  if (found != stripes_.end()) living = found->second.lock();
  if (living) living->offered_ = true;
}

void SlabPool::offered_unheld(ContainerId container, StripeId stripe) {
  const std::lock_guard lock(mutex_);
  unsettled_[container].push_back(stripe);
}

void SlabPool::settled(ContainerId container) {
  std::vector<std::shared_ptr<StripeHold>> living;  // dropped after the mutex
  const std::lock_guard lock(mutex_);
  for (const auto& [stripe, hold] : stripes_) {
    auto held = hold.lock();
    if (held && held->container == container) held->offered_ = false;
    if (held) living.push_back(std::move(held));
  }
  const auto unsettled = unsettled_.find(container);
  if (unsettled == unsettled_.end()) return;
  dead_stripes_.insert(dead_stripes_.end(), unsettled->second.begin(), unsettled->second.end());
  unsettled_.erase(unsettled);
}

std::set<StripeId> SlabPool::stripes_in_use() const {
  const std::lock_guard lock(mutex_);
  std::set<StripeId> used;
  for (const auto& [stripe, hold] : stripes_) used.insert(stripe);
  return used;
}

std::vector<StripeId> SlabPool::take_dead_stripes() {
  const std::lock_guard lock(mutex_);
  std::vector<StripeId> dead;
  // A number may have come back to life: a stripe placed before a restart is placed again only under a new
  // number, but two pieces of one stripe may come and go at different times.
  for (const StripeId stripe : std::exchange(dead_stripes_, {})) {
    if (!stripes_.contains(stripe)) dead.push_back(stripe);
  }
  return dead;
}

bool SlabPool::has_dead_stripes() const {
  const std::lock_guard lock(mutex_);
  return !dead_stripes_.empty();
}

uint64_t SlabPool::capacity_bytes() const {
  return allocator_.capacity_bytes();
}

uint64_t SlabPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocator_.used_bytes();
}

uint64_t SlabPool::largest_free_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocator_.largest_free_bytes();
}

void SlabPool::released(const SlabHold& hold) {
  const std::lock_guard lock(mutex_);
  holds_.erase(hold.slab.offset);
  allocator_.free(hold.slab);
}

void SlabPool::released(const StripeHold& hold) {
  const std::lock_guard lock(mutex_);
  const auto found = stripes_.find(hold.stripe);
  // Another hold of the same number may have been made between this one's last reference and now.
  const bool replaced = found != stripes_.end() && !found->second.expired();
  if (replaced) return;
  if (found != stripes_.end()) stripes_.erase(found);
  (hold.offered_ ? unsettled_[hold.container] : dead_stripes_).push_back(hold.stripe);
}

}  // namespace sluice::burst_buffer
