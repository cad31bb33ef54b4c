#include "client/client.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/hints.h"
#include "base/log.h"
#include "client/core.h"
#include "client/local_service.h"
#include "client/lock_mode.h"
#include "client/remote_file.h"
#include "client/service.h"
#include "transport/ofi/loop_thread.h"
#include "transport/ofi/ofi_transport.h"

namespace sluice::client {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The process's umask, which can only be read by setting it.
uint32_t current_umask() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const mode_t mask = ::umask(022);
  ::umask(mask);
  return mask;
}

Result<> check_lane(const std::string& lane) {
  if (lane == "auto" || lane == "local" || lane == "remote") return {};
  return fail(ErrorCode::kInvalidArgument,
              "SLUICE_LANE=" + lane + " is not a lane; use auto, local or remote");
}

Error not_local(const std::string& pool) {
  return {ErrorCode::kUnsupported, "SLUICE_LANE=local, but the service of " + pool +
                                       " runs on another host or as another user; use auto or remote"};
}

// Where to connect. A service that restarts may be away for a while, so a process that belongs to the local
// lane waits for it there; but where shared memory turns out not to reach (another network namespace), `auto`
// takes tcp in turn.
Result<transport::Address> locate(const std::string& pool, const std::string& lane, unsigned failures) {
  constexpr unsigned kLocalAttempts = 20;
  auto service = find_service(pool);
  if (!service) return fail(service.error());
  if (lane == "remote") return service->address;
  const auto local = local_address(pool);
  if (lane == "local") return local ? Result<transport::Address>(*local) : fail(not_local(pool));
  const bool take_local = local && (failures < kLocalAttempts || failures % 2 == 0);
  return take_local ? *local : service->address;
}

class ClientImpl final : public Client, public std::enable_shared_from_this<ClientImpl> {
 public:
  ClientImpl(Options options, std::unique_ptr<transport::OfiTransport> transport)
      : options_(std::move(options)),
        transport_(std::move(transport)),
        core_(
            *transport_, session_options(options_), [this] { return loop_.running(); },
            [this](const std::function<bool()>& done) { return loop_.drive(done); },
            [this](const std::function<void()>& work) { return loop_.run_here(work); }),
        loop_(*transport_) {}

  ~ClientImpl() override {
    (void)core_.wait_for<bool>([this](auto done) { core_.session.end([done] { done(true); }); });
    loop_.stop();
  }

  Result<> start() { return loop_.start(); }
  bool connected() const override { return core_.session.connected(); }
  // Keeps the client.
  std::shared_ptr<Core> core() { return {shared_from_this(), &core_}; }

  // Makes the first connection, so that a pool that cannot be used is told at once.
  Result<> probe() {
    auto done = core_.ask<wire::DoneT>(wire::RenewT{});
    if (!done) return fail(done.error());
    return {};
  }

  Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& asked) override {
    auto plain = protocol::normalise_path(path);
    if (!plain) return fail(plain.error());
    const OpenOptions options = with_defaults(*plain, asked);
    const std::string& mode = options.lock_mode;
    if (auto ok = settle_lock_mode(mode, options.lockahead_extents, options.access, 0); !ok)
      return fail(ok.error());
    wire::OpenT ask;
    ask.path = *plain;
    ask.access = static_cast<wire::Access>(options.access);
    ask.create = options.create;
    ask.exclusive = options.exclusive;
    ask.truncate = options.truncate;
    ask.mode = options.mode & ~current_umask();
    ask.object_class = options.object_class;
    ask.chunk = options.chunk_bytes;
    ask.striping_factor = options.striping_factor;
    auto opened = core_.ask<wire::OpenedT>(std::move(ask));
    if (!opened && opened.error().code == ErrorCode::kExists && opened.error().outcome_unknown) {
      opened.error().message +=
          " (the service was lost while it was asked: this very call may have created it)";
    }
    if (!opened) return fail(opened.error());
    auto locks = settle_lock_mode(mode, options.lockahead_extents, options.access, opened->writers);
    if (!locks) return fail(locks.error());
    HandleText handle;
    handle.handle = opened->handle;
    handle.secret = opened->secret;
    handle.container = opened->info->container;
    handle.access = options.access;
    handle.lock_mode = locks->print();
    handle.pool = options_.pool;
    handle.drain = core_.pool_terms().drain;
    handle.unavailable_after_ms = options_.unavailable_after_ms;
    handle.info = to_file_info(*opened->info);
    return make_remote_file(core(), std::move(handle), options);
  }

  Result<std::unique_ptr<File>> attach(const SharedHandle& text) override {
    auto handle = HandleText::parse(text);
    if (!handle) return fail(handle.error());
    return make_shared_file(std::move(*handle), [core = core()] { return core; });
  }

  Result<FileInfo> stat(const std::string& path) override {
    auto plain = protocol::normalise_path(path);
    if (!plain) return fail(plain.error());
    wire::StatT ask;
    ask.path = *plain;
    auto told = core_.ask<wire::FileInfoT>(std::move(ask));
    if (!told) return fail(told.error());
    return to_file_info(*told);
  }

  Result<std::vector<FileInfo>> list(const std::string& path) override {
    auto plain = protocol::normalise_path(path);
    if (!plain) return fail(plain.error());
    std::vector<FileInfo> files;
    while (true) {
      wire::ListT ask;
      ask.path = *plain;
      ask.after = files.empty() ? std::string() : files.back().path;
      auto listed = core_.ask<wire::ListedT>(std::move(ask));
      if (!listed) return fail(listed.error());
      for (const auto& told : listed->files) files.push_back(to_file_info(*told));
      if (!listed->more || listed->files.empty()) return files;
    }
  }

  Result<> remove(const std::string& path) override {
    auto plain = protocol::normalise_path(path);
    if (!plain) return fail(plain.error());
    wire::RemoveT ask;
    ask.path = *plain;
    auto removed = core_.ask<wire::DoneT>(std::move(ask));
    // Asked again after a lost connection: the first try removed it.
    if (!removed && removed.error().code == ErrorCode::kNotFound && removed.error().outcome_unknown)
      return {};
    if (!removed) return fail(removed.error());
    return {};
  }

  Result<> wait_drained(const std::string& path, uint64_t timeout_ms) override {
    auto plain = protocol::normalise_path(path);
    if (!plain) return fail(plain.error());
    wire::AwaitDrainedT ask;
    ask.path = *plain;
    ask.timeout_ms = timeout_ms;
    auto done = core_.ask<wire::DoneT>(std::move(ask));
    if (!done) return fail(done.error());
    return {};
  }

  Result<LockReport> locks(const std::string& path) override {
    auto plain = protocol::normalise_path(path);
    if (!plain) return fail(plain.error());
    wire::LocksT ask;
    ask.path = *plain;
    auto shown = core_.ask<wire::LocksShownT>(std::move(ask));
    if (!shown) return fail(shown.error());
    return to_lock_report(*shown);
  }

  Result<std::string> explain(const std::string& path) override {
    auto plain = protocol::normalise_path(path);
    if (!plain) return fail(plain.error());
    wire::ExplainT ask;
    ask.path = *plain;
    auto explained = core_.ask<wire::ExplainedT>(std::move(ask));
    if (!explained) return fail(explained.error());
    return explained->text;
  }

 private:
  // What the caller left open is for the variables, and then for the pool's hints, to say.
  OpenOptions with_defaults(const std::string& path, OpenOptions options) const {
    if (options.lock_mode.empty()) options.lock_mode = options_.lock_mode;
    const HintSettings pool = pool_settings(path);
    const bool lays_out = options.object_class.empty() && options.striping_factor == 0;
    if (lays_out) options.object_class = pool.object_class;
    if (lays_out) options.striping_factor = static_cast<uint32_t>(pool.striping_factor);
    if (options.chunk_bytes == 0) options.chunk_bytes = pool.chunk_bytes;
    if (options.lock_mode.empty()) options.lock_mode = pool.lock_mode;
    if (options.lock_mode.empty()) options.lock_mode = "auto";
    if (options.lockahead_extents == 0)
      options.lockahead_extents = static_cast<uint32_t>(pool.lockahead_extents);
    return options;
  }
  // The service has checked them by its own table of hints.
  HintSettings pool_settings(const std::string& path) const {
    auto hints = hints_for_path("the pool's [hints]", core_.pool_terms().hints, path);
    auto resolved = hints ? resolve_hints({&*hints, 1}) : hints;
    if (resolved) return settings_of(*resolved);
    log::warn("{}", resolved.error().message);
    return {};
  }

  static Session::Options session_options(const Options& options) {
    Session::Options session;
    session.unavailable_after_ms = options.unavailable_after_ms;
    session.locate = [pool = options.pool, lane = options.lane](unsigned failures) {
      return locate(pool, lane, failures);
    };
    return session;
  }

  const Options options_;
  std::unique_ptr<transport::OfiTransport> transport_;
  Core core_;
  transport::LoopThread loop_;
};

transport::OfiOptions transport_options(const std::string& lane) {
  transport::OfiOptions options;
  options.scheme = lane == "remote" ? "tcp" : lane == "local" ? "shm" : "any";
  options.tcp_when_needed = true;
  return options;
}

}  // namespace

Result<Options> options_from_environment() {
  Options options;
  options.pool = environment("SLUICE_POOL");
  if (options.pool.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "no pool is named; set SLUICE_POOL to its directory, or start the program with `sluice run`");
  }
  if (const auto lane = environment("SLUICE_LANE"); !lane.empty()) options.lane = lane;
  if (const auto mode = environment("SLUICE_LOCK_MODE"); !mode.empty()) options.lock_mode = mode;
  if (auto ok = check_lane(options.lane); !ok) return fail(ok.error());
  if (!options.lock_mode.empty()) {
    if (auto ok = check_lock_mode(options.lock_mode); !ok) return fail(ok.error());
  }
  return options;
}

Result<std::shared_ptr<Client>> Client::connect(const Options& options) {
  Options absolute = options;
  std::error_code bad;
  absolute.pool = std::filesystem::absolute(options.pool, bad).lexically_normal().string();
  if (options.pool.empty() || bad)
    return fail(ErrorCode::kInvalidArgument, "a pool is named by its directory");
  auto service = find_service(absolute.pool);
  if (!service && service.error().code == ErrorCode::kUnavailable && options.start_service) {
    if (auto started = start_service(absolute.pool); !started) return fail(started.error());
    service = find_service(absolute.pool);
  }
  const bool comes_back =
      !service && service.error().code == ErrorCode::kUnavailable && options.await_service;
  if (!service && !comes_back) return fail(service.error());
  if (!comes_back && absolute.lane == "local" && !local_address(absolute.pool))
    return fail(not_local(absolute.pool));
  auto transport = transport::OfiTransport::create(transport_options(absolute.lane));
  if (!transport) return fail(transport.error());
  auto client = std::make_shared<ClientImpl>(std::move(absolute), std::move(*transport));
  if (auto started = client->start(); !started) return fail(started.error());
  if (auto reached = client->probe(); !reached) return fail(reached.error());
  return std::shared_ptr<Client>(std::move(client));
}

std::optional<std::string> pool_path(const std::string& name) {
  static constexpr std::string_view kScheme = "sluice:";
  if (name.starts_with(kScheme)) {
    auto plain = protocol::normalise_path(name.substr(kScheme.size()));
    return plain ? std::optional(*plain) : std::nullopt;
  }
  std::string prefix = environment("SLUICE_PREFIX");
  if (prefix.empty()) prefix = "/sluice";
  while (prefix.size() > 1 && prefix.back() == '/') prefix.pop_back();
  if (!name.starts_with(prefix + "/")) return std::nullopt;
  auto plain = protocol::normalise_path(name.substr(prefix.size()));
  return plain ? std::optional(*plain) : std::nullopt;
}

namespace {

// Never destroyed: files may be closed later than any static object.
struct SharedClients {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Client>> by_pool;
  std::map<std::string, std::shared_ptr<Client>> kept;
  bool keep = false;

  static SharedClients& instance() {
    static auto* clients = new SharedClients;
    return *clients;
  }
};

}  // namespace

Result<std::shared_ptr<Client>> Client::shared(const Options& options) {
  SharedClients& all = SharedClients::instance();
  const std::lock_guard lock(all.mutex);
  if (const auto kept = all.kept.find(options.pool);
      kept != all.kept.end() && kept->second.use_count() == 1 && !kept->second->connected())
    all.kept.erase(kept);
  auto& known = all.by_pool[options.pool];
  if (auto client = known.lock()) return client;
  auto client = connect(options);
  if (!client) return client;
  known = *client;
  if (all.keep) all.kept[options.pool] = *client;
  return client;
}

void Client::keep_shared() {
  SharedClients& all = SharedClients::instance();
  const std::lock_guard lock(all.mutex);
  all.keep = true;
}

void Client::end_shared() {
  SharedClients& all = SharedClients::instance();
  std::map<std::string, std::shared_ptr<Client>> ended;  // says goodbye without the lock
  const std::lock_guard lock(all.mutex);
  all.keep = false;
  ended.swap(all.kept);
}

Result<std::unique_ptr<File>> attach_shared(const SharedHandle& text) {
  auto handle = HandleText::parse(text);
  if (!handle) return fail(handle.error());
  Options options;
  options.pool = handle->pool;
  options.start_service = false;
  if (const auto mode = environment("SLUICE_LOCK_MODE"); !mode.empty()) options.lock_mode = mode;
  if (const auto lane = environment("SLUICE_LANE"); !lane.empty()) options.lane = lane;
  if (auto ok = check_lane(options.lane); !ok) return fail(ok.error());
  options.unavailable_after_ms = handle->unavailable_after_ms;
  options.await_service = true;  // it was there at the open
  return make_shared_file(std::move(*handle), [options]() mutable -> Result<std::shared_ptr<Core>> {
    auto client = Client::shared(options);
    if (client) return static_cast<ClientImpl&>(**client).core();  // connect() makes no others
    options.await_service = false;  // a later access tries once more, and waits no second time
    return fail(client.error());
  });
}

}  // namespace sluice::client
