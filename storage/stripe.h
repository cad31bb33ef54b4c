#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "storage/buffer_pool.h"
#include "storage/erasure/codec.h"
#include "storage/erasure/plan.h"
#include "storage/header_cache.h"
#include "storage/placement.h"
#include "storage/read_report.h"
#include "storage/target.h"
#include "storage/workers.h"

// One stripe on its targets: written whole, read in ranges, repaired, removed. Knows no manifest and no
// metastore.
namespace sluice::storage {

// What is remembered of a stripe: where its shards are.
struct StripeRecord {
  StripeId id;
  ContainerId container;
  StripeShape shape;
  // By shard index, distinct: where the shard lies, or belongs when its target was missing or full;
  // kNoTarget for a shard that the pool had no target for.
  std::vector<TargetId> targets;

  bool operator==(const StripeRecord&) const = default;
};

// What a look at every block of a stripe found.
struct StripeScrub {
  uint64_t bad_blocks = 0;       // missing ones included
  uint64_t repaired_blocks = 0;  // of those, rewritten in place
  uint64_t lost_blocks = 0;      // of those, beyond the code
};

// Thread-safe. The caller sees to it that nobody removes a stripe that is being read: a read may rewrite its
// shards.
class StripeIo {
 public:
  // `threads` help with the shards of one stripe; 0 for none (everything on the caller, in order). Targets
  // are borrowed and must outlive this; their ids are distinct and their pool ids equal.
  StripeIo(std::span<const std::unique_ptr<Target>> targets, size_t threads);
  ~StripeIo();

  // Encodes the pieces (their bytes are shape.data, one behind the other) and puts the shards where
  // `placement` says; a failed put is tried once more on a spare. The shards are durable on return. Up to m
  // may be missing (logged); more is an error, and what was put is removed. Pieces are borrowed for the call
  // and must not change in it.
  Result<StripeRecord> write(StripeId id, ContainerId container, const StripeShape& shape,
                             std::span<const std::span<const std::byte>> pieces, Placement placement);

  // Data bytes [offset, offset + out.size()), which must lie inside the data. Every block is checked; bad or
  // missing ones are rebuilt, and their shards rewritten where the target is up. More than m bad blocks in a
  // row: data_loss, kCorrupt when a checksum failed and kIo when shards were missing. On an error `out` is
  // undefined.
  Result<ReadReport> read(const StripeRecord& stripe, uint64_t offset, std::span<std::byte> out);

  // Reads every block of every shard, parity too, and repairs what it can.
  StripeScrub scrub(const StripeRecord& stripe);

  // Removes the shards. An error when one may be left, on a target that is not missing; those on missing
  // targets are left for an orphan collection.
  Result<> remove(const StripeRecord& stripe);

  // Shards that are known not to be where they belong: of stripes written without them, and those noted.
  std::vector<ShardName> lacking();
  size_t lacking_count();
  void note_lacking(ShardName name);
  void forget_lacking(ShardName name);
  // Puts a shard where it belongs, unless it is there, rebuilt from the others. kUnavailable when its target
  // is missing, kNoSpace when it has no room; else as read().
  Result<> restore(const StripeRecord& stripe, ShardIndex shard);

  // Asks every target: for stripes that no manifest names. kNotFound when no target that can be reached has a
  // shard of it.
  Result<StripeRecord> locate(StripeId id);

  std::vector<TargetLoad> loads();
  Target* target(TargetId id) const;
  uint64_t degraded_blocks() const { return degraded_blocks_; }

 private:
  friend class StripeRead;

  const Codec& codec(uint32_t k, uint32_t m);
  // One repair at a time for each shard, and none again after one failed, unless it is asked for.
  bool claim_repair(ShardName name, bool after_failure);
  void end_repair(ShardName name, bool succeeded);
  // True the first time since the target was seen well.
  bool first_loss_of(TargetId id);
  void seen_well(TargetId id);

  uint64_t pool_id_ = 0;
  std::map<TargetId, Target*> targets_;
  Workers workers_;
  BufferPool buffers_;
  HeaderCache headers_;
  std::atomic<uint64_t> degraded_blocks_ = 0;

  std::mutex mutex_;
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<Codec>> codecs_;
  std::set<ShardName> repairing_;
  std::set<ShardName> repair_failed_;
  std::set<TargetId> lost_targets_;
  std::set<ShardName> lacking_;
};

}  // namespace sluice::storage
