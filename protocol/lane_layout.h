#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// What a service and the processes that map its hot tier both know of that memory, and of POOL/lane, whose
// first words are a LaneHeader (FORMAT.md, "Grants").
namespace sluice::protocol {

inline constexpr uint64_t kLaneMagic = 0x31454E414C434C53;  // "SLCLANE1"

struct LaneHeader {
  uint64_t magic;
  std::atomic<uint64_t> boot;  // of the service in charge; changes before a new one frees anything
  uint64_t unused[6];
};
static_assert(sizeof(LaneHeader) == 64);

// A memfd beside them. The word of a container moves with each change of what its readers would see: by the
// service before anybody sees the change, and by a process that goes on before the service knows of one, when
// it has told it. Whoever asked the service about the container when the word stood where it stands now, may
// go by the answer. Containers share words.
inline constexpr size_t kChangeWords = 64;
struct ChangeWord {
  alignas(64) std::atomic<uint64_t> count;
};
inline constexpr size_t kChangeBoardBytes = kChangeWords * sizeof(ChangeWord);

inline std::atomic<uint64_t>& change_word(std::byte* board, uint64_t container) {
  return reinterpret_cast<ChangeWord*>(board)[container % kChangeWords].count;
}

// Slabs begin at multiples of this, and take up a multiple of it.
inline constexpr uint64_t kSlabGranuleBytes = 512;

constexpr uint64_t slab_footprint(uint64_t bytes) {
  return (bytes + kSlabGranuleBytes - 1) / kSlabGranuleBytes * kSlabGranuleBytes;
}

}  // namespace sluice::protocol
