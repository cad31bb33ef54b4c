#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "transport/sim/sim_network.h"

// For tests: every failure in this scope names the seed; SLUICE_SIM_SEED=N in the environment replays it.
#define SLUICE_TRACE_SEED(network) \
  SCOPED_TRACE(::testing::Message() << "replay with SLUICE_SIM_SEED=" << (network).seed())

namespace sluice::transport {

inline uint64_t seed_or(uint64_t fallback) {
  const char* text = std::getenv("SLUICE_SIM_SEED");
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

}  // namespace sluice::transport
