#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/extent_map.h"
#include "base/result.h"
#include "base/types.h"
#include "storage/stripe.h"
#include "storage/stripe_place.h"

// The versioned extent map of one container: what the metastore keeps as steps, and what readers look places
// up in. Pure; not thread-safe.
namespace sluice::storage {

inline constexpr uint32_t kManifestFormatVersion = 1;
// Limits of one step. Larger ones are kTooLarge when published and refused when decoded.
inline constexpr size_t kMaxStepExtents = size_t{1} << 24;
inline constexpr size_t kMaxStepStripes = size_t{1} << 22;

// From one published version to the next. In order: bytes at and beyond `cut` are dropped, the extents are
// laid over what is there one after the other, bytes at and beyond `size` are dropped.
struct ManifestStep {
  Epoch from;
  Epoch to;
  std::optional<Length> cut;
  Length size;
  std::vector<StripeRecord> stripes;  // those the extents name and the version `from` does not
  std::vector<PlacedExtent> extents;

  bool operator==(const ManifestStep&) const = default;
};

// Neighbours that lie one behind the other in the same stripe become one. The order of laying is kept.
std::vector<PlacedExtent> coalesced(std::vector<PlacedExtent> extents);

// The bytes that the metastore keeps for a step.
std::string encode_step(const ManifestStep& step);
// Takes hostile bytes: kCorrupt or kUnsupported for anything encode_step() cannot have made. What decodes has
// valid, non-empty extents that end within `size`, and sound stripes with distinct ids and distinct targets.
Result<ManifestStep> decode_step(std::span<const std::byte> bytes, ContainerId container);

class Manifest {
 public:
  using RecordPtr = std::shared_ptr<const StripeRecord>;

  // Version 0: nothing.
  explicit Manifest(ContainerId container) : container_(container) {}

  // Can this step be applied? Everything that apply() relies on: the step starts at epoch(), its extents lie
  // inside stripes that the step or this version names.
  Result<> check(const ManifestStep& step) const;
  // Goes on to step.to, which check() has passed. Answers the stripes that have lost their last byte by it,
  // or never had one.
  std::vector<RecordPtr> apply(const ManifestStep& step);

  ContainerId container() const { return container_; }
  Epoch epoch() const { return epoch_; }
  Length size() const { return size_; }
  size_t extent_count() const { return places_.size(); }

  // In order; holes are left out.
  std::vector<PlacedExtent> lookup(Extent extent) const;
  // The stripe, when this version has a byte in it.
  RecordPtr stripe(StripeId id) const;
  std::vector<RecordPtr> stripes() const;

  // One step from version 0 that says the same as all applied ones.
  ManifestStep merged() const;

 private:
  struct Live {
    RecordPtr record;
    uint64_t bytes = 0;  // of this version
  };
  // Drops what is mapped in `extent`, and its bytes from the counts.
  void uncover(Extent extent);
  void drop_from(Length size) { uncover({Offset(size.value), Offset(kMaxFileBytes)}); }

  ContainerId container_;
  Epoch epoch_;
  Length size_;
  ExtentMap<StripePlace> places_;
  std::map<StripeId, Live> live_;
  std::vector<StripeId> emptied_;  // during apply(): stripes whose count has reached zero at some time
};

}  // namespace sluice::storage
