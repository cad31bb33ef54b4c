#include "storage/sqlite.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <limits>
#include <map>

#include "base/assert.h"
#include "base/os.h"

namespace sluice::storage {
namespace {

constexpr int kBusyTimeout_ms = 5000;

ErrorCode code_of(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_FULL:
      return ErrorCode::kNoSpace;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::kCorrupt;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorCode::kBusy;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return ErrorCode::kAccess;
    case SQLITE_TOOBIG:
      return ErrorCode::kTooLarge;
    case SQLITE_IOERR:
      return ErrorCode::kIo;
    default:
      return ErrorCode::kInternal;
  }
}

std::string advice(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNoSpace:
      return "; free some space on its file system";
    case ErrorCode::kCorrupt:
      return "; it is damaged or not a database of Sluice: bring back a copy, or run `sluice fsck`";
    case ErrorCode::kBusy:
      return "; another program holds it";
    default:
      return "";
  }
}

Error sqlite_error(sqlite3* database, int result) {
  const char* name = sqlite3_db_filename(database, nullptr);
  const ErrorCode code = code_of(result);
  Error error(code, fmt::format("metadata {}: {}{}", name != nullptr ? name : "database",
                                sqlite3_errmsg(database), advice(code)));
  error.retryable = code == ErrorCode::kBusy || code == ErrorCode::kNoSpace;
  return error;
}

}  // namespace

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);  // answers the error of the last step again
  sqlite3_clear_bindings(statement_);
}

Statement& Statement::bind(uint64_t value) {
  SLUICE_ASSERT(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  const int result = sqlite3_bind_int64(statement_, next_parameter_++, static_cast<int64_t>(value));
  SLUICE_ASSERT(result == SQLITE_OK);
  return *this;
}

Statement& Statement::bind(std::string_view text) {
  // A null pointer would bind NULL.
  const char* data = text.data() != nullptr ? text.data() : "";
  const int result =
      sqlite3_bind_text64(statement_, next_parameter_++, data, text.size(), SQLITE_STATIC, SQLITE_UTF8);
  SLUICE_ASSERT(result == SQLITE_OK);
  return *this;
}

Statement& Statement::bind_blob(std::string_view bytes) {
  const int result = bytes.empty() ? sqlite3_bind_zeroblob(statement_, next_parameter_, 0)
                                   : sqlite3_bind_blob64(statement_, next_parameter_, bytes.data(),
                                                         bytes.size(), SQLITE_STATIC);
  ++next_parameter_;
  SLUICE_ASSERT(result == SQLITE_OK || result == SQLITE_TOOBIG);
  return *this;
}

Result<bool> Statement::step() {
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  if ((result & 0xff) == SQLITE_CONSTRAINT) return fail(ErrorCode::kExists, sqlite3_errmsg(database_));
  return fail(sqlite_error(database_, result));
}

Result<uint64_t> Statement::run() {
  const auto row = step();
  if (!row) return fail(row.error());
  SLUICE_ASSERT(!*row);
  return static_cast<uint64_t>(sqlite3_changes64(database_));
}

uint64_t Statement::number(int column) const {
  const int64_t value = sqlite3_column_int64(statement_, column);
  return value < 0 ? 0 : static_cast<uint64_t>(value);
}

std::string Statement::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string()
                         : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

struct Database::Handles {
  sqlite3* database = nullptr;
  std::map<std::string_view, sqlite3_stmt*> statements;

  ~Handles() {
    for (const auto& [sql, statement] : statements) sqlite3_finalize(statement);
    sqlite3_close(database);
  }
};

Database::Database(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}
Database::Database(Database&&) noexcept = default;
Database::~Database() = default;

Result<Database> Database::open(const std::string& path) {
  // SQLite gives its journal files the mode of the database.
  if (auto fd = open_file(path, O_RDWR | O_CREAT, 0600); !fd) return fail(fd.error());
  auto handles = std::make_unique<Handles>();
  const int result =
      sqlite3_open_v2(path.c_str(), &handles->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (result != SQLITE_OK) return fail(sqlite_error(handles->database, result));
  sqlite3_extended_result_codes(handles->database, 1);
  sqlite3_busy_timeout(handles->database, kBusyTimeout_ms);
  return Database(std::move(handles));
}

Result<Statement> Database::prepare(const char* sql) {
  sqlite3_stmt*& statement = handles_->statements[sql];
  if (statement == nullptr) {
    const int result =
        sqlite3_prepare_v3(handles_->database, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (result != SQLITE_OK) return fail(sqlite_error(handles_->database, result));
  }
  SLUICE_ASSERT(!sqlite3_stmt_busy(statement));
  return Statement(handles_->database, statement);
}

Result<> Database::run(const char* sql) {
  const int result = sqlite3_exec(handles_->database, sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return fail(sqlite_error(handles_->database, result));
  return {};
}

Result<uint64_t> Database::number(const char* sql) {
  auto statement = prepare(sql);
  if (!statement) return fail(statement.error());
  const auto row = statement->step();
  if (!row) return fail(row.error());
  return *row ? statement->number(0) : 0;
}

Result<Database::Transaction> Database::begin() {
  if (auto ok = run("BEGIN IMMEDIATE"); !ok) return fail(ok.error());
  return Transaction(*this);
}

Result<> Database::Transaction::commit() {
  auto done = database_->run("COMMIT");
  if (done) {
    database_ = nullptr;
    return done;
  }
  // The frames may lie in the write-ahead log, whole, although their sync failed: a crash now could bring
  // them to life.
  if (done.error().code == ErrorCode::kIo) done.error().mark_outcome_unknown();
  return done;
}

Database::Transaction::~Transaction() {
  if (database_ == nullptr || sqlite3_get_autocommit(database_->handles_->database) != 0) return;
  const auto rolled_back = database_->run("ROLLBACK");
  SLUICE_ASSERT(rolled_back || sqlite3_get_autocommit(database_->handles_->database) != 0);
}

}  // namespace sluice::storage
