#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::storage {

// The most shards one stripe may have.
inline constexpr uint32_t kMaxShards = 64;

// How a container's stripes are spread and protected. A value; pure.
//
//   S1..S64, SX  n data shards, no redundancy; SX is as many as the pool has targets
//   RP_2, RP_3   whole copies
//   EC_kPm       k data and m parity shards: EC_2P1, EC_4P1, EC_4P2, EC_8P2
//
// Any m shards of a stripe can be lost without losing a byte.
class ObjectClass {
 public:
  // Nothing was said: the pool's default is meant. k(), m() and width() are 0.
  constexpr ObjectClass() = default;

  // The exact names above. kInvalidArgument names the nearest class.
  static Result<ObjectClass> parse(std::string_view name);
  // 1 target: S1, 2: RP_2, 3 and 4: EC_2P1, 5: EC_4P1, 6 to 9: EC_4P2, more: EC_8P2.
  static ObjectClass default_for(size_t targets);
  // The class with redundancy whose stripes lie on so many targets, of several the one with the most data;
  // unspecified when there is none.
  static ObjectClass protected_of_width(size_t targets);

  // parse(name()) is the same class; an unspecified one is printed as "default" and cannot be parsed.
  std::string name() const;

  bool specified() const { return k_ != 0 || spans_pool_; }
  // True for SX until resolve() has given it a width.
  bool spans_pool() const { return spans_pool_; }
  uint32_t k() const { return k_; }
  uint32_t m() const { return m_; }
  uint32_t width() const { return k_ + m_; }

  // Can every stripe have its shards on different targets?
  bool fits(size_t targets) const;
  // The class as stripes of a pool with so many targets are written: SX gets its width, an unspecified class
  // becomes the default. kInvalidArgument, with the reason and the nearest class that fits, when it does not
  // fit.
  Result<ObjectClass> resolve(size_t targets) const;

  bool operator==(const ObjectClass&) const = default;

 private:
  constexpr ObjectClass(uint32_t k, uint32_t m) : k_(k), m_(m) {}
  ObjectClass nearest_that_fits(size_t targets) const;

  uint32_t k_ = 0;
  uint32_t m_ = 0;
  bool spans_pool_ = false;
};

}  // namespace sluice::storage
