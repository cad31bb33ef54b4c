#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/extent_map.h"
#include "burst_buffer/slab_pool.h"
#include "burst_buffer/stage_index.h"

namespace sluice::burst_buffer {

// Committed bytes that the storage tier has and the hot tier holds as well, because it had them before or
// somebody read them: readers find them here until their room is wanted. Nothing is lost with them, and no
// restart brings them back.
//
// What is kept of a container are its newest committed bytes: who commits others, cuts the file or removes it
// says so here before anybody can read. Under the hot tier's mutex, as all that knows of holds.
class CleanCache {
 public:
  static constexpr size_t kMaxPieces = size_t{1} << 18;

  // A rest of a piece that is shorter than `least_bytes` is not worth its place here.
  explicit CleanCache(uint64_t least_bytes) : least_bytes_(least_bytes) {}
  CleanCache(const CleanCache&) = delete;
  CleanCache& operator=(const CleanCache&) = delete;

  // These bytes of the container lie at `offset` of that slab.
  void keep(ContainerId container, Extent extent, std::shared_ptr<SlabHold> hold, uint64_t offset);
  // The log needs this slab no more: what is kept of it is all that holds it, but for readers.
  void spare(const SlabHold& hold);

  void changed(ContainerId container, Extent extent);
  void cut(ContainerId container, Length size);
  void forget(ContainerId container);

  // What was looked up, with the parts that the storage tier has of what is committed replaced by what is
  // kept.
  std::vector<StagedSegment> fill_in(ContainerId container, std::vector<StagedSegment> found) const;

  // Gives up the slab that came first. False when nothing is left to give up.
  bool give_up_one();
  // Gives up the slab that begins here. False when nothing of it is kept.
  bool give_up(uint64_t slab_offset);
  // Bytes of the data area that giving up everything would free, once no reader has a pin on them.
  uint64_t spare_bytes() const { return spare_bytes_; }
  // Pieces of all containers, at most kMaxPieces.
  size_t pieces() const { return pieces_; }

 private:
  struct Kept {
    Kept(CleanCache& cache_, ContainerId container_, std::shared_ptr<SlabHold> hold_)
        : cache(cache_), container(container_), hold(std::move(hold_)) {}
    ~Kept() { cache.gone(*this); }

    CleanCache& cache;
    const ContainerId container;
    const std::shared_ptr<SlabHold> hold;
    std::vector<Extent> extents;  // all that were ever kept of it
    bool spare = false;
  };
  struct Piece {
    std::shared_ptr<Kept> kept;
    uint64_t offset = 0;
    Piece advanced(Length by) const { return {kept, offset + by.value}; }
  };
  using Pieces = ExtentMap<Piece>;

  void give_up(const std::shared_ptr<Kept>& kept);
  void gone(const Kept& kept);
  void make_room();
  // Erases the extent, and what is left beside it of pieces that reached into it when that is short.
  void cut_out(Pieces& pieces, Extent extent);

  const uint64_t least_bytes_;
  uint64_t spare_bytes_ = 0;
  size_t extents_ = 0;  // that were ever kept, of all that is kept
  size_t pieces_ = 0;
  std::unordered_map<uint64_t, std::weak_ptr<Kept>> by_slab_;  // by where the slab begins
  std::deque<std::weak_ptr<Kept>> in_order_;
  std::map<ContainerId, Pieces> containers_;  // before the others go: what is kept tells them
};

}  // namespace sluice::burst_buffer
