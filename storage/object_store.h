#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/extent.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/types.h"
#include "storage/metastore.h"
#include "storage/object_class.h"
#include "storage/target.h"

// The store's face to the engine: containers, their published versions, and the stripes their bytes lie in.
namespace sluice::storage {

// Where a range of a file lies: `offset` bytes into the data of a stripe.
struct StripePlace {
  StripeId stripe;
  uint64_t offset = 0;
  StripePlace advanced(Length by) const { return {stripe, offset + by.value}; }
  bool operator==(const StripePlace&) const = default;
};

struct PlacedExtent {
  Extent extent;
  StripePlace place;
};

// One step of a container from one published version to the next.
struct Publication {
  Epoch from;                 // the version this step was computed against
  Epoch to;                   // from < to; epochs in between are skipped, they were never published alone
  std::optional<Length> cut;  // first, bytes at and beyond this are dropped ...
  std::vector<PlacedExtent> extents;  // ... then these are laid over what is there, in this order
  Length size;                        // the size of the file in the new version
};

struct ReadReport {
  uint64_t degraded_blocks =
      0;  // blocks given back through the code because their own copy was missing or bad
  uint64_t repaired_blocks = 0;  // of those, rewritten in place
};

struct TargetStatus {
  TargetId id;
  std::string path;
  std::string state;  // "up", "missing" (directory gone), "failing" (the last operation failed)
  uint64_t bytes_used = 0;
  uint64_t bytes_free = 0;
};

// Thread-safe. What a call reports as done is durable (see each); what it reports as failed left the
// published versions as they were, and at most stripes that nothing refers to, which collect_orphans()
// removes.
class ObjectStore {
 public:
  struct Options {
    ObjectClass default_class;
    uint64_t seed = 1;  // of the placement's bounded randomness
  };

  static Result<std::unique_ptr<ObjectStore>> open(Options options,
                                                   std::vector<std::unique_ptr<Target>> targets,
                                                   std::unique_ptr<MetaStore> metastore);
  virtual ~ObjectStore() = default;

  // --- containers. Durable on return. ---
  // kExists when the path is taken; a class the pool cannot hold is kInvalidArgument with the reason and the
  // nearest that fits.
  virtual Result<ContainerInfo> create(const ContainerAttributes& attributes) = 0;
  virtual Result<ContainerInfo> find(const std::string& path) = 0;
  virtual Result<ContainerInfo> find(ContainerId id) = 0;
  // Containers at or below `path` ("/" for all), by path.
  virtual Result<std::vector<ContainerInfo>> list(const std::string& path) = 0;
  // The path is free at once; the stripes go when nothing reads them any more.
  virtual Result<> remove(ContainerId id) = 0;

  // --- the drain's half ---
  // Bytes of user data in one full stripe of this container's class and chunk size.
  virtual Result<Length> stripe_bytes(ContainerId id) = 0;
  // Encodes the pieces, one behind the other, as one stripe and writes it to k+m targets. The bytes are
  // durable on return. Up to m targets may fail on the way (the stripe is then born degraded, and said so in
  // the log); more is an error. With fewer than k+m usable targets the missing shards are left out, never
  // placed twice on one target.
  virtual Result<StripeId> place(ContainerId id, std::span<const std::span<const std::byte>> pieces) = 0;
  // Makes the step visible, all or nothing, by compare-and-set: kConflict when the published version is not
  // `from`. Durable on return. Publishing a step that was published already (same `to`) succeeds and changes
  // nothing.
  virtual Result<> publish(ContainerId id, const Publication& step) = 0;
  // Drops a stripe that was placed and never published.
  virtual void discard(StripeId stripe) = 0;
  // Removes stripes on the targets that neither a manifest nor `keep` refers to. Answers how many. Run once,
  // after recovery.
  virtual Result<uint64_t> collect_orphans(const std::set<StripeId>& keep) = 0;

  // --- reads. Every byte is checked against its checksum; bad or missing blocks are rebuilt from the others.
  // --- The published version; holes and what lies beyond the end read as zeros.
  virtual Result<ReadReport> read(ContainerId id, Extent extent, std::span<std::byte> out) = 0;
  virtual Result<ReadReport> read_stripe(StripeId stripe, uint64_t offset, std::span<std::byte> out) = 0;
  // Extents of the published version and where they lie, for `explain` and the status.
  virtual Result<std::vector<PlacedExtent>> layout(ContainerId id) = 0;

  virtual std::vector<TargetStatus> target_status() = 0;
  // Blocks rebuilt through the code since open().
  virtual uint64_t degraded_blocks() const = 0;
};

}  // namespace sluice::storage
