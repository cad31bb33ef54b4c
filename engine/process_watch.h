#pragma once

#include <cstdint>

#include "base/os.h"

namespace sluice::engine {

// Tells when a process of this host has ended; another that gets its number later does not count.
class ProcessWatch {
 public:
  explicit ProcessWatch(uint32_t process);
  // Without a descriptor to watch (an older kernel) the number is asked for.
  bool ended() const;

 private:
  uint32_t process_;
  UniqueFd watched_;
};

}  // namespace sluice::engine
