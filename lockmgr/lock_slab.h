#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/assert.h"
#include "lockmgr/lock_types.h"

namespace sluice::lockmgr {

// What a table knows of one extent, granted or waiting, beside its place in a tree.
struct LockSlot {
  enum class State : uint8_t { kFree, kGranted, kRevoked, kWaiting };

  Extent extent;
  OwnerId owner;
  GroupId group;
  // Granted: the place in the owner's list. Waiting: the request's ticket. Free: the next free slot.
  uint64_t link = 0;
  uint32_t generation = 0;
  LockMode mode = LockMode::kPw;
  State state = State::kFree;
  bool ordinary = false;  // taken by a blocking request
};
static_assert(sizeof(LockSlot) == 48);

// Slots by index, in blocks that do not move. Pure; not thread-safe. Memory is kept for reuse until
// destruction.
class LockSlab {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kMaxSlots = size_t{1} << 26;

  explicit LockSlab(uint32_t first_generation) : next_generation_(first_generation) {}

  uint32_t allocate() {
    if (free_ == kNone) add_block();
    const uint32_t index = free_;
    LockSlot& slot = (*this)[index];
    free_ = static_cast<uint32_t>(slot.link);
    slot.generation = next_generation_;
    // 0 is left out, so that no handle is ever kNoLock.
    next_generation_ = next_generation_ == UINT32_MAX ? 1 : next_generation_ + 1;
    ++used_;
    return index;
  }

  void release(uint32_t index) {
    LockSlot& slot = (*this)[index];
    SLUICE_ASSERT(slot.state != LockSlot::State::kFree);
    slot.state = LockSlot::State::kFree;
    slot.link = free_;
    free_ = index;
    --used_;
  }

  LockSlot& operator[](uint32_t index) { return (*blocks_[index / kBlockSlots])[index % kBlockSlots]; }
  const LockSlot& operator[](uint32_t index) const {
    return (*blocks_[index / kBlockSlots])[index % kBlockSlots];
  }

  LockHandle handle_of(uint32_t index) const {
    return LockHandle(uint64_t{(*this)[index].generation} << 32 | index);
  }
  // The slot of a handle that is held now, or kNone: for a handle from anywhere.
  uint32_t granted_index(LockHandle handle) const {
    const uint32_t index = static_cast<uint32_t>(handle.value);
    if (index >= blocks_.size() * kBlockSlots) return kNone;
    const LockSlot& slot = (*this)[index];
    const bool held = slot.state == LockSlot::State::kGranted || slot.state == LockSlot::State::kRevoked;
    return held && slot.generation == handle.value >> 32 ? index : kNone;
  }

  size_t used() const { return used_; }
  uint32_t next_generation() const { return next_generation_; }
  size_t memory_bytes() const {
    return blocks_.size() * sizeof(Block) + blocks_.capacity() * sizeof(blocks_[0]);
  }

 private:
  static constexpr uint32_t kBlockSlots = 256;
  using Block = std::array<LockSlot, kBlockSlots>;

  void add_block() {
    SLUICE_ASSERT(blocks_.size() * kBlockSlots < kMaxSlots);
    const auto base = static_cast<uint32_t>(blocks_.size() * kBlockSlots);
    blocks_.push_back(std::make_unique<Block>());
    for (uint32_t i = kBlockSlots; i-- > 0;) {
      (*this)[base + i].link = free_;
      free_ = base + i;
    }
  }

  std::vector<std::unique_ptr<Block>> blocks_;
  uint32_t free_ = kNone;
  uint32_t next_generation_;
  size_t used_ = 0;
};

}  // namespace sluice::lockmgr
