#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

// Owners and whole-file calls over the system's own. Thread-safe (each object by one thread at a time).
namespace sluice {

// Owns a file descriptor. Move-only. Closing errors are not seen here: what must be durable was fsynced
// before.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

Result<UniqueFd> open_file(const std::filesystem::path& path, int flags, unsigned mode = 0644);

// Writes or reads all bytes at `offset`, resuming after short transfers and EINTR. A read that meets the end
// of the file is kCorrupt: the caller knew how long the file should be.
Result<> pwrite_all(int fd, std::span<const std::byte> bytes, uint64_t offset, const std::string& object);
Result<> pread_all(int fd, std::span<std::byte> bytes, uint64_t offset, const std::string& object);

// Durable on return: the file's bytes, or the directory's entries.
Result<> fsync_file(int fd, const std::string& object);
Result<> fsync_directory(const std::filesystem::path& directory);

// Replaces `path` with these bytes: on return the new contents are durable; after a crash either the old or
// the new are there.
Result<> replace_file(const std::filesystem::path& path, std::string_view contents, unsigned mode = 0644);
Result<std::string> read_file(const std::filesystem::path& path, size_t limit_bytes);

// Eight hexadecimal digits that differ between hosts, and between boots of one.
std::string host_name_hash();

// A directory that is removed with all it holds when this object dies. For tests and private services.
class TemporaryDirectory {
 public:
  // Under $TMPDIR or /tmp.
  static Result<TemporaryDirectory> create(std::string_view name_prefix);
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace sluice
