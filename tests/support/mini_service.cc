#include "tests/support/mini_service.h"

#include <cstdlib>

#include "storage/target.h"

namespace sluice::testing {

Result<> MiniService::start() {
  if (!directory_) {
    auto directory = TemporaryDirectory::create("sluice-mini");
    if (!directory) return fail(directory.error());
    directory_.emplace(std::move(*directory));
    const server::PoolPaths paths(pool());
    auto lock = server::PoolLock::acquire(paths);
    if (!lock) return fail(lock.error());
    lock_.emplace(std::move(*lock));
    auto formatted =
        server::format_pool(paths, request_, [](const auto& path, uint64_t pool_id, uint32_t target) {
          return storage::format_file_target(path, pool_id, TargetId(target));
        });
    if (!formatted) return fail(formatted.error());
  }
  const server::PoolPaths paths(pool());
  auto config = server::load_pool(paths);
  if (!config) return fail(config.error());
  auto service = server::Service::start(paths, *config, {});
  if (!service) return fail(service.error());
  service_ = std::move(*service);
  return {};
}

Result<> MiniService::start(unsigned targets, uint64_t hot_bytes) {
  request_.targets = targets;
  request_.hot_bytes = hot_bytes;
  return start();
}

client::Options MiniService::client_options() const {
  client::Options options;
  options.pool = pool().string();
  options.start_service = false;
  if (const char* lane = std::getenv("SLUICE_LANE"); lane != nullptr) options.lane = lane;
  return options;
}

Result<std::shared_ptr<client::Client>> MiniService::connect(const std::string& lock_mode) const {
  client::Options options = client_options();
  options.lock_mode = lock_mode;
  return client::Client::connect(options);
}

}  // namespace sluice::testing
