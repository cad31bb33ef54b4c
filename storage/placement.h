#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/types.h"
#include "storage/erasure/plan.h"
#include "storage/target.h"

namespace sluice::storage {

// No target: the shard was left out, and the pool has none that it could be promised to.
inline constexpr TargetId kNoTarget{UINT32_MAX};

struct TargetLoad {
  TargetId id;
  TargetState state = TargetState::kMissing;
  TargetUsage usage;
  std::string why = {};  // it is missing: a sentence
};

// How many targets beyond the least loaded ones may be drawn: enough that writers who see the same loads do
// not all pick the same targets, few enough that no loaded target is picked while emptier ones are not in the
// draw.
inline constexpr size_t kPlacementSlack = 2;
// And how many shards more such a target may already hold than the least loaded one.
inline constexpr uint64_t kPlacementSlackShards = 4;

struct Placement {
  std::vector<TargetId> shards;  // by shard index, distinct; kNoTarget for those left out (parity first)
  std::vector<TargetId> spares;  // usable targets that were not chosen, least loaded first
  // By shard index, kNoTarget for the chosen ones: where a shard that was left out belongs, on a target that
  // is missing or full now.
  std::vector<TargetId> promised;
};

// Where the shards of a new stripe go: distinct targets with room for `shard_bytes`, drawn at random from the
// width + slack least loaded (by used bytes), failing targets last, missing ones never. Pure; the same loads
// and random numbers give the same answer. Fewer usable targets than the width: shards are left out from the
// last parity on; the answer can have fewer than k targets, which the caller must refuse.
Placement choose_targets(const StripeShape& shape, std::span<const TargetLoad> loads, uint64_t shard_bytes,
                         Rng& rng);

}  // namespace sluice::storage
