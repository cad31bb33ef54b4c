#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "burst_buffer/drain.h"
#include "burst_buffer/hot_tier.h"
#include "engine/engine.h"
#include "server/pool.h"
#include "storage/object_store.h"

// What a service says of itself. Pure.
namespace sluice::server {

struct StatusSnapshot {
  std::string version;
  std::string pool;   // its directory
  PoolConfig config;  // what it was asked to be
  std::string object_class;
  std::string address;
  int pid = 0;
  bool private_service = false;
  uint64_t uptime_s = 0;
  std::vector<storage::TargetStatus> targets;
  uint64_t missing_shards = 0;  // to be put back
  uint64_t lost_shards = 0;     // of those, beyond rebuilding
  std::string hot_path;
  std::string hot_medium;
  std::string hot_survives;
  burst_buffer::Usage hot;
  uint64_t files = 0;
  burst_buffer::DrainStatus drain;
  engine::Counters counters;
};

// "ok", or "degraded: " and what is not as it should be.
std::string service_state(const StatusSnapshot& snapshot);

// The object that `sluice status --json` prints: sizes in bytes, times in seconds.
std::string status_json(const StatusSnapshot& snapshot);

// Prometheus text format 0.0.4.
std::string metrics_text(const StatusSnapshot& snapshot);

}  // namespace sluice::server
