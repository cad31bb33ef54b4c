#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "burst_buffer/drain.h"

namespace sluice::burst_buffer {

// A storage tier of strings for tests: stripes, published versions, and failures on demand. Thread-safe. It
// survives the crashes of the hot tier that a test makes.
class FakeSink final : public DrainSink {
 public:
  explicit FakeSink(uint64_t stripe_bytes) : stripe_bytes_(stripe_bytes) {}
  // The storage tier as it is at this moment, without the on_step() call.
  std::unique_ptr<FakeSink> copy() const;

  Result<Length> stripe_bytes(ContainerId container) override;
  Result<StripeId> place(ContainerId container, std::span<const std::span<const std::byte>> pieces) override;
  Result<> publish(ContainerId container, Epoch from, Epoch to, std::optional<Length> cut, Length size,
                   std::span<const PublishedExtent> extents) override;
  void discard(StripeId stripe) override;

  // As the storage tier does it: its stripes go, but for those that whoever placed them still holds.
  void remove(ContainerId container);
  // Asked by the hot tier; every container exists that was not removed.
  std::optional<CommitInfo> find(ContainerId container) const;
  CommitInfo published(ContainerId container) const { return find(container).value_or(CommitInfo{}); }
  std::string contents(ContainerId container) const;
  std::string stripe_contents(StripeId stripe, uint64_t offset, uint64_t length) const;
  std::vector<StripeId> stripes() const;
  // What the orphan collection of a restart does: stripes that are neither in use above nor published go.
  void collect_orphans(const std::set<StripeId>& in_use);

  // Called at the start of each step ("place", "publish"); an error fails it. Only "published" comes after
  // the effect: an error there makes the outcome unknown.
  void on_step(std::function<Result<>(const std::string& step)> call) { on_step_ = std::move(call); }

 private:
  struct File {
    CommitInfo published;
    std::string bytes;
    std::set<StripeId> stripes;
  };
  Result<> step(const std::string& name) const;
  // Under the mutex.
  Result<> check_exists(ContainerId container) const;
  bool is_published(StripeId stripe) const;

  const uint64_t stripe_bytes_;
  std::function<Result<>(const std::string&)> on_step_;
  mutable std::mutex mutex_;
  std::map<ContainerId, File> files_;
  std::set<ContainerId> removed_;
  std::map<StripeId, std::string> stripes_;
  std::set<StripeId> held_;       // by their placer: neither published nor discarded
  std::set<StripeId> published_;  // at some time
  uint64_t next_stripe_ = 1;
};

}  // namespace sluice::burst_buffer
