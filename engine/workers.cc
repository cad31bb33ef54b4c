#include "engine/workers.h"

#include "base/assert.h"

namespace sluice::engine {

ThreadWorkers::ThreadWorkers(unsigned threads) {
  SLUICE_ASSERT(threads > 0);
  for (unsigned i = 0; i < threads; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->thread = std::thread([this, lane = lanes_.back().get()] { serve(*lane); });
  }
}

ThreadWorkers::~ThreadWorkers() {
  for (auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    lane->stopping = true;
    lane->wakeup.notify_one();
  }
  for (auto& lane : lanes_) lane->thread.join();
}

void ThreadWorkers::run(uint64_t key, std::function<void()> work) {
  Lane& lane = *lanes_[key % lanes_.size()];
  const std::lock_guard lock(lane.mutex);
  lane.queue.push_back(std::move(work));
  lane.wakeup.notify_one();
}

void ThreadWorkers::serve(Lane& lane) {
  std::unique_lock lock(lane.mutex);
  while (true) {
    lane.wakeup.wait(lock, [&] { return lane.stopping || !lane.queue.empty(); });
    if (lane.queue.empty()) return;
    auto work = std::move(lane.queue.front());
    lane.queue.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace sluice::engine
