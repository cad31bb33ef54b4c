#include "server/healer.h"

#include <chrono>
#include <string>

#include "base/log.h"

namespace sluice::server {

Healer::Healer(storage::ObjectStore& store, uint64_t period_ms, uint64_t looks_to_compare)
    : store_(store), period_ms_(period_ms), looks_to_compare_(looks_to_compare), thread_([this] { run(); }) {}

Healer::~Healer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Healer::run() {
  const auto stopping = [this] {
    const std::lock_guard lock(mutex_);
    return stopping_;
  };
  std::string said;
  for (uint64_t look = 1; !stopping(); ++look) {
    if (look % looks_to_compare_ == 0) store_.compare_all_again();
    const auto healed = store_.heal(stopping);
    const std::string trouble = healed ? "" : healed.error().message;
    if (!trouble.empty() && trouble != said) log::warn("{}", trouble);
    said = trouble;
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::milliseconds(period_ms_), [this] { return stopping_; });
  }
}

}  // namespace sluice::server
