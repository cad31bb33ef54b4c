#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "burst_buffer/hot_tier.h"

// Carries committed epochs from the hot tier to the storage tier.
namespace sluice::burst_buffer {

struct PublishedExtent {
  Extent extent;
  StripeId stripe;
  uint64_t stripe_offset = 0;
};

// The storage tier as the drain sees it; the engine adapts it. Called from the drain's thread.
class DrainSink {
 public:
  virtual ~DrainSink() = default;
  // Bytes of user data in one full stripe.
  virtual Result<Length> stripe_bytes(ContainerId container) = 0;
  // One stripe of these pieces, one behind the other. Durable on return.
  virtual Result<StripeId> place(ContainerId container,
                                 std::span<const std::span<const std::byte>> pieces) = 0;
  // Atomically; durable on return. kConflict when `from` is not the published version.
  virtual Result<> publish(ContainerId container, Epoch from, Epoch to, std::optional<Length> cut,
                           Length size, std::span<const PublishedExtent> extents) = 0;
  virtual void discard(StripeId stripe) = 0;
};

// When committed epochs are drained. Whatever the policy: above the high watermark, and while a writer wants
// room, it drains (open transactions too) until the low watermark or the room is there; and drain_all() is
// always followed.
enum class DrainPolicy {
  kImmediate,  // as soon as there are any, looked for by itself as well
  kOnSync,     // at kick()
  kWatermark,  // not before the high watermark
  kIdle,       // when nothing was written or committed for idle_ms
};

struct DrainStatus {
  std::string state;                 // "idle", "draining", "blocked: <why>"
  uint64_t bytes_left = 0;           // HotTier::unpublished_bytes(): 0 when everything committed is published
  uint64_t bytes_drained = 0;        // since start
  std::optional<ErrorCode> blocked;  // why, while the state is "blocked"
  uint64_t failed_rounds = 0;        // since start
};

// One thread. Write ordering: place (durable) -> placed() in the log -> publish (durable) -> drained() in the
// log. The worst crash between two steps leaves a stripe that nothing refers to, or work done once more;
// never a byte lost or shown early.
//
// Every byte is checked against the checksums it was written with before it leaves (HotTier::verify); a
// container with a damaged byte stays where it is and the state says so, the others go on. A stripe is
// discarded only when no publication can have taken it up; a publication of unknown outcome is looked up
// (HotTier::reconcile) before anything is built on it.
class Drain {
 public:
  struct Options {
    DrainPolicy policy = DrainPolicy::kImmediate;
    double high_watermark = 0.7;  // of the hot tier: above it open transactions are placed too
    double low_watermark = 0.4;
    uint64_t idle_ms = 1000;
    uint64_t poll_ms = 50;  // how often the watermarks and the policy are looked at without being told
    // With a writer waiting: failures in a row that the sink called retryable, and the time without any
    // progress and without a failure (readers' pins, writes in flight), until on_progress says that waiting
    // is pointless.
    uint64_t failures_to_report = 3;
    uint64_t stuck_ms = 5000;
    // After busy() the drain leaves the cores to those who move bytes, for so long: it places one stripe in
    // that time and no more. Not above the high watermark, not while a writer wants room, and not after
    // drain_all().
    uint64_t quiet_ms = 0;
    uint64_t retry_ms = 500;  // after a failure of the sink
    // After want_room(): the hot tier has free room again, or a failure made waiting pointless (then an
    // error). Called once for all that want room at that moment; who still finds none asks again. From the
    // drain's thread.
    std::function<void(Result<>)> on_progress;
  };

  static std::unique_ptr<Drain> create(HotTier& hot, DrainSink& sink, Options options);
  virtual ~Drain() = default;  // stops

  virtual void start() = 0;
  // Ends after the step in hand; no error is lost, the work is found again at the next start.
  virtual void stop() = 0;
  // There may be work: something was committed.
  virtual void kick() = 0;
  // Programs move bytes at this moment. Any thread; cheap.
  virtual void busy() = 0;
  // Somebody waits for what is committed now (a persist, the end of the service): it is drained under every
  // policy, and tried again after failures until a round succeeds.
  virtual void drain_all() = 0;
  // A writer waits for room: places open transactions as well until it is there.
  virtual void want_room(Length length) = 0;
  // One round over all containers on the calling thread, for tests and simulation (never together with
  // start()). The first error of any container, after all were tried.
  virtual Result<> run_once(bool include_open) = 0;
  virtual DrainStatus status() = 0;
};

}  // namespace sluice::burst_buffer
