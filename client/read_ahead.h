#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "client/pieces.h"
#include "client/told.h"

namespace sluice::client {

// Of one file: where the bytes lie that the next reads will want. A program that reads on asks the service
// once for many reads; those after the first are copies out of mapped memory, as long as nobody changed the
// file meanwhile.
//
// What is kept pins a part of the hot tier. It is given up when it was not used for a while, when it is old,
// and when the service wants room.
//
// Any thread, but for what says otherwise.
class ReadAhead {
 public:
  static constexpr uint64_t kLeastBytes = uint64_t{1} << 20;
  static constexpr uint64_t kMostBytes = uint64_t{16} << 20;
  static constexpr uint64_t kIdleMs = 20;
  static constexpr uint64_t kOldMs = 1000;

  // This extent is about to be read from the service: how many bytes behind it to ask for. 0 when reads do
  // not go forward, and mostly so where what was told was of no use: somebody writes the file all the time.
  uint64_t wanted(Extent extent);
  // What the service told of `extent` and of told->ahead() bytes behind it.
  void keep(std::shared_ptr<const Told> told, Extent extent, uint64_t now_ms);

  // Whether all of the plan is kept; serve() looks whether that still stands.
  bool has(std::span<const Batch> plan) const;
  // Reads the whole plan out of what is kept, when that holds all of it and still stands: its bytes. Nothing
  // otherwise, and then memory may have been written to.
  std::optional<uint64_t> serve(std::span<const Batch> plan, uint64_t now_ms);

  // Pins that nobody needs any more. `all`: what is kept is given up too, but for what is being read from.
  std::vector<uint64_t> take_spent(uint64_t now_ms, bool all);
  // Whether there is anything that take_spent() may answer later.
  bool holds_pins() const;

 private:
  struct Kept {
    std::shared_ptr<const Told> told;
    Extent extent;
    uint64_t since_ms = 0;
    uint64_t used_ms = 0;
    bool used = false;
  };
  bool covers(std::span<const Batch> plan) const;  // with the mutex
  void retire();
  bool is_old(uint64_t now_ms) const { return now_ms > kept_->since_ms + kOldMs; }

  mutable std::mutex mutex_;
  std::optional<Kept> kept_;
  std::vector<std::shared_ptr<const Told>> retired_;  // perhaps still being read from
  Offset last_end_;
  uint64_t ahead_ = 0;
  unsigned in_vain_ = 0;  // kept and never used, one after the other
  unsigned spared_ = 0;   // reads since then
};

}  // namespace sluice::client
