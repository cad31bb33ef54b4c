#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/shm/ring.h"
#include "transport/transport.h"

// Which memory of a process its peers may reach: written by the owner, read by the peers from a mapping of
// their own. The peer that copies obeys it; between processes of one user nothing could make it.
namespace sluice::transport {

inline constexpr size_t kExposureSlots = 4096;

struct ExposureSlot {
  std::atomic<uint64_t> key;  // 0: free. Written last when exposed, first when withdrawn
  std::atomic<uint64_t> address;
  std::atomic<uint64_t> length;
  std::atomic<uint64_t> access;  // 1: read, 2: write
};
inline constexpr size_t kExposureTableBytes = kExposureSlots * sizeof(ExposureSlot);

class ExposureTable {
 public:
  static Result<ExposureTable> create();

  // kBusy when all slots are taken.
  Result<RemoteBuffer> expose(std::span<std::byte> memory, Access access);
  // From now on no copy starts. One that has started is for the caller to wait for.
  void withdraw(uint64_t key);
  const UniqueFd& descriptor() const { return fd_; }

 private:
  ExposureTable(SharedMapping mapping, UniqueFd fd);
  ExposureSlot* slots() const { return reinterpret_cast<ExposureSlot*>(mapping_.data()); }

  SharedMapping mapping_;
  UniqueFd fd_;
  std::vector<uint16_t> free_slots_;
};

// True when the peer's table lets [address, address + length) be reached with this key.
bool may_reach(const SharedMapping& table, uint64_t key, uint64_t address, uint64_t length, Access access);

// Copies between this process and another, by the kernel.
Result<> copy_from_process(pid_t process, uint64_t address, std::span<std::byte> into);
Result<> copy_to_process(pid_t process, uint64_t address, std::span<const std::byte> from);

}  // namespace sluice::transport
