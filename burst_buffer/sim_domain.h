#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "burst_buffer/persist_domain.h"

namespace sluice::burst_buffer {

// A persist domain in plain memory for tests and simulation, with the two ways a machine forgets. Not in any
// product binary.
//
// It keeps a second copy of what was persisted. After a process crash the memory is there as it was; after a
// power loss every aligned 8-byte word holds either what was persisted or what was stored last, by the seed.
// Thread-safe.
class SimDomain final : public PersistDomain {
 public:
  explicit SimDomain(size_t bytes) : memory_(bytes), persisted_(bytes) {}

  std::span<std::byte> memory() override { return memory_; }
  bool existed() const override { return existed_; }
  Result<> persist(const void* begin, size_t length) override;
  std::string medium() const override { return "simulation"; }
  std::string survives() const override { return "power loss"; }

  // What a restart finds. The words that could go either way do: by the seed none, all, or some of them keep
  // the new value.
  std::shared_ptr<SimDomain> after_power_loss(uint64_t seed) const;
  std::shared_ptr<SimDomain> after_process_crash() const;

  // The flush with this number, counted from 0 over the life of the domain, fails and persists nothing; the
  // flushes after it succeed.
  void fail_persist(uint64_t number) { failing_ = number; }
  // Called before and after each flush takes effect, from the flushing thread.
  void on_persist(std::function<void()> call) { on_persist_ = std::move(call); }
  uint64_t persists() const;

 private:
  std::vector<std::byte> memory_;
  std::vector<std::byte> persisted_;
  bool existed_ = false;
  uint64_t persists_ = 0;
  std::optional<uint64_t> failing_;
  std::function<void()> on_persist_;
  mutable std::mutex mutex_;
};

}  // namespace sluice::burst_buffer
