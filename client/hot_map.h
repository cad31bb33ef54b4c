#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/os.h"
#include "base/result.h"
#include "protocol/lane_layout.h"
#include "protocol/message.h"

namespace sluice::client {

namespace wire = protocol::wire;

// The hot tier of a service on this host, mapped. Any thread.
class HotMap {
 public:
  // Of the files that the service lent. Null when they cannot be mapped, or are not what they should be.
  static std::shared_ptr<HotMap> make(std::span<const UniqueFd> lent, const wire::LaneT& terms);
  ~HotMap();
  HotMap(const HotMap&) = delete;
  HotMap& operator=(const HotMap&) = delete;

  bool same(std::span<const UniqueFd> lent, const wire::LaneT& terms) const;
  bool holds(uint64_t offset, uint64_t bytes) const { return offset <= bytes_ && bytes <= bytes_ - offset; }
  std::byte* at(uint64_t offset) const { return area_ + offset; }
  // Which service is in charge of the area.
  uint64_t boot() const { return header_->boot.load(std::memory_order_seq_cst); }
  // Of the service that this process talks to.
  void set_expected_boot(uint64_t boot) { expected_boot_.store(boot); }
  uint64_t expected_boot() const { return expected_boot_.load(); }

  // Before bytes are stored there: one call for many pages instead of a fault for each.
  void make_present(uint64_t offset, uint64_t bytes);
  // Copies out of the area. A page that is not present in this process costs more to map than to have the
  // kernel copy from.
  Result<> copy(uint64_t offset, std::span<std::byte> to) const;

 private:
  HotMap() = default;

  UniqueFd file_;
  uint64_t file_offset_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::byte* area_ = nullptr;
  uint64_t skip_ = 0;
  uint64_t bytes_ = 0;
  bool in_memory_ = false;
  const protocol::LaneHeader* header_ = nullptr;
  std::atomic<uint64_t> expected_boot_ = 0;
  std::vector<std::atomic<bool>> present_;
};

}  // namespace sluice::client
