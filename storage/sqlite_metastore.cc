#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <mutex>

#include "base/os.h"
#include "storage/metastore.h"
#include "storage/sqlite.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSchemaVersion = 2;
constexpr uint64_t kApplicationId = 0x536c7563;  // "Sluc", in the file's own header
constexpr uint64_t kMaxNumber = std::numeric_limits<int64_t>::max();

constexpr char kSchema[] = R"sql(
CREATE TABLE containers(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  path TEXT NOT NULL UNIQUE,
  uid INTEGER NOT NULL, gid INTEGER NOT NULL, mode INTEGER NOT NULL,
  class TEXT NOT NULL, chunk_size INTEGER NOT NULL,
  published INTEGER NOT NULL, size INTEGER NOT NULL,
  created_s INTEGER NOT NULL, modified_s INTEGER NOT NULL,
  chunk_reason TEXT NOT NULL DEFAULT '') STRICT;
CREATE TABLE steps(
  container INTEGER NOT NULL, to_epoch INTEGER NOT NULL, delta BLOB NOT NULL,
  PRIMARY KEY(container, to_epoch)) STRICT;
CREATE TABLE counters(name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
CREATE TABLE facts(key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
PRAGMA application_id = 1399616867;
PRAGMA user_version = 2;
)sql";
constexpr char kUpgradeFrom1[] = R"sql(
ALTER TABLE containers ADD COLUMN chunk_reason TEXT NOT NULL DEFAULT '';
PRAGMA user_version = 2;
)sql";
static_assert(kApplicationId == 1399616867 && kSchemaVersion == 2);

#define SLUICE_CONTAINER_COLUMNS \
  "id, path, uid, gid, mode, class, chunk_size, published, size, created_s, modified_s, chunk_reason"
constexpr char kFindByPath[] = "SELECT " SLUICE_CONTAINER_COLUMNS " FROM containers WHERE path = ?";
constexpr char kFindById[] = "SELECT " SLUICE_CONTAINER_COLUMNS " FROM containers WHERE id = ?";
// Below "/a" is what lies between "/a/" and "/a0": '0' follows '/'.
constexpr char kListBelow[] = "SELECT " SLUICE_CONTAINER_COLUMNS
                              " FROM containers WHERE path = ? OR (path >= ? AND path < ?) ORDER BY path";
#undef SLUICE_CONTAINER_COLUMNS

Result<ContainerInfo> read_row(const Statement& row) {
  ContainerInfo info;
  info.id = ContainerId(row.number(0));
  info.attributes.path = row.bytes(1);
  info.attributes.uid = static_cast<uint32_t>(row.number(2));
  info.attributes.gid = static_cast<uint32_t>(row.number(3));
  info.attributes.mode = static_cast<uint32_t>(row.number(4));
  const auto object_class = ObjectClass::parse(row.bytes(5));
  if (!object_class) {
    return fail(ErrorCode::kCorrupt,
                "metadata of " + info.attributes.path + " is damaged: " + object_class.error().message);
  }
  info.attributes.object_class = *object_class;
  info.attributes.chunk_size = Length(row.number(6));
  info.published = Epoch(row.number(7));
  info.size = Length(row.number(8));
  info.created_s = row.number(9);
  info.modified_s = row.number(10);
  info.attributes.chunk_reason = row.bytes(11);
  return info;
}

// Held by one process at a time, and by the kernel's word free when that process is gone.
Result<UniqueFd> lock_pool(const fs::path& database) {
  const std::string path = database.string() + ".lock";
  auto fd = open_file(path, O_RDWR | O_CREAT, 0600);
  if (!fd) return fd;
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(errno_error(errno, "lock", path));
    const auto holder = read_file(path, 64);
    const std::string pid = holder && !holder->empty() ? "process " + *holder : "another process";
    Error error(
        ErrorCode::kBusy,
        fmt::format("pool {} is in use by {}; stop it with `sluice down --pool {}` or take another pool",
                    database.parent_path().string(), pid, database.parent_path().string()));
    return fail(std::move(error.mark_retryable()));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd->get(), 0) != 0) return fail(errno_error(errno, "truncate", path));
  if (auto ok = pwrite_all(fd->get(), std::as_bytes(std::span(pid)), 0, path); !ok) return fail(ok.error());
  return fd;
}

Result<> prepare_schema(Database& database, const std::string& path) {
  for (const char* pragma :
       {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"}) {
    if (auto ok = database.run(pragma); !ok) return ok;
  }
  auto transaction = database.begin();
  if (!transaction) return fail(transaction.error());
  const auto application = database.number("PRAGMA application_id");
  if (!application) return fail(application.error());
  const auto tables = database.number("SELECT count(*) FROM sqlite_schema");
  if (!tables) return fail(tables.error());
  if (*application == 0 && *tables == 0) {
    if (auto ok = database.run(kSchema); !ok) return ok;
    return transaction->commit();
  }
  if (*application != kApplicationId) {
    return fail(ErrorCode::kCorrupt,
                path + " is not the metadata of a Sluice pool; name another pool directory");
  }
  const auto version = database.number("PRAGMA user_version");
  if (!version) return fail(version.error());
  if (*version == 1) {
    if (auto ok = database.run(kUpgradeFrom1); !ok) return ok;
    return transaction->commit();
  }
  if (*version != kSchemaVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} has format version {}, this program reads version {}", path, *version,
                            kSchemaVersion));
  }
  return {};
}

class SqliteMetaStore final : public MetaStore {
 public:
  SqliteMetaStore(UniqueFd lock, Database database)
      : lock_(std::move(lock)), database_(std::move(database)) {}

  Result<ContainerInfo> create(const ContainerAttributes& attributes, uint64_t now_s) override;
  Result<ContainerInfo> find(const std::string& path) override;
  Result<ContainerInfo> find(ContainerId id) override;
  Result<std::vector<ContainerInfo>> list(const std::string& path) override;
  Result<> remove(ContainerId id) override;
  Result<> shape(ContainerId id, Length chunk_size, const std::string& reason) override;
  Result<uint64_t> allot(const std::string& name, uint64_t count) override;
  Result<> advance(ContainerId id, Epoch from, Epoch to, Length size, const std::string& delta,
                   uint64_t now_s) override;
  Result<std::vector<std::string>> steps(ContainerId id) override;
  Result<> aggregate(ContainerId id, Epoch to, const std::string& merged) override;
  Result<std::optional<std::string>> get(const std::string& key) override;
  Result<> put(const std::string& key, const std::string& value) override;

 private:
  Result<ContainerInfo> find_locked(ContainerId id);
  Result<ContainerInfo> one(Statement& statement, const std::string& what);
  // Runs one statement that changes something, with `bind` giving it its parameters. Answers the rows
  // changed.
  template <class Bind>
  Result<uint64_t> change(const char* sql, Bind&& bind) {
    auto statement = database_.prepare(sql);
    if (!statement) return fail(statement.error());
    bind(*statement);
    return statement->run();
  }

  std::mutex mutex_;
  UniqueFd lock_;      // let go after the database is closed
  Database database_;  // under mutex_
};

Result<ContainerInfo> SqliteMetaStore::one(Statement& statement, const std::string& what) {
  const auto row = statement.step();
  if (!row) return fail(row.error());
  if (!*row) return fail(ErrorCode::kNotFound, "there is no " + what);
  return read_row(statement);
}

Result<ContainerInfo> SqliteMetaStore::find_locked(ContainerId id) {
  if (id.value > kMaxNumber)
    return fail(ErrorCode::kNotFound, fmt::format("there is no container {}", id.value));
  auto statement = database_.prepare(kFindById);
  if (!statement) return fail(statement.error());
  return one(statement->bind(id.value), fmt::format("container {}", id.value));
}

Result<ContainerInfo> SqliteMetaStore::find(ContainerId id) {
  std::lock_guard lock(mutex_);
  return find_locked(id);
}

Result<ContainerInfo> SqliteMetaStore::find(const std::string& path) {
  std::lock_guard lock(mutex_);
  auto statement = database_.prepare(kFindByPath);
  if (!statement) return fail(statement.error());
  return one(statement->bind(path), path);
}

Result<ContainerInfo> SqliteMetaStore::create(const ContainerAttributes& attributes, uint64_t now_s) {
  std::lock_guard lock(mutex_);
  auto transaction = database_.begin();
  if (!transaction) return fail(transaction.error());
  const std::string class_name = attributes.object_class.name();
  const auto inserted = change(
      "INSERT INTO containers(path, uid, gid, mode, class, chunk_size, published, size, created_s, "
      "modified_s, chunk_reason) "
      "VALUES(?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?)",
      [&](Statement& statement) {
        statement.bind(attributes.path).bind(attributes.uid).bind(attributes.gid).bind(attributes.mode);
        statement.bind(class_name).bind(attributes.chunk_size.value).bind(now_s).bind(now_s);
        statement.bind(attributes.chunk_reason);
      });
  if (!inserted) {
    if (inserted.error().code == ErrorCode::kExists)
      return fail(ErrorCode::kExists, attributes.path + " exists already");
    return fail(inserted.error());
  }
  const auto id = database_.number("SELECT last_insert_rowid()");
  if (!id) return fail(id.error());
  auto info = find_locked(ContainerId(*id));
  if (!info) return info;
  if (auto ok = transaction->commit(); !ok) return fail(ok.error());
  return info;
}

Result<std::vector<ContainerInfo>> SqliteMetaStore::list(const std::string& path) {
  std::lock_guard lock(mutex_);
  auto statement = database_.prepare(kListBelow);
  if (!statement) return fail(statement.error());
  const std::string stem = path == "/" ? "" : path;
  const std::string first = stem + "/";
  const std::string end = stem + "0";
  statement->bind(path).bind(first).bind(end);
  std::vector<ContainerInfo> found;
  while (true) {
    const auto row = statement->step();
    if (!row) return fail(row.error());
    if (!*row) return found;
    auto info = read_row(*statement);
    if (!info) return fail(info.error());
    found.push_back(*std::move(info));
  }
}

Result<> SqliteMetaStore::remove(ContainerId id) {
  std::lock_guard lock(mutex_);
  auto transaction = database_.begin();
  if (!transaction) return fail(transaction.error());
  if (auto found = find_locked(id); !found) return fail(found.error());
  for (const char* sql : {"DELETE FROM containers WHERE id = ?", "DELETE FROM steps WHERE container = ?"}) {
    const auto removed = change(sql, [&](Statement& statement) { statement.bind(id.value); });
    if (!removed) return fail(removed.error());
  }
  return transaction->commit();
}

Result<> SqliteMetaStore::shape(ContainerId id, Length chunk_size, const std::string& reason) {
  std::lock_guard lock(mutex_);
  auto transaction = database_.begin();
  if (!transaction) return fail(transaction.error());
  auto info = find_locked(id);
  if (!info) return fail(info.error());
  if (info->published != Epoch(0))
    return fail(ErrorCode::kConflict, info->attributes.path + " has a published version already");
  const auto changed = change("UPDATE containers SET chunk_size = ?, chunk_reason = ? WHERE id = ?",
                              [&](Statement& s) { s.bind(chunk_size.value).bind(reason).bind(id.value); });
  if (!changed) return fail(changed.error());
  return transaction->commit();
}

Result<uint64_t> SqliteMetaStore::allot(const std::string& name, uint64_t count) {
  std::lock_guard lock(mutex_);
  if (count == 0) return fail(ErrorCode::kInvalidArgument, "no numbers were asked for");
  auto transaction = database_.begin();
  if (!transaction) return fail(transaction.error());
  uint64_t next = 1;
  {
    auto statement = database_.prepare("SELECT next FROM counters WHERE name = ?");
    if (!statement) return fail(statement.error());
    const auto row = statement->bind(name).step();
    if (!row) return fail(row.error());
    if (*row) next = statement->number(0);
  }
  if (count > kMaxNumber - next) return fail(ErrorCode::kTooLarge, "no numbers are left for " + name);
  const auto moved = change("INSERT OR REPLACE INTO counters(name, next) VALUES(?, ?)",
                            [&](Statement& statement) { statement.bind(name).bind(next + count); });
  if (!moved) return fail(moved.error());
  if (auto ok = transaction->commit(); !ok) return fail(ok.error());
  return next;
}

Result<> SqliteMetaStore::advance(ContainerId id, Epoch from, Epoch to, Length size, const std::string& delta,
                                  uint64_t now_s) {
  std::lock_guard lock(mutex_);
  if (from >= to || to.value > kMaxNumber)
    return fail(ErrorCode::kInvalidArgument, "a step must lead to a later epoch");
  if (size.value > kMaxFileBytes) return fail(ErrorCode::kTooLarge, "the file would be too large");
  auto transaction = database_.begin();
  if (!transaction) return fail(transaction.error());
  const auto info = find_locked(id);
  if (!info) return fail(info.error());
  if (info->published != from) {
    return fail(ErrorCode::kConflict, fmt::format("the published version of {} is {}, not {}",
                                                  info->attributes.path, info->published.value, from.value));
  }
  const auto moved =
      change("UPDATE containers SET published = ?, size = ?, modified_s = ? WHERE id = ?",
             [&](Statement& s) { s.bind(to.value).bind(size.value).bind(now_s).bind(id.value); });
  if (!moved) return fail(moved.error());
  const auto added = change("INSERT INTO steps(container, to_epoch, delta) VALUES(?, ?, ?)",
                            [&](Statement& s) { s.bind(id.value).bind(to.value).bind_blob(delta); });
  if (!added) return fail(added.error());
  return transaction->commit();
}

Result<std::vector<std::string>> SqliteMetaStore::steps(ContainerId id) {
  std::lock_guard lock(mutex_);
  if (auto found = find_locked(id); !found) return fail(found.error());
  auto statement = database_.prepare("SELECT delta FROM steps WHERE container = ? ORDER BY to_epoch");
  if (!statement) return fail(statement.error());
  statement->bind(id.value);
  std::vector<std::string> steps;
  while (true) {
    const auto row = statement->step();
    if (!row) return fail(row.error());
    if (!*row) return steps;
    steps.push_back(statement->bytes(0));
  }
}

Result<> SqliteMetaStore::aggregate(ContainerId id, Epoch to, const std::string& merged) {
  std::lock_guard lock(mutex_);
  auto transaction = database_.begin();
  if (!transaction) return fail(transaction.error());
  if (auto found = find_locked(id); !found) return fail(found.error());
  if (to.value > kMaxNumber)
    return fail(ErrorCode::kConflict, fmt::format("no step leads to epoch {}", to.value));
  const auto replaced = change("UPDATE steps SET delta = ? WHERE container = ? AND to_epoch = ?",
                               [&](Statement& s) { s.bind_blob(merged).bind(id.value).bind(to.value); });
  if (!replaced) return fail(replaced.error());
  if (*replaced != 1) return fail(ErrorCode::kConflict, fmt::format("no step leads to epoch {}", to.value));
  const auto dropped = change("DELETE FROM steps WHERE container = ? AND to_epoch < ?",
                              [&](Statement& s) { s.bind(id.value).bind(to.value); });
  if (!dropped) return fail(dropped.error());
  return transaction->commit();
}

Result<std::optional<std::string>> SqliteMetaStore::get(const std::string& key) {
  std::lock_guard lock(mutex_);
  auto statement = database_.prepare("SELECT value FROM facts WHERE key = ?");
  if (!statement) return fail(statement.error());
  const auto row = statement->bind(key).step();
  if (!row) return fail(row.error());
  if (!*row) return std::optional<std::string>();
  return std::optional(statement->bytes(0));
}

Result<> SqliteMetaStore::put(const std::string& key, const std::string& value) {
  std::lock_guard lock(mutex_);
  auto transaction = database_.begin();
  if (!transaction) return fail(transaction.error());
  const auto stored = change("INSERT OR REPLACE INTO facts(key, value) VALUES(?, ?)",
                             [&](Statement& statement) { statement.bind(key).bind_blob(value); });
  if (!stored) return fail(stored.error());
  return transaction->commit();
}

}  // namespace

Result<std::unique_ptr<MetaStore>> open_sqlite_metastore(const fs::path& path) {
  auto lock = lock_pool(path);
  if (!lock) return fail(lock.error());
  auto database = Database::open(path.string());
  if (!database) return fail(database.error());
  if (auto ok = prepare_schema(*database, path.string()); !ok) return fail(ok.error());
  // The directory entries of a new database.
  if (auto ok = fsync_directory(path.parent_path().empty() ? fs::path(".") : path.parent_path()); !ok)
    return fail(ok.error());
  return std::unique_ptr<MetaStore>(
      std::make_unique<SqliteMetaStore>(std::move(*lock), std::move(*database)));
}

}  // namespace sluice::storage
