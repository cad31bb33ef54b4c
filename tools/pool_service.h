#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/os.h"
#include "base/result.h"

// Starting, using and stopping the service of a pool.
//
// A service is permanent (`sluice up` started it, or asked it to stay) or private (started for the time of
// one command). A command holds POOL/users shared while it uses a service; the last one to leave stops a
// private one.
namespace sluice::tools {

struct ServiceRequest {
  std::string pool;
  // Handed to sluiced as they are: --targets and so on. It judges them.
  std::vector<std::string> options;
  bool may_create = false;  // the pool, when the directory holds none
  bool permanent = false;
};

enum class StartOutcome { kMade, kStarted, kWasRunning };  // kMade: the pool, and started

// Returns when the service answers; one that ran already has put its service.json right. Several at once on
// one pool all succeed, and there is one service. kConflict when the options contradict the pool, or the
// service that runs (see settings.h).
Result<StartOutcome> start_service(const ServiceRequest& request);

struct DrainReport {
  uint64_t bytes_left = 0;
  std::string state;
};
// Waits until nothing is left to drain. kNoSpace, kAccess, kCorrupt or kIo, with the reason, when the drain
// was blocked for kBlockedPatienceMs and less than before was never left, kAborted when `interrupted` says
// so. `on_progress` gets the bytes left, several times a second.
inline constexpr uint64_t kBlockedPatienceMs = 10'000;
Result<> drain_service(const std::string& pool, const std::function<void(uint64_t)>& on_progress,
                       const std::function<bool()>& interrupted);

// Asks the service to stop and waits until its process is gone. kUnavailable when none runs.
inline constexpr uint64_t kStopTimeoutMs = 60'000;
Result<> stop_service(const std::string& pool);

// The process that holds the pool, to be waited for (process.h); nothing to wait for when nobody holds it.
Result<UniqueFd> watch_holder(const std::string& pool);

// A command's use of a pool's service.
class ServiceUse {
 public:
  // Starts one, privately, when none runs.
  static Result<ServiceUse> begin(ServiceRequest request);
  ServiceUse(ServiceUse&&) = default;
  // Leaves it; the last user of a private service drains (see drain_service) and stops it, also when the
  // drain failed, which is the error then. Answers true when it was stopped. With kAlways a service that
  // stays is drained too.
  enum class Drain { kWhenPrivate, kAlways };
  Result<bool> end(Drain drain, const std::function<void(uint64_t)>& on_progress,
                   const std::function<bool()>& interrupted);
  // When end() was not called: it is ended without progress, and errors are reported on stderr.
  ~ServiceUse();

 private:
  static bool is_forsaken(const std::string& pool);
  ServiceUse(std::string pool, UniqueFd users) : pool_(std::move(pool)), users_(std::move(users)) {}
  std::string pool_;
  UniqueFd users_;
};

}  // namespace sluice::tools
