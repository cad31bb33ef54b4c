#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

// A target: one independent place that keeps shards, named by stripe and shard index. The unit of loss.
namespace sluice::storage {

struct ShardName {
  StripeId stripe;
  ShardIndex shard;
  auto operator<=>(const ShardName&) const = default;
};
std::string to_string(const ShardName& name);

enum class TargetState {
  kUp,
  kMissing,  // the place is gone, empty, or somebody else's, as errors tell; seen anew at every operation
  kFailing,  // the last operation failed
};
std::string_view to_string(TargetState state);

struct TargetUsage {
  uint64_t bytes_used = 0;  // by shards
  uint64_t bytes_free = 0;  // for more
  bool failing = false;     // as state() would say
};

// Thread-safe. Calls block for the time the medium needs.
//
// A shard under its name is whole: it was put once, or replaced as a whole, and after a crash at any moment
// it is the old one, the new one or (first put) not there. It is *not* promised that the bytes are still the
// bytes that were put: callers check.
//
// Errors: kUnavailable (retryable) while the target is missing, kNoSpace when it is full, kNotFound for a
// shard that is not there on a target that is, kIo when the medium failed. A failed put or remove leaves the
// shard as it was before or as it would be after, whole in both cases.
class Target {
 public:
  virtual ~Target() = default;

  virtual TargetId id() const = 0;
  virtual uint64_t pool_id() const = 0;
  virtual const std::string& path() const = 0;  // for people
  // Looks: a target that went or came back is told at once.
  virtual TargetState state() = 0;

  // The pieces, one behind the other, become the shard. Durable on return. Pieces are borrowed for the call.
  virtual Result<> put(ShardName name, std::span<const std::span<const std::byte>> pieces) = 0;
  // Fills the pieces, one behind the other, with the bytes from `offset` on. kCorrupt when the shard ends
  // before they are full.
  virtual Result<> get(ShardName name, uint64_t offset, std::span<const std::span<std::byte>> pieces) = 0;
  // Removing what is not there succeeds.
  virtual Result<> remove(ShardName name) = 0;

  // Every shard, in no order.
  virtual Result<std::vector<ShardName>> list() = 0;
  // The shards of one stripe, by index.
  virtual Result<std::vector<ShardIndex>> find(StripeId stripe) = 0;
  virtual Result<TargetUsage> usage() = 0;
  // Drops what puts of earlier runs left half done. Never touches a put in progress in this process.
  virtual Result<> sweep() = 0;
};

// --- A directory as a target. ---
//
// <path>/identity   written once, by format_file_target: the pool and the target the directory belongs to
// <path>/shards/    one file per shard: FORMAT.md
//
// A directory without the right identity file, or without shards/, is missing: nothing is created in it,
// while running or when opening. When the right one appears at the path again, the target is up again.

// Makes the directory and its parents. Formatting what is formatted alike succeeds. kExists when it is
// another target's or another pool's, kInvalidArgument when it holds other files.
Result<> format_file_target(const std::filesystem::path& path, uint64_t pool_id, TargetId id);
// Succeeds for a missing directory: the target is then in the state kMissing.
Result<std::unique_ptr<Target>> open_file_target(const std::filesystem::path& path, uint64_t pool_id,
                                                 TargetId id);

// --- Memory as a target: durable as long as the object lives. ---
std::unique_ptr<Target> make_memory_target(TargetId id, uint64_t capacity_bytes, uint64_t pool_id = 1);

}  // namespace sluice::storage
