#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/os.h"
#include "base/result.h"
#include "client/client.h"
#include "server/pool.h"
#include "server/service.h"

namespace sluice::testing {

// A whole service in this process, over a pool in a temporary directory. Start and stop as often as you like;
// the pool stays until the object dies.
class MiniService {
 public:
  explicit MiniService(server::PoolRequest request = {}) : request_(std::move(request)) {}
  // What to ask of the pool; before the first start().
  void ask(server::PoolRequest request) { request_ = std::move(request); }
  // Starts over a pool of that many targets and that hot tier.
  Result<> start(unsigned targets, uint64_t hot_bytes);
  ~MiniService() { stop(); }

  Result<> start();
  void stop() { service_.reset(); }

  std::filesystem::path pool() const { return directory_->path() / "pool"; }
  std::filesystem::path target(unsigned i) const { return pool() / "targets" / ("t" + std::to_string(i)); }
  Result<std::shared_ptr<client::Client>> connect(const std::string& lock_mode = "") const;
  // What connect() takes: this pool, no service of its own, the lane that SLUICE_LANE says.
  client::Options client_options() const;

 private:
  server::PoolRequest request_;
  std::optional<TemporaryDirectory> directory_;
  std::optional<server::PoolLock> lock_;
  std::unique_ptr<server::Service> service_;
};

}  // namespace sluice::testing
