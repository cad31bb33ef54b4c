#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tools/byte_stream.h"

namespace sluice::tools {
namespace fs = std::filesystem;
namespace {

bool same_moment(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

class LocalSource final : public Source {
 public:
  LocalSource(UniqueFd fd, std::string path, const struct stat& opened)
      : fd_(std::move(fd)), path_(std::move(path)), opened_(opened) {}

  uint64_t size() const override { return static_cast<uint64_t>(opened_.st_size); }

  Result<std::optional<Extent>> next_data(uint64_t from) override {
    if (from >= size()) return std::optional<Extent>();
    const off_t begin = ::lseek(fd_.get(), static_cast<off_t>(from), SEEK_DATA);
    if (begin < 0 && errno == ENXIO) return std::optional<Extent>();
    // A file system that knows no holes has data everywhere.
    if (begin < 0) return std::optional(Extent{Offset(from), Offset(size())});
    const off_t end = ::lseek(fd_.get(), begin, SEEK_HOLE);
    const uint64_t limit = end < 0 ? size() : std::min(size(), static_cast<uint64_t>(end));
    if (static_cast<uint64_t>(begin) >= limit) return std::optional<Extent>();
    return std::optional(Extent{Offset(static_cast<uint64_t>(begin)), Offset(limit)});
  }

  Result<> read(uint64_t offset, std::span<std::byte> into) override {
    auto done = pread_all(fd_.get(), into, offset, path_);
    if (!done && done.error().code == ErrorCode::kCorrupt) return changed();
    return done;
  }

  Result<> check_unchanged() override {
    struct stat now {};
    if (::fstat(fd_.get(), &now) != 0) return fail(errno_error(errno, "look at", path_));
    if (now.st_size != opened_.st_size || !same_moment(now.st_mtim, opened_.st_mtim)) return changed();
    return {};
  }

  std::string name() const override { return path_; }

 private:
  tl::unexpected<Error> changed() const {
    return fail(ErrorCode::kConflict,
                fmt::format("{} changed while it was copied; copy it again when nobody writes to it", path_));
  }

  UniqueFd fd_;
  const std::string path_;
  const struct stat opened_;
};

// A file beside the destination that gets its name at the end.
class LocalSink final : public Sink {
 public:
  LocalSink(UniqueFd fd, fs::path scratch, fs::path path, bool force, Interruption* interruption)
      : fd_(std::move(fd)),
        scratch_(std::move(scratch)),
        path_(std::move(path)),
        force_(force),
        interruption_(interruption) {
    if (interruption_ != nullptr) interruption_->guard(scratch_);
  }
  ~LocalSink() override {
    if (!finished_) ::unlink(scratch_.c_str());
    if (interruption_ != nullptr) interruption_->release(scratch_);
  }

  Result<> write(uint64_t offset, std::span<const std::byte> bytes) override {
    auto written = pwrite_all(fd_.get(), bytes, offset, path_.string());
    if (!written && written.error().code == ErrorCode::kTooLarge) return too_large(offset + bytes.size());
    return written;
  }
  Result<> set_size(uint64_t bytes) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0) return {};
    const int code = errno;
    if (code == EFBIG) return too_large(bytes);
    return fail(errno_error(code, "set the size of", path_.string()));
  }
  bool can_read_back() const override { return true; }
  Result<> read_back(uint64_t offset, std::span<std::byte> into) override {
    return pread_all(fd_.get(), into, offset, path_.string());
  }
  Result<> finish() override {
    if (auto synced = fsync_file(fd_.get(), path_.string()); !synced) return synced;
    const unsigned flags = force_ ? 0 : RENAME_NOREPLACE;
    if (::renameat2(AT_FDCWD, scratch_.c_str(), AT_FDCWD, path_.c_str(), flags) != 0) {
      const int code = errno;
      if (code != EINVAL) return fail(errno_error(code, "create", path_.string()));
      // A file system without RENAME_NOREPLACE: a hard link does not replace either.
      if (::link(scratch_.c_str(), path_.c_str()) != 0)
        return fail(errno_error(errno, "create", path_.string()));
      ::unlink(scratch_.c_str());
    }
    finished_ = true;
    return fsync_directory(path_.parent_path().empty() ? fs::path(".") : path_.parent_path());
  }
  std::string name() const override { return path_.string(); }

 private:
  tl::unexpected<Error> too_large(uint64_t bytes) const {
    struct rlimit limit {};
    const bool limited = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes;
    return fail(
        ErrorCode::kNoSpace,
        limited ? fmt::format("{} cannot be written: files of this process may have {} bytes at most; raise "
                              "the limit with `ulimit -f`",
                              path_.string(), limit.rlim_cur)
                : fmt::format("{} cannot be written: its file system takes no file of {} bytes; copy to "
                              "another one",
                              path_.string(), bytes));
  }

  UniqueFd fd_;
  const fs::path scratch_;
  const fs::path path_;
  const bool force_;
  Interruption* const interruption_;
  bool finished_ = false;
};

// A pipe or a device: written in order, once.
class StreamSink final : public Sink {
 public:
  StreamSink(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<> write(uint64_t offset, std::span<const std::byte> bytes) override {
    if (auto filled = set_size(offset); !filled) return filled;
    return put(bytes);
  }
  // A stream has no holes: they are written as zeros.
  Result<> set_size(uint64_t bytes) override {
    static const std::vector<std::byte> zeros(1 << 20);
    while (written_ < bytes) {
      if (auto done = put(std::span(zeros).first(std::min<uint64_t>(zeros.size(), bytes - written_))); !done)
        return done;
    }
    return {};
  }
  bool can_read_back() const override { return false; }
  Result<> read_back(uint64_t, std::span<std::byte>) override {
    return fail(ErrorCode::kUnsupported, path_ + " cannot be read back");
  }
  Result<> finish() override { return {}; }
  std::string name() const override { return path_; }

 private:
  Result<> put(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::write(fd_.get(), bytes.data(), bytes.size());
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return fail(errno_error(errno, "write", path_));
      written_ += static_cast<uint64_t>(sent);
      bytes = bytes.subspan(static_cast<size_t>(sent));
    }
    return {};
  }

  UniqueFd fd_;
  const std::string path_;
  uint64_t written_ = 0;
};

}  // namespace

Result<std::unique_ptr<Source>> open_local_source(const fs::path& path) {
  auto fd = open_file(path, O_RDONLY | O_CLOEXEC);
  if (!fd) return fail(fd.error());
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0) return fail(errno_error(errno, "look at", path.string()));
  if (S_ISDIR(info.st_mode))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is a directory; name the files in it", path.string()));
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is no regular file; copy it to one first", path.string()));
  return std::make_unique<LocalSource>(std::move(*fd), path.string(), info);
}

Result<std::unique_ptr<Sink>> open_local_sink(const fs::path& path, bool force, Interruption* interruption) {
  struct stat info {};
  const bool there = ::stat(path.c_str(), &info) == 0;
  if (there && !S_ISREG(info.st_mode)) {
    auto fd = open_file(path, O_WRONLY | O_CLOEXEC);
    if (!fd) return fail(fd.error());
    return std::make_unique<StreamSink>(std::move(*fd), path.string());
  }
  if (there && !force)
    return fail(ErrorCode::kExists,
                fmt::format("{} is there already; give --force to replace it", path.string()));
  const fs::path parent = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  std::string scratch =
      (parent / fmt::format(".{}.sluice-XXXXXX", path.filename().string().substr(0, 200))).string();
  UniqueFd fd(::mkostemp(scratch.data(), O_CLOEXEC));
  if (!fd) return fail(errno_error(errno, "create a file in", parent.string()));
  // mkostemp made it 0600; the copy is an ordinary file, or has the mode of what it replaces.
  const mode_t mask = ::umask(022);
  ::umask(mask);
  ::fchmod(fd.get(), there ? info.st_mode & 07777 : 0666 & ~mask);
  return std::make_unique<LocalSink>(std::move(fd), scratch, path, force, interruption);
}

}  // namespace sluice::tools
