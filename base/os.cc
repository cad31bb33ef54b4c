#include "base/os.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "base/checksum.h"

namespace sluice {

namespace fs = std::filesystem;

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<UniqueFd> open_file(const fs::path& path, int flags, unsigned mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return fail(errno_error(errno, "open", path.string()));
  return UniqueFd(fd);
}

Result<> pwrite_all(int fd, std::span<const std::byte> bytes, uint64_t offset, const std::string& object) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return fail(errno_error(errno, "write", object));
    if (done == 0)
      return fail(ErrorCode::kNoSpace, "cannot write " + object + ": the device takes no more bytes");
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
  return {};
}

Result<> pread_all(int fd, std::span<std::byte> bytes, uint64_t offset, const std::string& object) {
  while (!bytes.empty()) {
    const ssize_t done = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return fail(errno_error(errno, "read", object));
    if (done == 0) return fail(ErrorCode::kCorrupt, object + " is shorter than it should be");
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
  return {};
}

Result<> fsync_file(int fd, const std::string& object) {
  if (::fsync(fd) != 0) return fail(errno_error(errno, "fsync", object));
  return {};
}

Result<> fsync_directory(const fs::path& directory) {
  auto fd = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (!fd) return fail(fd.error());
  return fsync_file(fd->get(), directory.string());
}

Result<> replace_file(const fs::path& path, std::string_view contents, unsigned mode) {
  std::string scratch = path.string() + ".XXXXXX";
  UniqueFd fd(::mkostemp(scratch.data(), O_CLOEXEC));
  if (!fd) return fail(errno_error(errno, "create", scratch));
  auto put = [&]() -> Result<> {
    if (::fchmod(fd.get(), mode) != 0) return fail(errno_error(errno, "chmod", scratch));
    if (auto ok = pwrite_all(fd.get(), std::as_bytes(std::span(contents)), 0, scratch); !ok) return ok;
    if (auto ok = fsync_file(fd.get(), scratch); !ok) return ok;
    if (::rename(scratch.c_str(), path.c_str()) != 0) return fail(errno_error(errno, "rename", scratch));
    return fsync_directory(path.parent_path().empty() ? fs::path(".") : path.parent_path());
  };
  auto done = put();
  if (!done) ::unlink(scratch.c_str());
  return done;
}

Result<std::string> read_file(const fs::path& path, size_t limit_bytes) {
  auto fd = open_file(path, O_RDONLY);
  if (!fd) return fail(fd.error());
  std::string contents;
  std::vector<char> piece(64 * 1024);
  while (true) {
    const ssize_t got = ::read(fd->get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno_error(errno, "read", path.string()));
    if (got == 0) return contents;
    contents.append(piece.data(), static_cast<size_t>(got));
    if (contents.size() > limit_bytes) {
      return fail(ErrorCode::kTooLarge,
                  path.string() + " is larger than " + std::to_string(limit_bytes) + " bytes");
    }
  }
}

Result<TemporaryDirectory> TemporaryDirectory::create(std::string_view name_prefix) {
  const char* base = std::getenv("TMPDIR");
  std::string pattern = (base != nullptr && *base != 0 ? std::string(base) : std::string("/tmp")) + "/";
  pattern.append(name_prefix).append(".XXXXXX");
  if (::mkdtemp(pattern.data()) == nullptr) return fail(errno_error(errno, "create", pattern));
  return TemporaryDirectory(fs::path(pattern));
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string host_name_hash() {
  constexpr size_t kMaxBytes = 256;
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", kMaxBytes);
  const std::string text = boot ? *boot : std::string("unknown");
  return fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))));
}

}  // namespace sluice
