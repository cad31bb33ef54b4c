#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "tools/pool_service.h"

// What each command does, apart from its command line (main.cc). They print to stdout, say what went wrong in
// one sentence on stderr, and answer the exit code (exit_code.h).
namespace sluice::tools {

// Options that describe a pool to be made, and the service on it.
struct PoolOptions {
  std::optional<unsigned> targets;
  std::optional<std::string> object_class;
  std::optional<unsigned> servers;
  std::optional<std::string> listen;
  std::optional<std::string> hot_dir;
  std::optional<std::string> hot_size;
  std::optional<std::string> drain;
  bool accept_lost_hot_tier = false;
};

inline std::string pool_from_environment() {
  const char* pool = std::getenv("SLUICE_POOL");
  return pool == nullptr ? std::string() : std::string(pool);
}

inline constexpr const char* kDefaultPool = "sluice-pool";

struct Common {
  std::string pool = pool_from_environment();  // --pool wins; empty when neither was given
  bool json = false;
};

struct UpOptions {
  Common common;
  PoolOptions pool;
};
struct DownOptions {
  Common common;
  bool no_drain = false;
};
struct RunOptions {
  Common common;
  PoolOptions pool;
  unsigned ranks = 1;
  std::string mpirun;
  std::vector<std::string> command;
};
struct ListOptions {
  Common common;
  bool long_format = false;
  bool recursive = false;
  std::string path = "/";
};
struct PathsOptions {
  Common common;
  std::vector<std::string> paths;
  bool force = false;
  bool recursive = false;
  uint64_t timeout_s = 3600;
};
struct CopyCommandOptions {
  Common common;
  std::string from, to;
  bool force = false;
  std::string object_class;
  std::string chunk_size;
};

struct HintsOptions {
  bool json = false;
  bool markdown = false;
};

int run_up(const UpOptions& options);
int run_down(const DownOptions& options);
int run_run(const RunOptions& options);
// `metrics`: as text for Prometheus.
int run_status(const Common& options, bool metrics);
int run_list(const ListOptions& options);
int run_stat(const PathsOptions& options);
int run_copy(const CopyCommandOptions& options);
int run_remove(const PathsOptions& options);
int run_explain(const PathsOptions& options);
int run_persist(const PathsOptions& options);
int run_locks(const PathsOptions& options);
// The table of hints; nothing is looked at.
int run_hints(const HintsOptions& options);
int run_preload();
int run_libs();
int run_doctor(const Common& options);
// The lock table driven by a script, from a file or, when none is named, from stdin.
int run_lock_table(const std::string& script_file);
// A hot tier's log, or a shard's header, as text; no server may have the file open.
int run_dump(const std::string& file);

// --- shared by the commands ---

// Set to "private" for the programs of `sluice run`: a service that one of them has to start anew, after a
// crash, is still one that ends with the command.
inline constexpr const char* kServiceKind = "SLUICE_SERVICE";

// Says the sentence on stderr; answers the exit code that belongs to it.
int report(const Error& error);
int report_as(const Error& error, int code);
void say(const std::string& line);  // a line on stderr that is no error

// The pool as an absolute path; kInvalidArgument when none is named.
Result<std::string> pool_of(const Common& common);
// The words for sluiced; kUnsupported for more than one server.
Result<std::vector<std::string>> sluiced_words(const PoolOptions& options);
// A path of the pool, with or without "sluice:"; kInvalidArgument for a local one.
Result<std::string> path_in_pool(const std::string& text);

// A client on the pool's service, which is started for the time being when none runs.
struct Connection {
  ServiceUse use;
  std::shared_ptr<client::Client> client;
  std::string pool;
};
Result<Connection> connect(const Common& common);
// Ends the use (see ServiceUse::end); answers `code`, or the code of what went wrong when `code` is 0. A
// private service is drained first, until `interrupted` says so.
int disconnect(
    Connection connection, int code, const std::function<bool()>& interrupted = [] { return false; });

}  // namespace sluice::tools
