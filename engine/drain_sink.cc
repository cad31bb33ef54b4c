#include "engine/engine.h"

#include "base/log.h"

namespace sluice::engine {
namespace {

class StoreSink final : public burst_buffer::DrainSink {
 public:
  explicit StoreSink(storage::ObjectStore& store) : store_(store) {}

  Result<Length> stripe_bytes(ContainerId container) override { return store_.stripe_bytes(container); }

  Result<StripeId> place(ContainerId container, std::span<const std::span<const std::byte>> pieces) override {
    return store_.place(container, pieces);
  }

  Result<> publish(ContainerId container, Epoch from, Epoch to, std::optional<Length> cut, Length size,
                   std::span<const burst_buffer::PublishedExtent> extents) override {
    storage::Publication step;
    step.from = from;
    step.to = to;
    step.cut = cut;
    step.size = size;
    step.extents.reserve(extents.size());
    for (const auto& extent : extents)
      step.extents.push_back({extent.extent, {extent.stripe, extent.stripe_offset}});
    return store_.publish(container, step);
  }

  void discard(StripeId stripe) override { store_.discard(stripe); }

 private:
  storage::ObjectStore& store_;
};

}  // namespace

std::unique_ptr<burst_buffer::DrainSink> make_drain_sink(storage::ObjectStore& store) {
  return std::make_unique<StoreSink>(store);
}

Result<> recover(burst_buffer::HotTier& hot, storage::ObjectStore& store) {
  auto removed = store.collect_orphans(hot.stripes_in_use());
  if (!removed) return fail_with_context("recovery", removed.error());
  if (*removed > 0) log::info("{} stripes that nothing referred to were removed", *removed);
  return {};
}

}  // namespace sluice::engine
