#pragma once

#include <cstdio>
#include <cstdlib>

// Stays on in release. For promises of our own code; never for input.
#define SLUICE_ASSERT(condition)                                                                      \
  do {                                                                                                \
    if (!(condition)) [[unlikely]] {                                                                  \
      std::fprintf(stderr, "sluice: broken assertion %s at %s:%d\n", #condition, __FILE__, __LINE__); \
      std::abort();                                                                                   \
    }                                                                                                 \
  } while (false)
