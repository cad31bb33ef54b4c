#include "server/service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "burst_buffer/drain.h"
#include "burst_buffer/hot_tier.h"
#include "burst_buffer/pmem/pmem_domain.h"
#include "engine/change_board.h"
#include "engine/engine.h"
#include "engine/lane_file.h"
#include "engine/workers.h"
#include "server/control.h"
#include "server/healer.h"
#include "server/service_file.h"
#include "server/status.h"
#include "storage/object_store.h"
#include "storage/target.h"
#include "transport/ofi/loop_thread.h"
#include "transport/ofi/ofi_transport.h"

namespace sluice::server {
namespace fs = std::filesystem;
namespace {

constexpr unsigned kWorkerThreads = 4;
constexpr uint64_t kHealPeriodMs = 2'000;
constexpr uint64_t kHealLooksToCompare = 60;
constexpr uint64_t kQuietMs = 100;  // of reads and writes, before the drain goes at full speed

uint64_t random_u64() {
  uint64_t value = 0;
  // Up to 256 bytes are never cut short once the system is up; a server does not start before.
  if (::getrandom(&value, sizeof value, 0) != sizeof value) value = static_cast<uint64_t>(::getpid());
  return value;
}

burst_buffer::DrainPolicy policy_of(const std::string& name) {
  if (name == "on_sync") return burst_buffer::DrainPolicy::kOnSync;
  if (name == "watermark") return burst_buffer::DrainPolicy::kWatermark;
  if (name == "idle") return burst_buffer::DrainPolicy::kIdle;
  return burst_buffer::DrainPolicy::kImmediate;
}

// The pool's lock is ours, so whoever still has one of its parts is a server that is dying at this moment.
constexpr uint64_t kDyingServerPatienceMs = 10'000;

template <class Open>
auto open_when_free(Open open) {
  const SteadyClock clock;
  const uint64_t end_ms = clock.now_ms() + kDyingServerPatienceMs;
  auto opened = open();
  while (!opened && opened.error().code == ErrorCode::kBusy && clock.now_ms() < end_ms) {
    ::poll(nullptr, 0, 20);
    opened = open();
  }
  return opened;
}

class RunningService final : public Service {
 public:
  RunningService(PoolPaths paths, PoolConfig config, ServiceOptions options)
      : paths_(std::move(paths)), config_(std::move(config)), options_(std::move(options)) {}

  ~RunningService() override { stop(); }

  Result<> start() {
    if (auto opened = open_store(); !opened) return opened;
    if (auto opened = open_hot_tier(); !opened) return opened;
    if (auto recovered = engine::recover(*hot_, *store_); !recovered)
      return fail_with_context("recovery of the pool " + paths_.pool.string(), recovered.error());
    if (auto listening = start_engine(); !listening) return listening;
    healer_ = std::make_unique<Healer>(*store_, kHealPeriodMs, kHealLooksToCompare);
    if (auto control = start_control(); !control) return control;
    return announce();
  }

  void stop() override {
    if (stopped_) return;
    stopped_ = true;
    {
      const std::lock_guard lock(announcement_mutex_);
      announcement_.reset();
      std::error_code ignored;
      fs::remove(paths_.service(), ignored);  // first: nobody new finds a service that is going
    }
    control_.reset();
    healer_.reset();
    if (loop_) {
      std::promise<void> done;
      transport_->post([&] {
        engine_->shut_down();
        done.set_value();
      });
      done.get_future().wait();
      loop_->stop();
    }
    if (drain_) drain_->stop();
    workers_.reset();  // their work posts to the transport, which is still there
    // The transport ends what is under way by completions that reach into the engine.
    loop_.reset();
    transport_.reset();
    engine_.reset();
    lane_.reset();
    drain_.reset();
    sink_.reset();
    note_drained();
    hot_.reset();
    store_.reset();
  }

 private:
  Result<> open_store() {
    auto meta = open_when_free([this] { return storage::open_sqlite_metastore(paths_.meta() / "pool.db"); });
    if (!meta) return fail(meta.error());
    meta_ = meta->get();
    std::vector<std::unique_ptr<storage::Target>> targets;
    for (uint32_t i = 0; i < config_.targets.size(); ++i) {
      auto target = storage::open_file_target(config_.targets[i], config_.pool_id, TargetId(i));
      if (!target) return fail(target.error());
      if (auto usable = (*target)->usage(); !usable)
        log::warn("{}; until then its shards are rebuilt from the others on reading", usable.error().message);
      targets.push_back(std::move(*target));
    }
    storage::ObjectStore::Options options;
    options.default_class = config_.object_class;
    options.seed = random_u64();
    auto store = storage::ObjectStore::open(options, std::move(targets), std::move(*meta));
    if (!store) return fail(store.error());
    store_ = std::move(*store);
    return {};
  }

  Result<> open_hot_tier() {
    std::error_code ec;
    const bool there = fs::exists(config_.hot_file, ec);
    const bool drained = fs::exists(paths_.drained(), ec);
    if (!there && !drained) {
      if (!options_.accept_lost_hot_tier) {
        Error error(ErrorCode::kCorrupt,
                    fmt::format("the hot tier {} is gone, and it may have held data that is "
                                "nowhere else; bring it back, or accept "
                                "the loss with `sluice up --pool {} --accept-lost-hot-tier`",
                                config_.hot_file.string(), paths_.pool.string()));
        return fail(error.mark_data_loss());
      }
      log::error("the hot tier {} is gone; starting with an empty one as told: what was not drained is lost",
                 config_.hot_file.string());
    }
    // From here on the hot tier may hold what nothing else has.
    fs::remove(paths_.drained(), ec);
    if (auto synced = fsync_directory(paths_.pool); !synced) return synced;
    auto domain = open_when_free(
        [this] { return burst_buffer::open_pmem_domain(config_.hot_file, config_.hot_bytes); });
    if (!domain) return fail(domain.error());
    domain_ = *domain;
    burst_buffer::HotTier::Options options;
    options.path = config_.hot_file.string();
    options.size_bytes = config_.hot_bytes;
    options.published = [this](ContainerId id) -> Result<std::optional<burst_buffer::CommitInfo>> {
      auto info = store_->find(id);
      if (!info && info.error().code == ErrorCode::kNotFound)
        return std::optional<burst_buffer::CommitInfo>();
      if (!info) return fail(info.error());
      return std::optional(burst_buffer::CommitInfo{info->published, info->size});
    };
    auto changes = engine::ChangeBoard::create();
    if (!changes) return fail(changes.error());
    changes_ = std::move(*changes);
    options.on_change = [board = changes_.get()](ContainerId container) { board->note(container); };
    auto hot = burst_buffer::HotTier::open(std::move(options), domain_);
    if (!hot) return fail(hot.error());
    hot_ = std::move(*hot);
    return {};
  }

  // What processes that may fill the hot tier by themselves get of it.
  Result<> open_lane(transport::OfiOptions& fabric) {
    const auto area = hot_->shared_area();
    if (!area) return {};
    auto hot_file = open_file(area->path, O_RDWR);
    if (!hot_file) return fail(hot_file.error());
    auto lane = engine::LaneFile::open(paths_.lane(), random_u64());
    if (!lane) return fail(lane.error());
    hot_file_ = std::move(*hot_file);
    lane_ = std::move(*lane);
    fabric.lend = {hot_file_.get(), lane_->readable().get(), changes_->descriptor().get()};
    return {};
  }

  Result<> start_engine() {
    auto listen = parse_listen(config_.listen);
    if (!listen) return fail(listen.error());
    transport::OfiOptions fabric;
    fabric.node = listen->host;
    fabric.port = listen->port;
    if (auto lent = open_lane(fabric); !lent) return lent;
    // Processes of this user on this host come over shared memory, and know by the name that it is for them.
    fabric.scheme = "any";
    fabric.local_name = host_name_hash() + fmt::format("-{:016x}", random_u64());
    auto transport = transport::OfiTransport::create(fabric);
    if (!transport) return fail(transport.error());
    transport_ = std::move(*transport);
    address_ = transport_->address().text;
    local_address_ = transport_->local_address().text;

    workers_ = std::make_unique<engine::ThreadWorkers>(kWorkerThreads);
    engine::Options options;
    options.pool_id = config_.pool_id;
    options.pool_name = paths_.pool.string();
    options.hints = print_rules(config_.hints);
    options.drain = config_.drain;
    engine_ = engine::Engine::create(
        options, {*transport_, *workers_, *hot_, *store_, *meta_, lane_.get(), changes_.get()});
    sink_ = engine::make_drain_sink(*store_);
    burst_buffer::Drain::Options drain;
    drain.policy = policy_of(config_.drain);
    drain.quiet_ms = kQuietMs;
    drain.on_progress = [engine = engine_.get()](Result<> outcome) { engine->drain_progress(outcome); };
    drain_ = burst_buffer::Drain::create(*hot_, *sink_, std::move(drain));
    engine_->set_drain(drain_.get());
    auto loop = std::make_unique<transport::LoopThread>(*transport_);
    if (auto started = loop->start(); !started) return started;
    loop_ = std::move(loop);  // set only when it runs: stop() waits for its last work
    drain_->start();
    drain_->kick();  // what the last run left
    return {};
  }

  Result<> start_control() {
    ControlCalls calls;
    calls.status_json = [this] { return status_json(snapshot()); };
    calls.metrics = [this] { return metrics_text(snapshot()); };
    calls.kick_drain = [this] { drain_->drain_all(); };
    calls.drain_state = [this] {
      const auto status = drain_->status();
      return DrainState{status.bytes_left, status.state, status.blocked};
    };
    calls.keep = [this] {
      if (private_.exchange(false)) log::info("asked to stay");
    };
    calls.announce = [this] { return keep_announced(); };
    calls.shut_down = [this] {
      if (options_.on_shutdown_request) options_.on_shutdown_request();
    };
    auto control = Control::create(paths_.control(), std::move(calls));
    if (!control) return fail(control.error());
    control_ = std::move(*control);
    return {};
  }

  // Again and again by the control plane: somebody may have damaged or removed the file.
  Result<> keep_announced() {
    if (pool_is_gone()) {
      log::error("the pool {} was removed; stopping", paths_.pool.string());
      if (options_.on_shutdown_request) options_.on_shutdown_request();
      return {};
    }
    const std::lock_guard lock(announcement_mutex_);
    if (!announcement_ || service_file_is(paths_.service(), *announcement_)) return {};
    log::warn("{} is not as it was written; writing it again", paths_.service().string());
    return write_service_file(paths_.service(), *announcement_);
  }

  // Somebody removed it under the service: nobody can reach it any more, and another may begin at its path.
  bool pool_is_gone() const {
    std::error_code ec;
    return !fs::exists(paths_.config(), ec) && !ec && !fs::exists(paths_.lock(), ec) && !ec;
  }

  Result<> announce() {
    ServiceFile file;
    file.version = SLUICE_VERSION;
    file.pid = ::getpid();
    file.boot = random_u64();
    file.addresses = {address_, local_address_};
    file.control = paths_.control().filename();
    {
      const std::lock_guard lock(announcement_mutex_);
      if (auto written = write_service_file(paths_.service(), file); !written) return written;
      announcement_ = file;
    }
    log::info("ready: pool {}, class {}, {} targets, hot tier {} ({}, survives a {}), {}",
              paths_.pool.string(), config_.object_class.name(), config_.targets.size(),
              config_.hot_file.string(), domain_->medium(), domain_->survives(), file.addresses[0]);
    return {};
  }

  StatusSnapshot snapshot() {
    StatusSnapshot now;
    now.version = SLUICE_VERSION;
    now.pool = paths_.pool.string();
    now.config = config_;
    now.object_class = config_.object_class.name();
    now.address = address_;
    now.pid = ::getpid();
    now.private_service = private_;
    now.uptime_s = (clock_.now_ms() - started_ms_) / 1000;
    now.targets = store_->target_status();
    now.missing_shards = store_->missing_shards();
    now.lost_shards = store_->lost_shards();
    now.hot_path = config_.hot_file.string();
    now.hot_medium = domain_->medium();
    now.hot_survives = domain_->survives();
    now.hot = hot_->usage();
    if (auto files = store_->list("/")) now.files = files->size();
    now.drain = drain_->status();
    now.counters = engine_->counters();
    return now;
  }

  // The mark that the hot tier's file may be lost without a loss of data.
  void note_drained() {
    if (!hot_ || hot_->usage().bytes_undrained > 0) return;
    if (auto noted = replace_file(paths_.drained(), "nothing in the hot tier is needed\n"); !noted)
      log::warn("{}", noted.error().message);
  }

  const PoolPaths paths_;
  const PoolConfig config_;
  const ServiceOptions options_;
  const SteadyClock clock_;
  const uint64_t started_ms_ = clock_.now_ms();
  std::atomic<bool> private_{options_.private_service};
  bool stopped_ = false;
  std::mutex announcement_mutex_;
  std::optional<ServiceFile> announcement_;  // while clients are to find the service
  std::string address_;                      // a copy: the transport belongs to its loop
  std::string local_address_;

  storage::MetaStore* meta_ = nullptr;  // the store's
  std::unique_ptr<storage::ObjectStore> store_;
  std::shared_ptr<burst_buffer::PersistDomain> domain_;
  std::unique_ptr<burst_buffer::HotTier> hot_;
  UniqueFd hot_file_;
  std::unique_ptr<engine::LaneFile> lane_;
  std::unique_ptr<engine::ChangeBoard> changes_;
  std::unique_ptr<transport::OfiTransport> transport_;
  std::unique_ptr<engine::ThreadWorkers> workers_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<burst_buffer::DrainSink> sink_;
  std::unique_ptr<burst_buffer::Drain> drain_;
  std::unique_ptr<transport::LoopThread> loop_;
  std::unique_ptr<Healer> healer_;
  std::unique_ptr<Control> control_;
};

}  // namespace

Result<std::unique_ptr<Service>> Service::start(const PoolPaths& paths, const PoolConfig& config,
                                                ServiceOptions options) {
  auto service = std::make_unique<RunningService>(paths, config, std::move(options));
  if (auto started = service->start(); !started) return fail(started.error());
  return service;
}

}  // namespace sluice::server
