#pragma once

#include <sched.h>
#include <sys/types.h>

#include <fstream>
#include <string>

namespace sluice::testing {

// Returns when a thread of this process is seen to sleep, look after look: it waits for somebody, and not for
// a mutex that a thread beside it is about to leave.
inline void wait_until_asleep(pid_t thread) {
  constexpr int kLooks = 20;
  for (int seen = 0; seen < kLooks;) {
    std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    std::getline(in, text);
    const size_t name_end = text.rfind(')');
    const bool asleep = name_end != std::string::npos && text.compare(name_end, 3, ") S") == 0;
    seen = asleep ? seen + 1 : 0;
    ::sched_yield();
  }
}

}  // namespace sluice::testing
