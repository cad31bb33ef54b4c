#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "storage/target.h"
#include "storage/testing/fault_plan.h"

// Targets that misbehave, for tests. The faults live here, not in the product.
namespace sluice::storage {

// Wraps a target. Thread-safe, but for setting switches while operations run.
class FaultTarget final : public Target {
 public:
  FaultTarget(std::shared_ptr<Target> real, std::shared_ptr<FaultPlan> plan)
      : real_(std::move(real)), plan_(std::move(plan)) {}

  // Gone until told otherwise.
  void set_missing(bool missing) { missing_ = missing; }
  // Every put from now on fails with this, or none does.
  void set_put_error(std::optional<ErrorCode> code) { put_error_ = code; }
  void set_list_error(std::optional<ErrorCode> code) { list_error_ = code; }
  // Puts report success, but the medium keeps only so many bytes of the shard; 0 for nothing at all (a lost
  // write).
  void tear_puts_at(std::optional<uint64_t> bytes) { tear_at_ = bytes; }
  uint64_t puts() const { return puts_; }

  // Flips one bit of a shard, at rest.
  Result<> flip_bit(ShardName name, uint64_t byte, uint64_t shard_file_bytes, unsigned bit = 0) {
    std::vector<std::byte> bytes(shard_file_bytes);
    const std::span<std::byte> out(bytes);
    if (auto got = real_->get(name, 0, std::span(&out, 1)); !got) return got;
    bytes[byte] ^= std::byte{1} << bit;
    const std::span<const std::byte> in(bytes);
    return real_->put(name, std::span(&in, 1));
  }
  Target& real() { return *real_; }

  TargetId id() const override { return real_->id(); }
  uint64_t pool_id() const override { return real_->pool_id(); }
  const std::string& path() const override { return real_->path(); }
  TargetState state() override { return missing_ ? TargetState::kMissing : real_->state(); }

  Result<> put(ShardName name, std::span<const std::span<const std::byte>> pieces) override {
    return step<void>([&]() -> Result<> {
      ++puts_;
      if (put_error_) return fail(*put_error_, "injected put failure");
      if (!tear_at_) return real_->put(name, pieces);
      return put_torn(name, pieces);
    });
  }
  Result<> get(ShardName name, uint64_t offset, std::span<const std::span<std::byte>> pieces) override {
    return step<void>([&] { return real_->get(name, offset, pieces); });
  }
  Result<> remove(ShardName name) override {
    return step<void>([&] { return real_->remove(name); });
  }
  Result<std::vector<ShardName>> list() override {
    return step<std::vector<ShardName>>([&]() -> Result<std::vector<ShardName>> {
      if (list_error_) return fail(*list_error_, "injected list failure");
      return real_->list();
    });
  }
  Result<std::vector<ShardIndex>> find(StripeId stripe) override {
    return step<std::vector<ShardIndex>>([&] { return real_->find(stripe); });
  }
  Result<TargetUsage> usage() override {
    return step<TargetUsage>([&] { return real_->usage(); });
  }
  Result<> sweep() override {
    return step<void>([&] { return real_->sweep(); });
  }

 private:
  template <class T, class F>
  Result<T> step(F&& operation) {
    if (missing_) {
      Error error(ErrorCode::kUnavailable, "the target is missing");
      return fail(std::move(error.mark_retryable()));
    }
    const uint64_t turn = plan_->begin();
    if (auto fault = plan_->before(turn)) return fail(*std::move(fault));
    Result<T> result = operation();
    if (auto fault = plan_->after(turn)) return fail(*std::move(fault));
    return result;
  }

  Result<> put_torn(ShardName name, std::span<const std::span<const std::byte>> pieces) {
    uint64_t left = *tear_at_;
    if (left == 0) return {};
    std::vector<std::byte> kept;
    for (const auto piece : pieces) {
      const auto part = piece.first(std::min<uint64_t>(piece.size(), left));
      kept.insert(kept.end(), part.begin(), part.end());
      left -= part.size();
    }
    const std::span<const std::byte> whole(kept);
    return real_->put(name, std::span(&whole, 1));
  }

  std::shared_ptr<Target> real_;  // may outlive this one: a new run opens it again
  std::shared_ptr<FaultPlan> plan_;
  std::atomic<bool> missing_ = false;
  std::optional<ErrorCode> put_error_;
  std::optional<ErrorCode> list_error_;
  std::optional<uint64_t> tear_at_;
  std::atomic<uint64_t> puts_ = 0;
};

}  // namespace sluice::storage
