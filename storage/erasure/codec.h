#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"
#include "storage/erasure/plan.h"

namespace sluice::storage {

// The code over GF(2^8) (polynomial 0x11d) of one k and m. Systematic: data shards are the data. Parity row
// r, column c of the generator is 1 for k = 1 (copies) and for m = 1 (XOR), and 1 / ((k + r) xor c) otherwise
// (Cauchy): any k shards give all others. The generator is part of the on-media format.
//
// Thread-safe. Pointers are borrowed for the call; outputs must not overlap inputs or each other. No
// alignment is asked for.
class Codec {
 public:
  // k > 0, k + m <= kMaxShards.
  Codec(uint32_t k, uint32_t m);

  uint32_t k() const { return k_; }
  uint32_t m() const { return m_; }

  // `length` bytes of each of k data shards -> the same of m parity shards.
  void encode(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
              size_t length) const;

  // Rebuilds the shards `wanted` from exactly k others. `survivors` ascends; `sources` and `out` are in the
  // order of `survivors` and `wanted`.
  void rebuild(std::span<const ShardIndex> survivors, std::span<const std::byte* const> sources,
               std::span<const ShardIndex> wanted, std::span<std::byte* const> out, size_t length) const;

 private:
  using Tables = std::vector<unsigned char>;
  // One table for each (survivors, wanted) seen; there are few, as k + m is small where m > 0.
  std::shared_ptr<const Tables> rebuild_tables(std::span<const ShardIndex> survivors,
                                               std::span<const ShardIndex> wanted) const;
  Tables make_rebuild_tables(std::span<const ShardIndex> survivors, std::span<const ShardIndex> wanted) const;

  uint32_t k_;
  uint32_t m_;
  std::vector<unsigned char> generator_;  // (k + m) rows of k
  Tables encode_tables_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<ShardSet, ShardSet>, std::shared_ptr<const Tables>> rebuild_tables_;
};

}  // namespace sluice::storage
