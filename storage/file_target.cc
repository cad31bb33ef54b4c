#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <mutex>
#include <optional>

#include "base/os.h"
#include "base/rng.h"
#include "storage/directory_sync.h"
#include "storage/object_class.h"
#include "storage/target.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;

constexpr char kIdentityName[] = "identity";
constexpr char kShardsName[] = "shards";
constexpr size_t kMaxIdentityBytes = 4096;
constexpr uint32_t kMostTargetsNamed = 256;  // in words about a directory that is another target's
constexpr size_t kStripeDigits = 16;
constexpr std::string_view kUnfinishedPrefix = ".new-";

std::string identity_text(uint64_t pool_id, TargetId id) {
  return fmt::format("sluice target 1\npool {:016x}\ntarget {}\n", pool_id, id.value);
}

std::string file_name(const ShardName& name) {
  return fmt::format("{:016x}.{}", name.stripe.value, name.shard.value);
}

std::optional<ShardName> parse_file_name(std::string_view name) {
  if (name.size() < kStripeDigits + 2 || name[kStripeDigits] != '.') return std::nullopt;
  uint64_t stripe = 0;
  uint32_t shard = 0;
  const char* digits = name.data();
  const char* end = digits + name.size();
  if (std::from_chars(digits, digits + kStripeDigits, stripe, 16).ptr != digits + kStripeDigits)
    return std::nullopt;
  const auto [rest, error] = std::from_chars(digits + kStripeDigits + 1, end, shard);
  if (error != std::errc() || rest != end || shard >= kMaxShards) return std::nullopt;
  const ShardName parsed{StripeId(stripe), ShardIndex(shard)};
  if (file_name(parsed) != name) return std::nullopt;
  return parsed;
}

// The same file or directory as before, not another one that took its name?
struct FileKey {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileKey&) const = default;
};

std::optional<FileKey> file_key(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileKey{status.st_dev, status.st_ino};
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using UniqueDirectory = std::unique_ptr<DIR, CloseDirectory>;

// Calls visit(name) for each entry but "." and "..".
template <class Visit>
Result<> for_each_entry(int directory_fd, const std::string& object, Visit&& visit) {
  UniqueFd own(::openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) return fail(errno_error(errno, "open", object));
  UniqueDirectory directory(::fdopendir(::fcntl(own.get(), F_DUPFD_CLOEXEC, 0)));
  if (directory == nullptr) return fail(errno_error(errno, "list", object));
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") visit(name);
  }
  if (errno != 0) return fail(errno_error(errno, "list", object));
  return {};
}

// Drops the first `bytes` bytes of a list of pieces, from entry `first` on; answers the first entry that is
// left.
size_t drop_front(std::vector<iovec>& pieces, size_t first, size_t bytes) {
  while (first < pieces.size() && bytes >= pieces[first].iov_len) bytes -= pieces[first++].iov_len;
  if (bytes > 0) {
    pieces[first].iov_base = static_cast<char*>(pieces[first].iov_base) + bytes;
    pieces[first].iov_len -= bytes;
  }
  return first;
}

template <class Span>
std::vector<iovec> to_iovecs(std::span<const Span> pieces) {
  std::vector<iovec> vectors;
  vectors.reserve(pieces.size());
  for (const auto piece : pieces) {
    if (!piece.empty()) vectors.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  }
  return vectors;
}

using Transfer = ssize_t (*)(int, const iovec*, int, off_t);

// All bytes of all pieces, resuming after short transfers and EINTR. Answers the errno, 0 for success, or
// nothing when a transfer moved no byte.
std::optional<int> transfer_all(Transfer transfer, int fd, std::vector<iovec> pieces, uint64_t offset) {
  size_t first = 0;
  while (first < pieces.size()) {
    const int count = static_cast<int>(std::min<size_t>(pieces.size() - first, IOV_MAX));
    const ssize_t done = transfer(fd, pieces.data() + first, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return std::nullopt;
    offset += static_cast<uint64_t>(done);
    first = drop_front(pieces, first, static_cast<size_t>(done));
  }
  return 0;
}

class FileTarget final : public Target {
 public:
  FileTarget(fs::path path, uint64_t pool_id, TargetId id)
      : root_(std::move(path)),
        path_(root_.string()),
        pool_id_(pool_id),
        id_(id),
        run_(std::random_device{}()) {}

  TargetId id() const override { return id_; }
  uint64_t pool_id() const override { return pool_id_; }
  const std::string& path() const override { return path_; }

  TargetState state() override {
    if (!place()) return TargetState::kMissing;
    return failing_ ? TargetState::kFailing : TargetState::kUp;
  }

  Result<> put(ShardName name, std::span<const std::span<const std::byte>> pieces) override;
  Result<> get(ShardName name, uint64_t offset, std::span<const std::span<std::byte>> pieces) override;
  Result<> remove(ShardName name) override;
  Result<std::vector<ShardName>> list() override;
  Result<std::vector<ShardIndex>> find(StripeId stripe) override;
  Result<TargetUsage> usage() override;
  Result<> sweep() override;

 private:
  // The directory that was found to be ours. Replaced as a whole when another one takes its place.
  struct Place {
    FileKey identity;
    FileKey shards;
    UniqueFd shards_fd;
    std::string shards_path;
    DirectorySync sync;
    std::atomic<int64_t> used_bytes = 0;
  };
  using PlacePtr = std::shared_ptr<Place>;

  // Looks at the path: the place as it was, a new one when the right directory came back, or kUnavailable.
  Result<PlacePtr> place();
  Result<PlacePtr> adopt(FileKey identity, FileKey shards) const;
  tl::unexpected<Error> missing(std::string_view why) const;
  // The directory is there, and is not this target.
  tl::unexpected<Error> wrong(std::string_view why) const;
  std::string owner_of(std::string_view identity) const;

  Result<> write_whole(Place& at, const std::string& unfinished, const std::string& final_name,
                       std::span<const std::span<const std::byte>> pieces);
  static int64_t size_of(const Place& at, const std::string& name);
  // Remembers whether the medium failed in the last operation.
  template <class T>
  Result<T> noted(Result<T> result) {
    const bool medium =
        !result && (result.error().code == ErrorCode::kIo || result.error().code == ErrorCode::kNoSpace ||
                    result.error().code == ErrorCode::kAccess);
    if (failing_ != medium) failing_ = medium;
    return result;
  }

  const fs::path root_;
  const std::string path_;
  const uint64_t pool_id_;
  const TargetId id_;
  const uint32_t run_;  // tells this run's unfinished files from those of earlier ones
  std::atomic<uint64_t> next_unfinished_ = 0;
  std::atomic<bool> failing_ = false;
  std::mutex mutex_;
  PlacePtr place_;  // under mutex_
};

tl::unexpected<Error> FileTarget::missing(std::string_view why) const {
  Error error(ErrorCode::kUnavailable,
              fmt::format("target {} is missing: {}; bring the directory back", id_.value, why));
  return fail(std::move(error.mark_retryable()));
}

tl::unexpected<Error> FileTarget::wrong(std::string_view why) const {
  Error error(ErrorCode::kUnavailable, fmt::format("target {} cannot be used: {} {}", id_.value, path_, why));
  return fail(std::move(error.mark_retryable()));
}

// Whose an identity is, in words, when it is not this target's.
std::string FileTarget::owner_of(std::string_view identity) const {
  for (uint32_t other = 0; other < kMostTargetsNamed; ++other)
    if (identity == identity_text(pool_id_, TargetId(other)))
      return fmt::format("target {} of this pool", other);
  return "a target of another pool";
}

Result<FileTarget::PlacePtr> FileTarget::place() {
  const fs::path identity_path = root_ / kIdentityName;
  const auto identity = file_key(identity_path);
  if (!identity && !file_key(root_)) return missing(fmt::format("{} is not there", path_));
  if (!identity)
    return wrong(
        "is there, but holds no target (no file 'identity'; is its disk mounted?); bring its files back");
  const auto shards = file_key(root_ / kShardsName);
  if (!shards) return missing(fmt::format("{} is not there", (root_ / kShardsName).string()));
  std::lock_guard lock(mutex_);
  if (place_ != nullptr && place_->identity == *identity && place_->shards == *shards) return place_;
  auto adopted = adopt(*identity, *shards);
  if (!adopted) return fail(adopted.error());
  place_ = *adopted;
  failing_ = false;
  return place_;
}

Result<FileTarget::PlacePtr> FileTarget::adopt(FileKey identity, FileKey shards) const {
  const std::string identity_path = (root_ / kIdentityName).string();
  const auto text = read_file(identity_path, kMaxIdentityBytes);
  if (!text) return missing(text.error().message);
  if (*text != identity_text(pool_id_, id_)) {
    return wrong(
        fmt::format("is {}; name the pool's own directories in pool.toml, in the order of their numbers",
                    owner_of(*text)));
  }
  auto found = std::make_shared<Place>();
  found->identity = identity;
  found->shards = shards;
  found->shards_path = (root_ / kShardsName).string();
  auto fd = open_file(found->shards_path, O_RDONLY | O_DIRECTORY);
  if (!fd) return missing(fd.error().message);
  found->shards_fd = std::move(*fd);
  int64_t used_bytes = 0;
  auto listed = for_each_entry(found->shards_fd.get(), found->shards_path, [&](std::string_view name) {
    used_bytes += size_of(*found, std::string(name));
  });
  if (!listed) return missing(listed.error().message);
  found->used_bytes = used_bytes;
  return found;
}

int64_t FileTarget::size_of(const Place& at, const std::string& name) {
  struct stat status {};
  if (::fstatat(at.shards_fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return status.st_size;
}

// Order: bytes, fsync, rename, fsync of the directory. A crash between two steps leaves an unfinished file
// for sweep(), or the whole shard under its name, durable or not yet: nobody was told that it is.
Result<> FileTarget::write_whole(Place& at, const std::string& unfinished, const std::string& final_name,
                                 std::span<const std::span<const std::byte>> pieces) {
  const std::string object = at.shards_path + "/" + unfinished;
  UniqueFd fd(
      ::openat(at.shards_fd.get(), unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd && errno == ENOENT) return missing(at.shards_path + " was removed");
  if (!fd) return fail(errno_error(errno, "create", object));
  const auto written = transfer_all(::pwritev, fd.get(), to_iovecs(pieces), 0);
  if (!written)
    return fail(ErrorCode::kNoSpace, "cannot write " + object + ": the device takes no more bytes");
  if (*written != 0) return fail(errno_error(*written, "write", object));
  if (auto ok = fsync_file(fd.get(), object); !ok) return ok;
  const int64_t old_bytes = size_of(at, final_name);
  if (::renameat(at.shards_fd.get(), unfinished.c_str(), at.shards_fd.get(), final_name.c_str()) != 0) {
    return fail(errno_error(errno, "rename", object));
  }
  int64_t new_bytes = 0;
  for (const auto piece : pieces) new_bytes += static_cast<int64_t>(piece.size());
  at.used_bytes += new_bytes - old_bytes;
  return at.sync.sync(at.shards_fd.get(), at.shards_path);
}

Result<> FileTarget::put(ShardName name, std::span<const std::span<const std::byte>> pieces) {
  auto at = place();
  if (!at) return fail(at.error());
  const std::string unfinished = fmt::format("{}{:08x}-{}", kUnfinishedPrefix, run_, next_unfinished_++);
  auto done = write_whole(**at, unfinished, file_name(name), pieces);
  if (!done) ::unlinkat((*at)->shards_fd.get(), unfinished.c_str(), 0);
  return noted(std::move(done));
}

Result<> FileTarget::get(ShardName name, uint64_t offset, std::span<const std::span<std::byte>> pieces) {
  auto at = place();
  if (!at) return fail(at.error());
  const std::string file = file_name(name);
  const std::string object = (*at)->shards_path + "/" + file;
  UniqueFd fd(::openat((*at)->shards_fd.get(), file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return noted(Result<>(fail(errno_error(errno, "open", object))));
  const auto read = transfer_all(::preadv, fd.get(), to_iovecs(pieces), offset);
  if (!read) return noted(Result<>(fail(ErrorCode::kCorrupt, object + " is shorter than it should be")));
  if (*read != 0) return noted(Result<>(fail(errno_error(*read, "read", object))));
  return noted(Result<>());
}

Result<> FileTarget::remove(ShardName name) {
  auto at = place();
  if (!at) return fail(at.error());
  const std::string file = file_name(name);
  const int64_t bytes = size_of(**at, file);
  if (::unlinkat((*at)->shards_fd.get(), file.c_str(), 0) != 0) {
    if (errno == ENOENT) return noted(Result<>());
    return noted(Result<>(fail(errno_error(errno, "remove", (*at)->shards_path + "/" + file))));
  }
  (*at)->used_bytes -= bytes;
  return noted(Result<>());
}

Result<std::vector<ShardName>> FileTarget::list() {
  auto at = place();
  if (!at) return fail(at.error());
  std::vector<ShardName> names;
  auto listed = for_each_entry((*at)->shards_fd.get(), (*at)->shards_path, [&](std::string_view file) {
    if (const auto name = parse_file_name(file)) names.push_back(*name);
  });
  if (!listed) return noted(Result<std::vector<ShardName>>(fail(listed.error())));
  return noted(Result<std::vector<ShardName>>(std::move(names)));
}

Result<std::vector<ShardIndex>> FileTarget::find(StripeId stripe) {
  auto at = place();
  if (!at) return fail(at.error());
  std::vector<ShardIndex> found;
  for (uint32_t shard = 0; shard < kMaxShards; ++shard) {
    const ShardName name{stripe, ShardIndex(shard)};
    if (::faccessat((*at)->shards_fd.get(), file_name(name).c_str(), F_OK, 0) == 0)
      found.push_back(name.shard);
  }
  return found;
}

Result<TargetUsage> FileTarget::usage() {
  auto at = place();
  if (!at) return fail(at.error());
  struct statvfs status {};
  if (::fstatvfs((*at)->shards_fd.get(), &status) != 0) return fail(errno_error(errno, "statfs", path_));
  const int64_t used_bytes = (*at)->used_bytes;
  return TargetUsage{static_cast<uint64_t>(std::max<int64_t>(used_bytes, 0)),
                     uint64_t{status.f_bavail} * status.f_frsize, failing_};
}

Result<> FileTarget::sweep() {
  auto at = place();
  if (!at) return fail(at.error());
  const std::string own = fmt::format("{}{:08x}-", kUnfinishedPrefix, run_);
  std::vector<std::string> stale;
  auto listed = for_each_entry((*at)->shards_fd.get(), (*at)->shards_path, [&](std::string_view file) {
    if (file.starts_with(kUnfinishedPrefix) && !file.starts_with(own)) stale.emplace_back(file);
  });
  if (!listed) return listed;
  for (const std::string& file : stale) {
    const int64_t bytes = size_of(**at, file);
    if (::unlinkat((*at)->shards_fd.get(), file.c_str(), 0) != 0 && errno != ENOENT) {
      return fail(errno_error(errno, "remove", (*at)->shards_path + "/" + file));
    }
    (*at)->used_bytes -= bytes;
  }
  return {};
}

Result<> make_directory(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(errno_error(errno, "create", path.string()));
  return {};
}

}  // namespace

Result<> format_file_target(const fs::path& path, uint64_t pool_id, TargetId id) {
  const std::string wanted = identity_text(pool_id, id);
  std::error_code error;
  if (fs::exists(path / kIdentityName, error)) {
    const auto text = read_file(path / kIdentityName, kMaxIdentityBytes);
    if (!text) return fail(text.error());
    if (*text == wanted) return {};
    return fail(ErrorCode::kExists, fmt::format("{} is already the target of another pool or another target "
                                                "of this one; choose another directory",
                                                path.string()));
  }
  fs::create_directories(path, error);
  if (error) return fail(errno_error(error.value(), "create", path.string()));
  for (auto entry = fs::directory_iterator(path, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    // "identity.xyz" is what an interrupted formatting leaves.
    if (entry->path().filename() != kShardsName && entry->path().stem() != kIdentityName) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} holds other files ({}); a target needs an empty directory of its own",
                              path.string(), entry->path().filename().string()));
    }
  }
  if (error) return fail(errno_error(error.value(), "list", path.string()));
  // The identity comes last: until it is there, the directory is no target.
  if (auto ok = make_directory(path / kShardsName); !ok) return ok;
  if (auto ok = fsync_directory(path); !ok) return ok;
  if (auto ok = replace_file(path / kIdentityName, wanted, 0600); !ok) return ok;
  const fs::path parent = fs::absolute(path, error).parent_path();
  return fsync_directory(parent);
}

Result<std::unique_ptr<Target>> open_file_target(const fs::path& path, uint64_t pool_id, TargetId id) {
  auto target = std::make_unique<FileTarget>(path, pool_id, id);
  target->state();  // adopts the directory now rather than at the first operation
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace sluice::storage
