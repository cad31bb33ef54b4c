#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/hints.h"
#include "base/os.h"
#include "base/result.h"
#include "storage/object_class.h"

// The directory that a pool is. Nothing here is thread-safe; one server process owns a pool (PoolLock).
//
//   POOL/pool.toml      what the pool is (PoolConfig); its presence means that the pool was formatted whole
//   POOL/lock           held by the server that runs, by flock() and by a lock of the whole file that
//                       fcntl(F_OFD_GETLK) tells of; contains its pid
//   POOL/targets/tN     storage targets that were asked for by number; others are named by path in pool.toml
//   POOL/meta/          the metastore
//   POOL/hot/hot.pool   the hot tier, unless --hot-dir put it elsewhere
//   POOL/service.json   how to reach the service (see service_file.h); there only while it is ready
//   POOL/control.sock   the control plane
//   POOL/sluiced.log    the server's log
namespace sluice::server {

inline constexpr int kPoolFormat = 1;
inline constexpr unsigned kDefaultTargets = 3;
inline constexpr unsigned kMaxTargets = 256;
inline constexpr uint64_t kDefaultHotBytes = 256ull << 20;
inline constexpr uint64_t kMinHotBytes = 16ull << 20;
inline constexpr uint64_t kMaxHotBytes = 1ull << 44;

struct PoolPaths {
  explicit PoolPaths(std::filesystem::path directory) : pool(std::move(directory)) {}

  std::filesystem::path pool;
  std::filesystem::path config() const { return pool / "pool.toml"; }
  std::filesystem::path lock() const { return pool / "lock"; }
  std::filesystem::path formatting() const { return pool / "formatting"; }
  std::filesystem::path targets() const { return pool / "targets"; }
  std::filesystem::path meta() const { return pool / "meta"; }
  std::filesystem::path hot() const { return pool / "hot"; }
  std::filesystem::path service() const { return pool / "service.json"; }
  std::filesystem::path control() const { return pool / "control.sock"; }
  std::filesystem::path lane() const { return pool / "lane"; }
  std::filesystem::path log() const { return pool / "sluiced.log"; }
  // Tells a clean end from a crash: exists while nothing in the hot tier is needed any more.
  std::filesystem::path drained() const { return pool / "drained"; }
};

struct PoolConfig {
  uint64_t pool_id = 0;
  storage::ObjectClass object_class;
  std::vector<std::filesystem::path> targets;  // absolute, in the order of their numbers
  std::filesystem::path hot_file;              // absolute
  uint64_t hot_bytes = 0;
  std::string listen;  // as in PoolRequest
  std::string drain;
  std::vector<HintRule> hints;  // defaults for the pool's files, in the file's order
};

// What was asked on the command line; what is not set is not asked. Relative paths are relative to the
// current directory.
struct PoolRequest {
  std::optional<unsigned> targets;
  std::optional<std::string> object_class;
  std::optional<std::filesystem::path> hot_dir;
  std::optional<uint64_t> hot_bytes;
  std::optional<std::string> listen;  // "tcp://HOST:PORT" or "HOST:PORT", port 0 for any
  std::optional<std::string> drain;   // immediate, on_sync, watermark, idle
};

// Makes one target; storage::format_file_target in the product.
using FormatTarget =
    std::function<Result<>(const std::filesystem::path& path, uint64_t pool_id, uint32_t target)>;

// Owns a pool while it lives; lost with the process, however that ends.
class PoolLock {
 public:
  // kBusy when another process holds it, with its pid in the message and in `holder`. Makes the directory
  // when it is missing; refuses (kInvalidArgument) one that holds other things than a pool.
  static Result<PoolLock> acquire(const PoolPaths& paths, std::optional<int>* holder = nullptr);

 private:
  explicit PoolLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Finds what is wrong with a request before anything is made: for a directory that is no pool yet, all that
// format_pool() would refuse; for a pool, nothing (see apply_request).
Result<> check_request(const PoolPaths& paths, const PoolRequest& request);

// Reads pool.toml. kNotFound when there is none; kInvalidArgument names file, place and reason when it makes
// no sense.
Result<PoolConfig> load_pool(const PoolPaths& paths);

// Formats a pool; the lock is held. Whole, or not at all: what a crash in between left is removed by the next
// call. A class that does not fit the targets, or a size beyond the limits, is kInvalidArgument and leaves
// nothing behind.
Result<PoolConfig> format_pool(const PoolPaths& paths, const PoolRequest& request,
                               const FormatTarget& format_target);

// Does a request agree with what the pool is? Targets, class, hot tier are fixed at format: kConflict names
// the first that differs. `listen` and `drain` may differ; the answer has them applied.
Result<PoolConfig> apply_request(PoolConfig config, const PoolRequest& request);

// "HOST:PORT" or "tcp://HOST:PORT" in parts.
struct ListenAddress {
  std::string host;
  uint16_t port = 0;
};
Result<ListenAddress> parse_listen(const std::string& text);

}  // namespace sluice::server
