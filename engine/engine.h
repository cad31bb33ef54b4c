#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "burst_buffer/drain.h"
#include "burst_buffer/hot_tier.h"
#include "engine/workers.h"
#include "storage/object_store.h"
#include "transport/transport.h"

// The server's request path: sessions, open files and their transactions, over the hot tier, the store and
// the locks.
//
// Thread rule: everything runs on the transport's loop thread, but status(), counters() and drain_progress(),
// which any thread may call. What blocks (the medium, the metastore) runs on Workers and comes back by
// Transport::post().
namespace sluice::engine {

class ChangeBoard;
class LaneFile;

struct Options {
  uint64_t pool_id = 0;
  std::string pool_name;       // shown to users
  std::string hints;           // defaults for files, as base/hints.h reads rules; told to clients
  std::string drain;           // the drain's policy, told to clients
  uint64_t lease_ms = 10'000;  // a session that is silent for longer is evicted
  uint64_t recovery_ms =
      15'000;  // after a start: how long transactions of earlier sessions wait to be resumed
  uint64_t full_wait_ms =
      30'000;  // how long a write waits for the drain when the hot tier is full, then ENOSPC
};

// What the locks of one file did since the service started. As of at most some seconds ago.
struct LockCounters {
  std::string path;
  uint64_t held = 0;
  uint64_t waiting = 0;
  uint64_t grants = 0;
  uint64_t expansions = 0;
  uint64_t revokes = 0;
  uint64_t ahead_dropped = 0;  // extents asked ahead that met a conflict
  uint64_t waits = 0;
  uint64_t wait_ms = 0;
};

struct Counters {
  uint64_t sessions = 0;
  uint64_t clients = 0;  // of those, connected at this moment
  uint64_t open_files = 0;
  uint64_t bytes_written = 0;  // acknowledged, since start
  uint64_t bytes_read = 0;
  uint64_t writes = 0;
  uint64_t reads = 0;
  uint64_t syncs = 0;
  uint64_t requests = 0;  // of all kinds, from clients that said hello
  uint64_t opens = 0, attaches = 0, closes = 0;
  uint64_t degraded_blocks = 0;
  uint64_t sessions_evicted = 0;
  uint64_t requests_refused = 0;    // messages that the protocol does not allow
  std::vector<LockCounters> locks;  // of files that had any, by path
};

// The parts an engine works over. All outlive it.
struct Parts {
  transport::Transport& transport;
  Workers& workers;
  burst_buffer::HotTier& hot;
  storage::ObjectStore& store;
  storage::MetaStore& meta;
  LaneFile* lane = nullptr;  // none: no process fills the hot tier by itself
  ChangeBoard* changes = nullptr;
};

class Engine : public transport::Handler {
 public:
  // Makes itself the transport's handler. `recovered transactions` of the hot tier wait for their sessions;
  // the rest of the recovery (orphaned stripes) has been done by the caller (see recover()).
  static std::unique_ptr<Engine> create(Options options, Parts parts);
  ~Engine() override = default;

  // The drain that carries this engine's bytes; must be set before the first message, and outlive the engine.
  virtual void set_drain(burst_buffer::Drain* drain) = 0;
  // To be wired as Drain::Options::on_progress: wakes writers that wait for room. Any thread.
  virtual void drain_progress(const Result<>& outcome) = 0;

  // Ends every session and transaction in an orderly way: uncommitted transactions of sessions that did not
  // say goodbye stay in the log, to be resumed within the recovery window of the next start. Nothing is
  // answered any more.
  virtual void shut_down() = 0;

  virtual Counters counters() const = 0;
};

// The storage tier as the drain sees it.
std::unique_ptr<burst_buffer::DrainSink> make_drain_sink(storage::ObjectStore& store);

// Before an engine is made: puts hot tier and store in step after any kind of end. Removes stripes that
// nothing refers to.
Result<> recover(burst_buffer::HotTier& hot, storage::ObjectStore& store);

}  // namespace sluice::engine
