#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/extent.h"
#include "base/result.h"
#include "base/types.h"
#include "storage/metastore.h"
#include "storage/object_class.h"
#include "storage/read_report.h"
#include "storage/stripe_place.h"
#include "storage/target.h"

// The store's face to the engine: containers, their published versions, and the stripes their bytes lie in.
namespace sluice::storage {

// Limits of a container's chunk size, a power of two.
inline constexpr Length kMinChunkSize{64 * 1024};
inline constexpr Length kMaxChunkSize{16 * 1024 * 1024};
inline constexpr size_t kMaxPathBytes = 4096;

// One step of a container from one published version to the next.
struct Publication {
  Epoch from;                 // the version this step was computed against
  Epoch to;                   // from < to; epochs in between are skipped, they were never published alone
  std::optional<Length> cut;  // first, bytes at and beyond this are dropped ...
  std::vector<PlacedExtent>
      extents;  // ... then these are laid over what is there, in this order; none beyond `size`
  Length size;  // the size of the file in the new version; older bytes beyond it are dropped
  std::set<StripeId> still_held;  // of the stripes above, those that a later step publishes more of
};

struct TargetStatus {
  TargetId id;
  std::string path;
  // "up", "missing" (the directory is gone), "wrong" (it is there, and is not this target), "failing" (the
  // last operation failed)
  std::string state;
  uint64_t bytes_used = 0;
  uint64_t bytes_free = 0;
  std::string why = {};  // it is missing or wrong, or its usage cannot be told: a sentence

  bool gone() const { return state == "missing" || state == "wrong"; }
};

struct ScrubReport {
  uint64_t stripes = 0;          // looked at
  uint64_t bad_blocks = 0;       // missing or failing their checksum, parity included
  uint64_t repaired_blocks = 0;  // of those, rewritten in place
  uint64_t lost_blocks = 0;      // of those, beyond the code: data loss
};

// Thread-safe. What a call reports as done is durable (see each); what it reports as failed left the
// published versions as they were, and at most stripes that nothing refers to, which collect_orphans()
// removes. An error with outcome_unknown is the exception: the step may come to light after a crash. The
// caller keeps the stripes and publishes again.
//
// A stripe lives while a published version refers to it, while whoever placed it holds it, and while it is
// being read. A placer holds a stripe from place() until a step names it, or discard(). So all that is ever
// to be seen of a stripe is published by one step, or the steps before the last say `still_held`; and once a
// stripe's last published byte is overwritten, it is gone.
//
// Reads may run together with everything else and see one published version or a later one, whole.
class ObjectStore {
 public:
  struct Options {
    ObjectClass default_class = {};  // of containers that name none; unspecified: by the number of targets
    uint64_t seed = 1;               // of the placement's bounded randomness
    // Threads that help with the shards of one stripe: on disks their syncs overlap, in memory they gain
    // little. 0: everything on the caller, in order.
    size_t io_threads = 4;
    std::function<uint64_t()> now_s = {};  // seconds since 1970; the system's clock when empty
  };

  // At least one target; ids distinct, all of one pool, and of the pool of the metastore (which learns it at
  // the first open). Missing targets are no error.
  static Result<std::unique_ptr<ObjectStore>> open(Options options,
                                                   std::vector<std::unique_ptr<Target>> targets,
                                                   std::unique_ptr<MetaStore> metastore);
  virtual ~ObjectStore() = default;

  // --- containers. Durable on return. ---
  // kExists when the path is taken; a class the pool cannot hold is kInvalidArgument with the reason and the
  // nearest that fits. The class is recorded resolved: an unspecified one as the default, SX with its width.
  virtual Result<ContainerInfo> create(const ContainerAttributes& attributes) = 0;
  virtual Result<ContainerInfo> find(const std::string& path) = 0;
  virtual Result<ContainerInfo> find(ContainerId id) = 0;
  // Containers at or below `path` ("/" for all), by path.
  virtual Result<std::vector<ContainerInfo>> list(const std::string& path) = 0;
  // The path is free at once; the stripes go when nothing reads them any more.
  virtual Result<> remove(ContainerId id) = 0;
  // Another chunk size for a container that was never published, and of which nothing is being drained;
  // kConflict when it was. kInvalidArgument as for create().
  virtual Result<> shape(ContainerId id, Length chunk_size, const std::string& reason) = 0;

  // --- the drain's half ---
  // Bytes of user data in one full stripe of this container's class and chunk size.
  virtual Result<Length> stripe_bytes(ContainerId id) = 0;
  // Encodes the pieces (1 to stripe_bytes() bytes in all, one behind the other) as one stripe and writes it
  // to k+m targets. The bytes are durable on return. Up to m targets may fail, be missing or be full (the
  // stripe is then born degraded: its missing shards count in missing_shards(), and heal() brings them
  // later); more is an error. No two shards lie on one target.
  virtual Result<StripeId> place(ContainerId id, std::span<const std::span<const std::byte>> pieces) = 0;
  // Makes the step visible, all or nothing, by compare-and-set: kConflict when the published version is not
  // `from`. Durable on return. Publishing a step that was published already (same `to`) succeeds and changes
  // nothing.
  virtual Result<> publish(ContainerId id, const Publication& step) = 0;
  // The placer gives the stripe up. Removed at once, or when no published version refers to it any more.
  virtual void discard(StripeId stripe) = 0;
  // Removes stripes on the targets that neither a manifest nor `keep` refers to, and what earlier runs left
  // half written. Answers how many stripes. Run once, after recovery; stripes of `keep` are held for their
  // placer from then on. Stripes of a container whose manifest is damaged are left alone (logged).
  virtual Result<uint64_t> collect_orphans(const std::set<StripeId>& keep) = 0;

  // --- reads. Every byte is checked against its checksum; bad or missing blocks are rebuilt from the others,
  // and rewritten where their target is up. More losses than the class bears: data_loss, kCorrupt or kIo. ---
  // The published version; holes and what lies beyond the end read as zeros.
  virtual Result<ReadReport> read(ContainerId id, Extent extent, std::span<std::byte> out) = 0;
  // kNotFound when the stripe was freed or discarded meanwhile: whoever has its number from a view looks
  // again.
  virtual Result<ReadReport> read_stripe(StripeId stripe, uint64_t offset, std::span<std::byte> out) = 0;
  // Extents of the published version and where they lie, for `explain` and the status.
  virtual Result<std::vector<PlacedExtent>> layout(ContainerId id) = 0;
  // Reads every block of every published stripe, parity too, and repairs what can be repaired.
  virtual Result<ScrubReport> scrub() = 0;
  // Puts shards back that are not where they belong, and removes orphans, where there is reason to look: on
  // targets that came up since the last call (in the first, on all), and for stripes that were written
  // without a shard. Answers the number of shards put back. What cannot be put back now waits for a later
  // call; what cannot be rebuilt, because too many others are gone as well, until all are compared again. The
  // first error of any target, after all were looked at. Ends between two shards when `stopping` answers
  // true. After collect_orphans(), from one thread.
  virtual Result<uint64_t> heal(const std::function<bool()>& stopping) = 0;
  // The next heal() looks at all targets: shards may be gone from one that was up all the time. From heal()'s
  // thread.
  virtual void compare_all_again() = 0;
  // Shards that heal() has still to put back, as far as is known: of a target that is missing only those
  // written since it is.
  virtual uint64_t missing_shards() = 0;
  // Of those, the ones that cannot be rebuilt: of stripes that have lost more than their class bears.
  virtual uint64_t lost_shards() = 0;

  virtual std::vector<TargetStatus> target_status() = 0;
  // Blocks rebuilt through the code since open().
  virtual uint64_t degraded_blocks() const = 0;
};

}  // namespace sluice::storage
