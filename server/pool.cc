#include "server/pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <charconv>
#include <set>

#include "server/pool_file.h"

namespace sluice::server {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kDrainPolicies[] = {"immediate", "on_sync", "watermark", "idle"};

bool is_pool_or_becomes_one(const PoolPaths& paths) {
  std::error_code ec;
  return fs::exists(paths.config(), ec) || fs::exists(paths.formatting(), ec);
}

// What a directory may hold and still become a pool: nothing, or what an interrupted format() left. Another
// process may be formatting it at this moment: whatever of a pool is seen, the mark or pool.toml is there
// before and after it.
Result<> check_fit_for_pool(const PoolPaths& paths) {
  if (is_pool_or_becomes_one(paths)) return {};
  std::error_code ec;
  fs::directory_iterator entries(paths.pool, ec);
  if (ec) return fail(errno_error(ec.value(), "read the directory", paths.pool.string()));
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename();
    if (name == "lock" || name == "sluiced.log" || name.starts_with("formatting.")) continue;
    if (is_pool_or_becomes_one(paths)) return {};
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is not empty and is no pool (it holds '{}'); name a new or an empty directory",
                    paths.pool.string(), name));
  }
  return {};
}

std::optional<int> read_pid(int fd) {
  char text[32] = {};
  const ssize_t got = ::pread(fd, text, sizeof text - 1, 0);
  int pid = 0;
  if (got <= 0 || std::from_chars(text, text + got, pid).ec != std::errc{} || pid <= 0) return std::nullopt;
  return pid;
}

Result<> write_pid(int fd, const std::string& object) {
  const std::string text = fmt::format("{:<15}\n", ::getpid());
  if (::ftruncate(fd, 0) != 0) return fail(errno_error(errno, "truncate", object));
  return pwrite_all(fd, std::as_bytes(std::span(text)), 0, object);
}

Result<uint64_t> random_id() {
  uint64_t id = 0;
  if (::getrandom(&id, sizeof id, 0) != sizeof id)
    return fail(errno_error(errno, "read random bytes for", "the pool id"));
  return id == 0 ? 1 : id;
}

Result<> check_policy(const std::string& policy) {
  for (std::string_view known : kDrainPolicies)
    if (policy == known) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no drain policy '{}'; use {}", policy, fmt::join(kDrainPolicies, ", ")));
}

Result<> make_directory(const fs::path& path) {
  std::error_code ec;
  fs::create_directories(path, ec);
  if (ec) return fail(errno_error(ec.value(), "create the directory", path.string()));
  return {};
}

// Everything of a request that can be wrong is found before anything is created.
Result<PoolConfig> plan_pool(const PoolPaths& paths, const PoolRequest& request) {
  PoolConfig config;
  const unsigned targets = request.targets.value_or(kDefaultTargets);
  if (targets < 1 || targets > kMaxTargets)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a pool has 1 to {} targets, not {}", kMaxTargets, targets));
  config.object_class = storage::ObjectClass::default_for(targets);
  if (request.object_class) {
    auto parsed = storage::ObjectClass::parse(*request.object_class);
    if (!parsed) return fail(parsed.error());
    config.object_class = *parsed;
  }
  if (auto resolved = config.object_class.resolve(targets); !resolved) return fail(resolved.error());
  for (unsigned i = 0; i < targets; ++i) config.targets.push_back(paths.targets() / fmt::format("t{}", i));

  auto id = random_id();
  if (!id) return fail(id.error());
  config.pool_id = *id;
  config.hot_bytes = request.hot_bytes.value_or(kDefaultHotBytes);
  if (config.hot_bytes < kMinHotBytes || config.hot_bytes > kMaxHotBytes)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the hot tier has {}M to {}G bytes, not {}", kMinHotBytes >> 20,
                            kMaxHotBytes >> 30, config.hot_bytes));
  // Several pools may share a directory for their hot tiers.
  config.hot_file = request.hot_dir ? fs::absolute(*request.hot_dir) / fmt::format("sluice-{:016x}.pool", *id)
                                    : paths.hot() / "hot.pool";
  config.listen = "tcp://127.0.0.1:0";
  config.drain = "immediate";
  return apply_request(std::move(config), PoolRequest{.targets = {},
                                                      .object_class = {},
                                                      .hot_dir = {},
                                                      .hot_bytes = {},
                                                      .listen = request.listen,
                                                      .drain = request.drain});
}

Result<> remove_partial_format(const PoolPaths& paths) {
  for (const fs::path& part : {paths.targets(), paths.meta(), paths.hot()}) {
    std::error_code ec;
    fs::remove_all(part, ec);
    if (ec) return fail(errno_error(ec.value(), "remove what an interrupted format left in", part.string()));
  }
  return {};
}

Result<> check_hot_directory(const fs::path& hot_file, bool named_by_user) {
  std::error_code ec;
  if (!named_by_user) return make_directory(hot_file.parent_path());
  if (fs::is_directory(hot_file.parent_path(), ec)) return {};
  return fail(ErrorCode::kNotFound, fmt::format("--hot-dir {} is not a directory; create it or name another",
                                                hot_file.parent_path().string()));
}

bool same_directory(const fs::path& one, const fs::path& other) {
  std::error_code ec;
  // The empty last part makes "dir" and "dir/" one.
  return fs::absolute(one / "").lexically_normal() == fs::absolute(other / "").lexically_normal() ||
         fs::equivalent(one, other, ec);
}

}  // namespace

Result<PoolLock> PoolLock::acquire(const PoolPaths& paths, std::optional<int>* holder) {
  if (auto made = make_directory(paths.pool); !made) return fail(made.error());
  if (auto fit = check_fit_for_pool(paths); !fit) return fail(fit.error());
  auto fd = open_file(paths.lock(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (!fd && fd.error().code == ErrorCode::kAccess)
    return fail(
        ErrorCode::kAccess,
        fd.error().message + "; the pool is another user's: name one of your own with --pool or SLUICE_POOL");
  if (!fd) return fail(fd.error());
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(errno_error(errno, "lock", paths.lock().string()));
    const std::optional<int> pid = read_pid(fd->get());
    if (holder != nullptr) *holder = pid;
    return fail(
        ErrorCode::kBusy,
        fmt::format("a server runs on the pool {} already (pid {}); see `sluice status --pool {}`",
                    paths.pool.string(), pid ? std::to_string(*pid) : "not known yet", paths.pool.string()));
  }
  // flock() has no way to ask who holds a lock but to take it, which would make a server that starts at that
  // moment think that another one runs. This second lock of the same holder can be asked about.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd->get(), F_OFD_SETLK, &whole) != 0)
    return fail(errno_error(errno, "lock", paths.lock().string()));
  if (auto written = write_pid(fd->get(), paths.lock().string()); !written) return fail(written.error());
  return PoolLock(std::move(*fd));
}

Result<> check_request(const PoolPaths& paths, const PoolRequest& request) {
  std::error_code ec;
  if (fs::exists(paths.config(), ec)) return {};
  if (fs::exists(paths.pool, ec)) {
    if (auto fit = check_fit_for_pool(paths); !fit) return fit;
  }
  auto plan = plan_pool(paths, request);
  if (!plan) return fail(plan.error());
  if (request.hot_dir) return check_hot_directory(plan->hot_file, true);
  return {};
}

Result<PoolConfig> load_pool(const PoolPaths& paths) {
  constexpr size_t kMaxConfigBytes = 1 << 20;
  auto text = read_file(paths.config(), kMaxConfigBytes);
  if (!text) {
    if (text.error().code != ErrorCode::kNotFound) return fail(text.error());
    return fail(ErrorCode::kNotFound,
                fmt::format("there is no pool in {} (no pool.toml); create one with `sluice up --pool {}`",
                            paths.pool.string(), paths.pool.string()));
  }
  auto config = parse_pool_file(*text, paths);
  if (!config) return fail_with_context(paths.config().string(), config.error());
  if (auto listen = parse_listen(config->listen); !listen)
    return fail_with_context(paths.config().string(), listen.error());
  if (auto policy = check_policy(config->drain); !policy)
    return fail_with_context(paths.config().string(), policy.error());
  return config;
}

Result<PoolConfig> format_pool(const PoolPaths& paths, const PoolRequest& request,
                               const FormatTarget& format_target) {
  auto config = plan_pool(paths, request);
  if (!config) return config;
  if (auto removed = remove_partial_format(paths); !removed) return fail(removed.error());
  // Order: mark, make the parts, write pool.toml, unmark. A crash before pool.toml leaves the mark and no
  // pool.
  if (auto marked = replace_file(paths.formatting(), "a pool is being made here\n"); !marked)
    return fail(marked.error());

  auto made = [&]() -> Result<> {
    for (const fs::path& directory : {paths.targets(), paths.meta()})
      if (auto done = make_directory(directory); !done) return done;
    if (auto hot = check_hot_directory(config->hot_file, request.hot_dir.has_value()); !hot) return hot;
    for (uint32_t i = 0; i < config->targets.size(); ++i)
      if (auto done = format_target(config->targets[i], config->pool_id, i); !done) return done;
    if (auto synced = fsync_directory(paths.targets()); !synced) return synced;
    // There is no hot tier yet, so nothing in it is needed.
    if (auto noted = replace_file(paths.drained(), "nothing in the hot tier is needed\n"); !noted)
      return noted;
    return replace_file(paths.config(), print_pool_file(*config, paths));
  }();
  std::error_code ignored;
  if (!made) {
    if (auto removed = remove_partial_format(paths); removed) fs::remove(paths.formatting(), ignored);
    return fail(made.error());
  }
  fs::remove(paths.formatting(), ignored);
  return config;
}

Result<PoolConfig> apply_request(PoolConfig config, const PoolRequest& request) {
  const auto differs = [](const char* option, const std::string& is, const std::string& asked) {
    return fail(
        ErrorCode::kConflict,
        fmt::format("the pool was made with {} {}, not {}; leave the option out, or make another pool",
                    option, is, asked));
  };
  if (request.targets && *request.targets != config.targets.size())
    return differs("--targets", std::to_string(config.targets.size()), std::to_string(*request.targets));
  if (request.object_class && *request.object_class != config.object_class.name())
    return differs("--class", config.object_class.name(), *request.object_class);
  if (request.hot_dir && !same_directory(*request.hot_dir, config.hot_file.parent_path()))
    return differs("--hot-dir", config.hot_file.parent_path().string(), request.hot_dir->string());
  if (request.hot_bytes && *request.hot_bytes != config.hot_bytes)
    return differs("--hot-size", std::to_string(config.hot_bytes), std::to_string(*request.hot_bytes));
  if (request.listen) {
    if (auto listen = parse_listen(*request.listen); !listen) return fail(listen.error());
    config.listen = *request.listen;
  }
  if (request.drain) {
    if (auto policy = check_policy(*request.drain); !policy) return fail(policy.error());
    config.drain = *request.drain;
  }
  return config;
}

Result<ListenAddress> parse_listen(const std::string& text) {
  const auto refuse = [&](std::string_view why) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "'{}' is no address to listen on: {}; write HOST:PORT, e.g. 127.0.0.1:0 for any free port", text,
            why));
  };
  std::string_view rest = text;
  constexpr std::string_view kScheme = "tcp://";
  if (rest.starts_with(kScheme))
    rest.remove_prefix(kScheme.size());
  else if (rest.find("://") != std::string_view::npos)
    return refuse("only tcp:// is known");
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return refuse("it names no port");
  ListenAddress address{std::string(rest.substr(0, colon)), 0};
  const std::string_view port = rest.substr(colon + 1);
  if (address.host.empty()) return refuse("it names no host");
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc{} || end != port.data() + port.size())
    return refuse("the port is not a number from 0 to 65535");
  return address;
}

}  // namespace sluice::server
