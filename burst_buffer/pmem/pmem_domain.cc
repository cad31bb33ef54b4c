#include "burst_buffer/pmem/pmem_domain.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libpmem.h>
#include <libpmemobj.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/os.h"

namespace sluice::burst_buffer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLayout = "sluice-hot-1";
constexpr uint64_t kAreaType = 1;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPrefaultBytes = uint64_t{8} << 20;
// What PMDK keeps of a pool for itself is found by asking for less and less.
constexpr uint64_t kFirstOverheadBytes = uint64_t{4} << 20;
constexpr uint64_t kOverheadStepBytes = uint64_t{64} << 10;
constexpr uint64_t kMaxOverheadBytes = uint64_t{64} << 20;

struct Root {
  PMEMoid area;
  uint64_t area_bytes;
};

// The owner of an open pool.
struct PoolCloser {
  void operator()(PMEMobjpool* pool) const { pmemobj_close(pool); }
};
using Pool = std::unique_ptr<PMEMobjpool, PoolCloser>;

struct Medium {
  std::string name;
  std::string survives;
  bool flush_only = false;  // libpmem says that flushing CPU caches is enough
  bool prefault = false;    // touching pages causes no disk writes
};

Medium medium_of(const fs::path& path, const void* memory, size_t length) {
  struct statfs info {};
  const bool known = ::statfs(path.c_str(), &info) == 0;
  const bool in_memory =
      known && (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC || info.f_type == HUGETLBFS_MAGIC);
  const bool flush_only = pmem_is_pmem(memory, length) == 1;
  if (in_memory) return {"memory file", "process crash", flush_only, true};
  if (flush_only) return {"persistent memory", "power loss", true, true};
  return {"disk", "power loss", false, false};
}

class PmemDomain final : public PersistDomain {
 public:
  PmemDomain(Pool pool, fs::path path, std::span<std::byte> memory, bool existed)
      : pool_(std::move(pool)),
        path_(std::move(path)),
        memory_(memory),
        existed_(existed),
        medium_(medium_of(path_, memory_.data(), memory_.size())) {
    ::madvise(memory_.data(), memory_.size(),
              MADV_HUGEPAGE);  // advice: where it is not taken, small pages do
    if (medium_.prefault) prefault_ = std::jthread([this](std::stop_token stop) { prefault(stop); });
  }

  std::span<std::byte> memory() override { return memory_; }
  bool existed() const override { return existed_; }
  std::string medium() const override { return medium_.name; }
  std::string survives() const override { return medium_.survives; }

  std::optional<Backing> backing() const override {
    // A pool is mapped whole, from the start of its file.
    const auto* base = reinterpret_cast<const std::byte*>(pool_.get());
    return Backing{path_.string(), static_cast<uint64_t>(memory_.data() - base), medium_.prefault};
  }

  Result<> persist(const void* begin, size_t length) override {
    if (medium_.flush_only) {
      pmem_persist(begin, length);
      return {};
    }
    // Not pmemobj_persist: it ends the process when the disk fails.
    if (pmem_msync(begin, length) != 0) return fail(errno_error(errno, "msync", path_.string()));
    return {};
  }

  Result<> persist_all(std::vector<std::span<const std::byte>> ranges) override {
    if (ranges.empty()) return {};
    if (!medium_.flush_only) {
      // msync writes the dirty pages of a range only, and its price is the wait for the disk: once, for all
      // of them.
      const std::byte* begin = ranges.front().data();
      const std::byte* end = begin;
      for (const auto& range : ranges) {
        begin = std::min(begin, range.data());
        end = std::max(end, range.data() + range.size());
      }
      return persist(begin, static_cast<size_t>(end - begin));
    }
    for (const auto& range : ranges) pmem_flush(range.data(), range.size());
    pmem_drain();
    return {};
  }

 private:
  void prefault(const std::stop_token& stop) {
    for (size_t at = 0; at < memory_.size() && !stop.stop_requested(); at += kPrefaultBytes) {
      const size_t piece = std::min<size_t>(kPrefaultBytes, memory_.size() - at);
      if (::madvise(memory_.data() + at, piece, MADV_POPULATE_WRITE) != 0)
        return;  // an older kernel: faults come later
    }
  }

  Pool pool_;
  const fs::path path_;
  const std::span<std::byte> memory_;
  const bool existed_;
  const Medium medium_;
  std::jthread prefault_;  // ends before the pool is closed
};

// PMDK's error on `path` in our words.
Error pool_error(int errnum, const fs::path& path, std::string_view operation) {
  const std::string said = pmemobj_errormsg();
  const std::string name = path.string();
  switch (errnum) {
    case EAGAIN:
      return {ErrorCode::kBusy, fmt::format("the hot tier's pool {} is in use by another server: stop that "
                                            "one, or give this one another --hot-dir ({})",
                                            name, said)};
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return {ErrorCode::kNoSpace, fmt::format("there is no room to {} the hot tier's pool {}: give a "
                                               "smaller --hot-size or another --hot-dir ({})",
                                               operation, name, said)};
    case EINVAL:
      if (said.find("layout") != std::string::npos) {
        return {ErrorCode::kUnsupported,
                fmt::format("{} is a pool of another program or version: give another --hot-dir ({})", name,
                            said)};
      }
      return {ErrorCode::kCorrupt,
              fmt::format(
                  "{} is not a hot tier's pool, or is damaged: move it away, or give another --hot-dir ({})",
                  name, said)};
    default: {
      Error error = errno_error(errnum, operation, name);
      error.message += fmt::format(" ({})", said);
      return error;
    }
  }
}

Root* root_of(PMEMobjpool* pool) {
  const PMEMoid root = pmemobj_root(pool, sizeof(Root));
  return OID_IS_NULL(root) ? nullptr : static_cast<Root*>(pmemobj_direct(root));
}

// One allocation of nearly the whole pool. The file is new, so its bytes are zeros and nothing needs to be
// cleared.
Result<> allocate_area(PMEMobjpool* pool, Root* root, const fs::path& path, uint64_t size_bytes) {
  for (uint64_t overhead = kFirstOverheadBytes; overhead <= kMaxOverheadBytes && overhead < size_bytes;
       overhead += kOverheadStepBytes) {
    const uint64_t bytes = size_bytes - overhead;
    root->area_bytes = bytes;
    pmemobj_persist(pool, &root->area_bytes, sizeof(root->area_bytes));
    if (pmemobj_alloc(pool, &root->area, bytes, kAreaType, nullptr, nullptr) == 0) return {};
    if (errno != ENOMEM) break;
  }
  return fail(pool_error(errno, path, "allocate in"));
}

Result<std::shared_ptr<PersistDomain>> domain_of(Pool pool, const fs::path& path, bool existed) {
  const Root* root = root_of(pool.get());
  if (root == nullptr || OID_IS_NULL(root->area)) {
    return fail(
        ErrorCode::kCorrupt,
        fmt::format("the pool {} holds no hot tier: move it away, or give another --hot-dir", path.string()));
  }
  const uint64_t usable = pmemobj_alloc_usable_size(root->area);
  if (usable < root->area_bytes || root->area_bytes < 2 * kPageBytes) {
    return fail(ErrorCode::kCorrupt, fmt::format("the pool {} says its area has {} bytes, it has {}",
                                                 path.string(), root->area_bytes, usable));
  }
  // Page-aligned inside the allocation, so that flushes of one slab touch no more pages than they must.
  auto* area = static_cast<std::byte*>(pmemobj_direct(root->area));
  const uint64_t skip = (kPageBytes - reinterpret_cast<uintptr_t>(area) % kPageBytes) % kPageBytes;
  const uint64_t bytes = (root->area_bytes - skip) / kPageBytes * kPageBytes;
  return std::make_shared<PmemDomain>(std::move(pool), path, std::span(area + skip, bytes), existed);
}

// Files that a crash left half-created; a living creator holds a lock on its own.
void remove_leftovers(const fs::path& path) {
  const std::string prefix = path.filename().string() + ".creating.";
  std::error_code error;
  for (const auto& entry :
       fs::directory_iterator(path.parent_path().empty() ? fs::path(".") : path.parent_path(), error)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    auto fd = open_file(entry.path(), O_RDWR);
    if (fd && ::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
  }
}

Result<Pool> create_pool(const fs::path& path, uint64_t size_bytes) {
  remove_leftovers(path);
  fs::path scratch = path;
  scratch += fmt::format(".creating.{}", ::getpid());
  Pool pool(pmemobj_create(scratch.c_str(), kLayout, size_bytes, 0600));
  if (!pool) {
    Error error = pool_error(errno, path, "create");
    ::unlink(scratch.c_str());
    return fail(std::move(error));
  }
  auto finish = [&]() -> Result<> {
    Root* root = root_of(pool.get());
    if (root == nullptr) return fail(pool_error(errno, path, "create"));
    if (auto ok = allocate_area(pool.get(), root, path, size_bytes); !ok) return ok;
    if (::renameat2(AT_FDCWD, scratch.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
      return fail(errno_error(errno, "create", path.string()));
    }
    return fsync_directory(path.parent_path().empty() ? fs::path(".") : path.parent_path());
  };
  if (auto ok = finish(); !ok) {
    ::unlink(scratch.c_str());
    return fail(ok.error());
  }
  return pool;
}

}  // namespace

Result<std::shared_ptr<PersistDomain>> open_pmem_domain(const fs::path& path, uint64_t size_bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    Pool pool(pmemobj_open(path.c_str(), kLayout));
    if (!pool) return fail(pool_error(errno, path, "open"));
    return domain_of(std::move(pool), path, true);
  }
  if (errno != ENOENT) return fail(errno_error(errno, "open", path.string()));
  if (size_bytes < kMinPmemPoolBytes || size_bytes > kMaxPmemPoolBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a hot tier of {} bytes is not possible: one server holds {} MiB to {} GiB "
                            "(--hot-size, --servers)",
                            size_bytes, kMinPmemPoolBytes >> 20, kMaxPmemPoolBytes >> 30));
  }
  auto pool = create_pool(path, size_bytes);
  if (!pool) return fail(pool.error());
  return domain_of(std::move(*pool), path, false);
}

}  // namespace sluice::burst_buffer
