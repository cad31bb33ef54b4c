#include "client/hot_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace sluice::client {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kChunkBytes = uint64_t{2} << 20;  // pages are made present in such pieces

}  // namespace

std::shared_ptr<HotMap> HotMap::make(std::span<const UniqueFd> lent, const wire::LaneT& terms) {
  if (lent.size() < 2) return nullptr;
  struct stat hot {};
  struct stat lane {};
  if (::fstat(lent[0].get(), &hot) != 0 || ::fstat(lent[1].get(), &lane) != 0) return nullptr;
  const auto size = static_cast<uint64_t>(hot.st_size);
  const bool fits = terms.bytes > 0 && terms.file_offset <= size && terms.bytes <= size - terms.file_offset;
  if (!fits || lane.st_size < static_cast<off_t>(sizeof(protocol::LaneHeader))) return nullptr;
  std::shared_ptr<HotMap> made(new HotMap);
  made->file_ = UniqueFd(::dup(lent[0].get()));
  if (!made->file_) return nullptr;
  ::fcntl(made->file_.get(), F_SETFD, FD_CLOEXEC);
  made->file_offset_ = terms.file_offset;
  made->device_ = hot.st_dev;
  made->inode_ = hot.st_ino;
  made->in_memory_ = terms.in_memory;
  void* header = ::mmap(nullptr, sizeof(protocol::LaneHeader), PROT_READ, MAP_SHARED, lent[1].get(), 0);
  if (header == MAP_FAILED) return nullptr;
  made->header_ = static_cast<const protocol::LaneHeader*>(header);
  if (made->header_->magic != protocol::kLaneMagic) return nullptr;
  const uint64_t skip = terms.file_offset % kPageBytes;
  void* area = ::mmap(nullptr, terms.bytes + skip, PROT_READ | PROT_WRITE, MAP_SHARED, lent[0].get(),
                      static_cast<off_t>(terms.file_offset - skip));
  if (area == MAP_FAILED) return nullptr;
  // A child of this process has no session, and must not seem to be one that may still write.
  ::madvise(area, terms.bytes + skip, MADV_DONTFORK);
  made->area_ = static_cast<std::byte*>(area) + skip;
  made->skip_ = skip;
  made->bytes_ = terms.bytes;
  made->present_ = std::vector<std::atomic<bool>>((terms.bytes + skip) / kChunkBytes + 1);
  return made;
}

HotMap::~HotMap() {
  if (area_ != nullptr) ::munmap(area_ - skip_, bytes_ + skip_);
  if (header_ != nullptr) ::munmap(const_cast<protocol::LaneHeader*>(header_), sizeof(protocol::LaneHeader));
}

bool HotMap::same(std::span<const UniqueFd> lent, const wire::LaneT& terms) const {
  struct stat hot {};
  return lent.size() >= 2 && ::fstat(lent[0].get(), &hot) == 0 && hot.st_dev == device_ &&
         hot.st_ino == inode_ && terms.file_offset == file_offset_ && terms.bytes == bytes_;
}

void HotMap::make_present(uint64_t offset, uint64_t bytes) {
  if (!in_memory_ || bytes == 0) return;
  std::byte* base = area_ - skip_;
  for (uint64_t chunk = (offset + skip_) / kChunkBytes; chunk <= (offset + skip_ + bytes - 1) / kChunkBytes;
       ++chunk) {
    if (present_[chunk].load(std::memory_order_relaxed)) continue;
    const uint64_t begin = chunk * kChunkBytes;
    // As if for reading: the kernel then maps many neighbours with one fault, and because the pages of a
    // memory file need no word before they are written to, they are mapped writable. Where it cannot, the
    // faults come one by one.
    (void)::madvise(base + begin, std::min(kChunkBytes, bytes_ + skip_ - begin), MADV_POPULATE_READ);
    present_[chunk].store(true, std::memory_order_relaxed);
  }
}

Result<> HotMap::copy(uint64_t offset, std::span<std::byte> to) const {
  bool present = true;
  for (uint64_t chunk = (offset + skip_) / kChunkBytes;
       chunk <= (offset + skip_ + to.size() - 1) / kChunkBytes; ++chunk)
    present = present && present_[chunk].load(std::memory_order_relaxed);
  if (!present) return pread_all(file_.get(), to, file_offset_ + offset, "the hot tier");
  std::memcpy(to.data(), at(offset), to.size());
  return {};
}

}  // namespace sluice::client
