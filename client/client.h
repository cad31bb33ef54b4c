#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/extent.h"
#include "base/result.h"
#include "base/types.h"

// libsluice in C++: files of a pool. sluice.h is the same for C programs.
//
// Thread rule: Client and File are thread-safe; calls block their caller until the service answered, or until
// it stayed unreachable for Options::unavailable_after_ms (then kUnavailable). No call hangs. A service that
// comes back in time is reconnected to, and what was asked is asked again.
namespace sluice::client {

struct Options {
  std::string pool;            // the pool's directory
  bool start_service = true;   // start one when none runs there
  bool await_service = false;  // none runs there now: as if it had been lost, wait for it
  std::string lane = "auto";   // SLUICE_LANE: auto, local, remote
  std::string lock_mode;       // SLUICE_LOCK_MODE; empty: the pool's, or auto
  uint64_t unavailable_after_ms = 30'000;
};

// From SLUICE_POOL, SLUICE_LANE, SLUICE_LOCK_MODE. kInvalidArgument, with what to set, when no pool is named
// or a value is unknown.
Result<Options> options_from_environment();

struct FileInfo {
  std::string path;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t mode = 0;
  uint64_t size_bytes = 0;  // committed
  std::string object_class;
  uint64_t chunk_bytes = 0;
  uint32_t targets = 0;  // that a stripe lies on
  uint64_t committed_epoch = 0;
  uint64_t persisted_epoch = 0;  // drained to the storage tier
  uint64_t hot_bytes = 0;        // not drained yet
  uint64_t drained_bytes = 0;
  uint64_t created_s = 0;
  uint64_t modified_s = 0;
};

enum class AccessMode { kReadOnly, kWriteOnly, kReadWrite };

struct OpenOptions {
  AccessMode access = AccessMode::kReadOnly;
  bool create = false;
  bool exclusive = false;  // with create: kExists when it is there
  bool truncate = false;
  uint32_t mode = 0666;  // of a created file; the caller's umask is applied by the client
  // Empty or 0: what the pool's hints say of such a path (pool.toml), or else the pool's default.
  std::string object_class;        // of a created file
  uint64_t chunk_bytes = 0;        // of a created file
  uint32_t striping_factor = 0;    // without a class: that of a created file has so many targets, if one has
  std::string lock_mode;           // empty: Options::lock_mode first
  uint32_t lockahead_extents = 0;  // asked for ahead at a time
};

// A piece of memory, in the order in which the bytes of the extents fill it.
struct ConstPiece {
  const void* data = nullptr;
  size_t bytes = 0;
};
struct Piece {
  void* data = nullptr;
  size_t bytes = 0;
};

// What another process needs to use an open file: plain text of at most kMaxHandleBytes, worth as much as the
// file itself.
inline constexpr size_t kMaxHandleBytes = 8704;  // two paths and 512 bytes
using SharedHandle = std::string;

// An open file: one transaction at a time, shared by all who attached to the handle. Its writes are seen
// through the handle at once, by everybody else when sync() or close() committed them. The service hears of a
// sharer with its first access; until then a sharer counts for nothing. When the process of one that it has
// heard of dies before the owner closed, the transaction can no longer commit: sync() fails with kAborted,
// and the file stays at its last synced state. A write that failed, or could not attach, has the same end:
// from then on flush(), sync() and a committing close() of that process fail, so that no sharer commits a
// transaction that lacks a write.
class File {
 public:
  virtual ~File() = default;  // without close(): like close(false)

  // Extents are filled from, or fill, the memory pieces in order; both sum up to the same number of bytes.
  // Answers the bytes done: all of them for a write; for a read those before the end of the file (memory
  // beyond is untouched), counted in the order of the extents, so a short count means that all extents from
  // there on lie beyond the end. A write that returned survives a crash of the service, as long as this
  // process lives, and is durable after sync(). It may be on its way still (at most 64 are), or under a
  // lock wait for more to go with: when it fails then, the next call says so, and every flush(), sync() and
  // committing close() after it.
  virtual Result<uint64_t> write(std::span<const Extent> extents, std::span<const ConstPiece> memory) = 0;
  virtual Result<uint64_t> read(std::span<const Extent> extents, std::span<const Piece> memory) = 0;

  virtual Result<uint64_t> size() = 0;
  virtual Result<> resize(uint64_t size_bytes) = 0;
  // Makes sure that room for this many bytes could be had; extends the file with zeros up to it.
  virtual Result<> preallocate(uint64_t size_bytes) = 0;

  // Asks for another chunk size while the file is empty, `reason` (cut to 200 bytes) saying why, for
  // `sluice explain`. Answers the size in effect: the old one when there are bytes already, or the size was
  // asked for at creation or changed before.
  virtual Result<uint64_t> shape(uint64_t chunk_bytes, const std::string& reason) = 0;

  // This process's own writes have reached the service. Call before another sharer's sync(). Without writes
  // since the open there is nothing to ask.
  virtual Result<> flush() = 0;
  // Commits the handle's transaction, as durable as the hot tier's medium is, and starts the next one. One
  // sharer calls it after all flushed. Answers the committed epoch.
  virtual Result<uint64_t> sync() = 0;
  // The owner's: with `commit` like sync(), then ends the handle for all who share it. A sharer's tells the
  // service nothing: `commit` is ignored there, but for the error of a write that failed. Further calls are
  // kInvalidArgument.
  virtual Result<> close(bool commit) = 0;

  virtual SharedHandle share() const = 0;

  // Adds to a counter that the handle's sharers have in common and answers its value before; it starts at 0
  // at open.
  virtual Result<int64_t> fetch_and_add(int64_t delta) = 0;
  // Sets the counter, answers the value before.
  virtual Result<int64_t> exchange_counter(int64_t value) = 0;

  // For SLUICE_STATS: how a collective access was done. `two_phase`: the ranks exchanged its pieces first, of
  // which this one sent so many bytes to others; otherwise each did its own part.
  virtual void count_plan(bool two_phase, uint64_t exchanged_bytes) = 0;

  // A byte-range lock held until unlock, whatever the lock mode: for atomic mode. Waits for its turn.
  virtual Result<uint64_t> lock(Extent extent, bool exclusive) = 0;
  virtual Result<> unlock(uint64_t lock) = 0;

  virtual const FileInfo& opened() const = 0;  // as it was at open
  virtual std::string lock_mode() const = 0;   // in effect; lockmgr/strategy.h says what each means
  // What is in effect for this file, as far as this process knows: each hint of base/hint_table.h that is not ROMIO's, and its aliases;
  // striping_factor when it was asked for.
  virtual std::vector<std::pair<std::string, std::string>> effective_hints() const = 0;
};

// The locks of a file on the service, now, and what they did since the service started.
struct LockReport {
  struct Lock {
    Extent extent;
    uint64_t session = 0;
    uint32_t pid = 0;
    std::string mode;  // "PR", "PW", "GROUP(7)"
    bool waiting = false;
    bool revoked = false;  // asked back, not given back yet
    bool ahead = false;    // asked for ahead
  };
  std::vector<Lock> locks;  // those held by begin, then those that wait; the first thousand
  uint64_t held = 0, waiting = 0, revoked = 0;
  uint64_t grants = 0, expansions = 0, revokes = 0, reclaimed = 0, ahead_extents = 0, ahead_dropped = 0;
  uint64_t waits = 0, wait_ms = 0;
};

class Client {
 public:
  static Result<std::shared_ptr<Client>> connect(const Options& options);
  // The connection that this process has to the pool already, whatever its other options, or a new one. It
  // ends with the last holder.
  static Result<std::shared_ptr<Client>> shared(const Options& options);
  // From now on such connections stay between two files, until end_shared(): the next file then finds its
  // session, and the hot tier mapped. One that has lost its service in the meantime is made anew.
  static void keep_shared();
  static void end_shared();
  virtual ~Client() = default;
  virtual bool connected() const = 0;

  // Paths are absolute inside the pool ("/a/b"); "a/b", "//a/./b" mean the same; ".." is refused.
  virtual Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) = 0;
  // Asks nothing: the first access attaches. When the file was closed by then, that fails with
  // kInvalidArgument.
  virtual Result<std::unique_ptr<File>> attach(const SharedHandle& handle) = 0;
  virtual Result<FileInfo> stat(const std::string& path) = 0;
  // Files at or below a path, by path.
  virtual Result<std::vector<FileInfo>> list(const std::string& path) = 0;
  virtual Result<> remove(const std::string& path) = 0;
  // Returns when the storage tier holds all that was committed before the call: of one file, or of all (path
  // "/"). Fails when the drain is blocked for longer than `timeout_ms`, with its reason.
  virtual Result<> wait_drained(const std::string& path, uint64_t timeout_ms) = 0;
  virtual Result<LockReport> locks(const std::string& path) = 0;
  // One fact a line on the layout and the reasons.
  virtual Result<std::string> explain(const std::string& path) = 0;
};

// "sluice:/a/b", "sluice:a" or a path under the prefix (SLUICE_PREFIX, default /sluice) -> "/a/b"; nothing
// for a path that is not Sluice's.
std::optional<std::string> pool_path(const std::string& name);

// Client::attach() from the share text alone, which names the pool; the first access connects, too. Used by
// ranks that did not open the file themselves.
Result<std::unique_ptr<File>> attach_shared(const SharedHandle& handle);

}  // namespace sluice::client
