#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

// Time as a substitutable thing. Monotonic; the zero is arbitrary. Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now_ms() const = 0;
};

class SteadyClock final : public Clock {
 public:
  uint64_t now_ms() const override {
    using namespace std::chrono;
    return static_cast<uint64_t>(duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count());
  }
};

}  // namespace sluice
