#include "storage/buffer_pool.h"

#include <algorithm>

#include "base/assert.h"

namespace sluice::storage {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

BufferPool::Buffer::~Buffer() {
  if (pool_ == nullptr || memory_ == nullptr) return;
  BufferPool* pool = pool_;
  pool->give_back(std::move(*this));
}

BufferPool::Buffer BufferPool::take(size_t size_bytes) {
  SLUICE_ASSERT(size_bytes > 0);
  {
    std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (at->capacity_ >= size_bytes && (best == free_.end() || at->capacity_ < best->capacity_)) best = at;
    }
    if (best != free_.end()) {
      Buffer taken(std::move(*best));
      free_.erase(best);
      kept_bytes_ -= taken.capacity_;
      taken.pool_ = this;
      taken.size_ = size_bytes;
      return taken;
    }
  }
  Buffer fresh;
  fresh.pool_ = this;
  fresh.size_ = size_bytes;
  fresh.capacity_ = (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  fresh.memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, fresh.capacity_)));
  SLUICE_ASSERT(fresh.memory_ != nullptr);
  return fresh;
}

void BufferPool::give_back(Buffer buffer) {
  buffer.pool_ = nullptr;  // a buffer that does not fit is freed, not given back again
  std::lock_guard lock(mutex_);
  if (kept_bytes_ + buffer.capacity_ > kMaxKeptBytes) return;
  kept_bytes_ += buffer.capacity_;
  free_.push_back(std::move(buffer));
}

}  // namespace sluice::storage
