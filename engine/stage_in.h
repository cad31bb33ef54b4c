#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/context.h"

namespace sluice::engine {

// Brings committed bytes of the storage tier into the hot tier, where readers map them. Whole checksum blocks
// of the file at a time, since the storage tier reads those anyway; what two readers want of the same blocks
// is brought once.
//
// A hot tier on a disk is left as it is: what is brought there would be written to the disk. Loop thread.
class StageIn {
 public:
  explicit StageIn(Context& context);

  bool usable() const { return usable_; }
  // Then calls `done`, whether the bytes could be had or not: where they are is the hot tier's to say.
  void bring(ContainerId container, const std::vector<Extent>& extents, std::function<void()> done);

 private:
  struct Flight {
    std::vector<Extent> blocks;
    std::vector<std::function<void()>> after;  // for who wants some of the same blocks
  };
  using Flights = std::multimap<ContainerId, std::shared_ptr<Flight>>;

  void bring_blocks(ContainerId container, std::vector<Extent> blocks, std::function<void()> done);
  // On a worker.
  void load(ContainerId container, const std::vector<Extent>& blocks);

  Context& context_;
  const bool usable_;
  Flights flights_;
  uint64_t turn_ = 0;  // over the workers
};

// The checksum blocks of a file that hold these extents, in order, neighbours as one. Pure.
std::vector<Extent> blocks_around(std::vector<Extent> extents);
// Whether two such lists have a byte in common. Pure.
bool have_common(const std::vector<Extent>& a, const std::vector<Extent>& b);

}  // namespace sluice::engine
