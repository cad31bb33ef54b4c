#pragma once

#include <cstdint>
#include <random>

namespace sluice {

// Randomness as a substitutable thing: seeded, so that what it decided can be replayed. Not thread-safe.
class Rng {
 public:
  virtual ~Rng() = default;
  virtual uint64_t next() = 0;

  // Uniform in [0, bound); bound > 0.
  uint64_t below(uint64_t bound) { return next() % bound; }
};

class SeededRng final : public Rng {
 public:
  explicit SeededRng(uint64_t seed) : engine_(seed) {}
  uint64_t next() override { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace sluice
