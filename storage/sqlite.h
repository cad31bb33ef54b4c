#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

// Move-only owners of SQLite's handles. Only for sqlite_*.cc and their test: sqlite3.h stays in there. One
// thread at a time.
namespace sluice::storage {

// A prepared statement in use: bind, step, read; put back to rest when it dies. Borrowed from its Database.
class Statement {
 public:
  Statement(sqlite3* database, sqlite3_stmt* statement) : database_(database), statement_(statement) {}
  Statement(Statement&& other) noexcept
      : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Parameters in order, from the first. Text and blobs are borrowed until the statement dies.
  Statement& bind(uint64_t value);
  Statement& bind(std::string_view text);
  Statement& bind_blob(std::string_view bytes);

  // True when there is a row.
  Result<bool> step();
  // For statements that answer no rows. Answers how many rows they changed.
  Result<uint64_t> run();

  uint64_t number(int column) const;
  std::string bytes(int column) const;

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_;
  int next_parameter_ = 1;
};

class Database {
 public:
  // Creates the file when there is none, for its owner only.
  static Result<Database> open(const std::string& path);
  Database(Database&&) noexcept;
  Database& operator=(Database&&) = delete;
  ~Database();

  // The statement is prepared once and kept; at most one use of the same text at a time. `sql` must be a
  // literal.
  Result<Statement> prepare(const char* sql);
  // Any number of statements, without parameters.
  Result<> run(const char* sql);
  Result<uint64_t> number(const char* sql);

  // Committed, or rolled back when it dies.
  class Transaction {
   public:
    explicit Transaction(Database& database) : database_(&database) {}
    Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
    Transaction& operator=(Transaction&&) = delete;
    ~Transaction();
    // A failure is marked outcome_unknown when the medium may have kept the change.
    Result<> commit();

   private:
    Database* database_;
  };
  Result<Transaction> begin();

 private:
  struct Handles;
  explicit Database(std::unique_ptr<Handles> handles);
  std::unique_ptr<Handles> handles_;
};

}  // namespace sluice::storage
