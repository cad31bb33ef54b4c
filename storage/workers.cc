#include "storage/workers.h"

#include <algorithm>
#include <atomic>

namespace sluice::storage {

struct Workers::Batch {
  Batch(size_t n, const std::function<void(size_t)>& w) : count(n), work(w) {}

  const size_t count;
  const std::function<void(size_t)>& work;  // used only for indexes below count, while run() waits
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::condition_variable all_done;
  size_t done = 0;  // under mutex
};

Workers::Workers(size_t threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { help(); });
}

Workers::~Workers() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::take_part(Batch& batch) {
  while (true) {
    const size_t index = batch.next.fetch_add(1);
    if (index >= batch.count) return;
    batch.work(index);
    std::lock_guard lock(batch.mutex);
    if (++batch.done == batch.count) batch.all_done.notify_all();
  }
}

void Workers::help() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::shared_ptr<Batch> batch = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    take_part(*batch);
    lock.lock();
  }
}

void Workers::run(size_t count, const std::function<void(size_t)>& work) {
  const size_t helpers = count == 0 ? 0 : std::min(threads_.size(), count - 1);
  if (helpers == 0) {
    for (size_t index = 0; index < count; ++index) work(index);
    return;
  }
  const auto batch = std::make_shared<Batch>(count, work);
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < helpers; ++i) waiting_.push_back(batch);
  }
  for (size_t i = 0; i < helpers; ++i) wake_.notify_one();
  take_part(*batch);
  std::unique_lock lock(batch->mutex);
  batch->all_done.wait(lock, [&] { return batch->done == batch->count; });
}

}  // namespace sluice::storage
