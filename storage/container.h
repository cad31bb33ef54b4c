#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/result.h"
#include "storage/manifest.h"
#include "storage/metastore.h"
#include "storage/object_store.h"
#include "storage/stripe_table.h"

namespace sluice::storage {

// One container in memory: its attributes, and its published version once somebody asked. Thread-safe:
// readers share, a publication excludes them only for the moment it goes over to the new version, not while
// it is written.
class Container {
 public:
  // Steps in the metastore before they are merged into one, at least; more while they are small beside the
  // whole map, so that merging costs no more than the steps themselves did.
  static constexpr size_t kAggregateSteps = 64;
  static constexpr size_t kMaxSteps = 16 * kAggregateSteps;

  Container(MetaStore& metastore, StripeTable& stripes, ContainerInfo info)
      : metastore_(metastore), stripes_(stripes), info_(std::move(info)), manifest_(info_.id) {}

  const ContainerAttributes& attributes() const {
    return info_.attributes;
  }  // while it is in memory they never change
  ContainerId id() const { return info_.id; }

  // Brings the published version into memory, if it is not.
  Result<> load();

  struct ReadPiece {
    PlacedExtent placed;
    StripeTable::Pin pin;
  };
  // What the published version maps in `extent`, in order, with its stripes pinned. kNotFound when the
  // container was removed.
  Result<std::vector<ReadPiece>> lookup(Extent extent);
  Result<std::vector<PlacedExtent>> layout();
  std::vector<StripeTable::RecordPtr> stripes();

  // `pins` keep the stripes that the step names.
  Result<> publish(const Publication& step, const std::vector<StripeTable::Pin>& pins, uint64_t now_s);
  // Out of the metastore, and its stripes out of every version.
  Result<> remove();

 private:
  Result<> load_locked(std::unique_lock<std::shared_mutex>& exclusive);
  ManifestStep step_of(const Publication& step, const std::vector<StripeTable::Pin>& pins) const;
  Result<> advance(const ManifestStep& step, uint64_t now_s);
  void aggregate_if_due();
  Error removed_error() const;

  MetaStore& metastore_;
  StripeTable& stripes_;
  const ContainerInfo info_;  // `published` and `size` are as they were once: manifest_ knows better

  std::mutex publish_mutex_;  // one publication, load or removal at a time; taken before mutex_
  std::shared_mutex mutex_;
  Manifest manifest_;
  bool loaded_ = false;
  bool removed_ = false;
  // Under publish_mutex_: what lies in the metastore since the last merge.
  size_t steps_ = 0;
  size_t step_extents_ = 0;
};

}  // namespace sluice::storage
