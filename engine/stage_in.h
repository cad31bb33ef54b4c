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
// of the file at a time, since the storage tier reads those anyway. A block is never under way twice: who
// wants it meanwhile waits for the same flight, and goes on with all the others at its end.
//
// A hot tier on a disk is left as it is: what is brought there would be written to the disk. Loop thread.
class StageIn {
 public:
  explicit StageIn(Context& context);

  bool usable() const { return usable_; }
  // Then calls `done`, whether the bytes could be had or not: where they are is the hot tier's to say. At
  // once when they are more than is brought at a time.
  void bring(ContainerId container, const std::vector<Extent>& extents, std::function<void()> done);

 private:
  struct Waiter {
    size_t flights = 0;  // that it waits for
    std::function<void()> done;
  };
  struct Flight {
    std::vector<Extent> blocks;
    std::vector<std::shared_ptr<Waiter>> waiters;
  };
  using Flights = std::multimap<ContainerId, std::shared_ptr<Flight>>;

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
// The first of two such lists, without what is in the second. Pure.
std::vector<Extent> without(const std::vector<Extent>& from, const std::vector<Extent>& what);

}  // namespace sluice::engine
