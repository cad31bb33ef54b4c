#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "server/pool.h"

// One running service: the parts of a server, wired.
namespace sluice::server {

struct ServiceOptions {
  // The hot tier's file is gone and was not known to be drained: start with an empty one all the same.
  bool accept_lost_hot_tier = false;
  // The service was started for the time of one command; the status says so until POST /keep makes it stay.
  bool private_service = false;
  // POST /shutdown came; on the control plane's thread. Without it such a request has no effect.
  std::function<void()> on_shutdown_request;
};

class Service {
 public:
  // The pool's lock is held. On return the service answers and POOL/service.json says where. Order:
  // metastore, targets, store, hot tier, recovery, transport, engine, drain, control plane, service.json; a
  // failure takes down what was up, in reverse.
  static Result<std::unique_ptr<Service>> start(const PoolPaths& paths, const PoolConfig& config,
                                                ServiceOptions options);
  virtual ~Service() = default;  // stops

  // In order: no longer found, no new requests, drain ended after the step in hand. What is not drained stays
  // in the hot tier.
  virtual void stop() = 0;
};

}  // namespace sluice::server
