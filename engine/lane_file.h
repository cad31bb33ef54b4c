#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/os.h"
#include "base/result.h"
#include "burst_buffer/hot_tier.h"
#include "protocol/lane_layout.h"

// POOL/lane: which parts of the hot tier were handed to processes that fill them by themselves. FORMAT.md,
// "Grants", has the layout.
//
// It outlives the server's process as the hot tier does, so that a server that is started again leaves alone
// what such a process may be writing to at this moment, and its bytes are there when the process comes back
// to tell of them. After a power loss it says nothing of use, and nothing that harms: a range that it names
// is kept for a recovery window and then free.
//
// The first words tell every process that maps it which server is in charge: bytes that were read out of the
// hot tier while the word stood still were not given to anybody else meanwhile.
namespace sluice::engine {

using protocol::LaneHeader;

inline constexpr size_t kLaneEntries = 4096;

struct LaneEntry {
  std::atomic<uint64_t> grant;  // its secret number; 0: no entry. Written last
  uint64_t offset;              // in the data area
  uint64_t length;
  uint32_t process;
  uint32_t check;  // CRC32C of the 28 bytes before, with the grant's number
};
static_assert(sizeof(LaneEntry) == 32);

// One thread.
class LaneFile {
 public:
  // Makes the file when there is none, or none of this kind. `boot` is the new server's number; it is not
  // seen before take_charge().
  static Result<std::unique_ptr<LaneFile>> open(const std::filesystem::path& path, uint64_t boot);
  ~LaneFile();

  struct Found {
    uint64_t grant = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    uint32_t process = 0;
    size_t entry = 0;
  };
  std::vector<Found> entries() const;
  void take_charge() { header().boot.store(boot_, std::memory_order_seq_cst); }
  uint64_t boot() const { return boot_; }

  // kBusy when there is no entry left. Seen by a later server on return.
  Result<size_t> add(uint64_t grant, uint64_t offset, uint64_t length, uint32_t process);
  void remove(size_t entry);

  // For others to read only.
  const UniqueFd& readable() const { return readable_; }

 private:
  LaneFile(UniqueFd readable, std::byte* memory, uint64_t boot)
      : readable_(std::move(readable)), memory_(memory), boot_(boot) {}
  LaneHeader& header() const { return *reinterpret_cast<LaneHeader*>(memory_); }
  std::span<LaneEntry> table() const {
    return {reinterpret_cast<LaneEntry*>(memory_ + sizeof(LaneHeader)), kLaneEntries};
  }

  const UniqueFd readable_;
  std::byte* const memory_;
  const uint64_t boot_;
  size_t next_ = 0;
};

}  // namespace sluice::engine
