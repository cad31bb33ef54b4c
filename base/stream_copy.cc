#include "base/stream_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace sluice {

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kWorthwhileBytes = 4096;
  constexpr size_t kLineBytes = 64;
  if (bytes >= kWorthwhileBytes && reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) == 0) {
    const size_t lines = bytes / kLineBytes * kLineBytes;
    for (size_t at = 0; at < lines; at += kLineBytes) {
      const auto* in = reinterpret_cast<const __m128i*>(from + at);
      auto* out = reinterpret_cast<__m128i*>(to + at);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    std::memcpy(to + lines, from + lines, bytes - lines);
    _mm_sfence();
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace sluice
