#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::burst_buffer {

// A mapped pool of bytes and the way they are made durable. Thread-safe: several threads may persist disjoint
// ranges.
//
// Stores into memory() survive a crash of the process at once, in any order and in part; they survive a power
// loss when persist() of their range has returned. An aligned 8-byte store is never torn.
class PersistDomain {
 public:
  virtual ~PersistDomain() = default;
  virtual std::span<std::byte> memory() = 0;
  // False for a fresh pool, whose memory is all zeros where the staging log keeps its headers.
  virtual bool existed() const = 0;
  virtual Result<> persist(const void* begin, size_t length) = 0;
  // Every one of these ranges, in no order among them. May persist what lies between them too: on a disk the
  // price is one wait for the device, whatever the number of ranges.
  virtual Result<> persist_all(std::vector<std::span<const std::byte>> ranges) {
    for (const auto& range : ranges) {
      if (auto ok = persist(range.data(), range.size()); !ok) return ok;
    }
    return {};
  }
  // The file whose bytes from `offset` on memory() is a shared mapping of; nothing when there is none.
  // Whoever maps it too shares the memory.
  struct Backing {
    std::string path;
    uint64_t offset = 0;
    bool in_memory = false;  // touching pages causes no disk writes
  };
  virtual std::optional<Backing> backing() const { return std::nullopt; }
  // "persistent memory", "memory file", "disk": for the status, in plain words.
  virtual std::string medium() const = 0;
  // What it outlives: "power loss", "process crash".
  virtual std::string survives() const = 0;
};

}  // namespace sluice::burst_buffer
