#include "client/lane.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"
#include "base/log.h"
#include "base/stream_copy.h"
#include "protocol/lane_layout.h"

namespace sluice::client {
namespace {

constexpr uint64_t kFirstWantBytes = uint64_t{4} << 20;
constexpr uint64_t kMostWantBytes = uint64_t{32} << 20;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kChunkBytes = uint64_t{2} << 20;  // pages are made present in such pieces

}  // namespace

class Lane::Mapping {
 public:
  static std::shared_ptr<Mapping> make(std::span<const UniqueFd> lent, const wire::LaneT& terms);
  ~Mapping() {
    if (area_ != nullptr) ::munmap(area_ - skip_, bytes_ + skip_);
    if (header_ != nullptr)
      ::munmap(const_cast<protocol::LaneHeader*>(header_), sizeof(protocol::LaneHeader));
  }

  bool same(std::span<const UniqueFd> lent, const wire::LaneT& terms) const;
  bool holds(uint64_t offset, uint64_t bytes) const { return offset <= bytes_ && bytes <= bytes_ - offset; }
  std::byte* at(uint64_t offset) const { return area_ + offset; }
  // Which service is in charge of the area.
  uint64_t boot() const { return header_->boot.load(std::memory_order_seq_cst); }
  void set_expected_boot(uint64_t boot) { expected_boot_.store(boot); }
  bool in_charge() const { return boot() == expected_boot_.load(); }

  // Before bytes are stored there: one call for many pages instead of a fault for each.
  void make_present(uint64_t offset, uint64_t bytes);
  // Copies out of the area. A page that is not present in this process costs more to map than to have the
  // kernel copy from.
  Result<> copy(uint64_t offset, std::span<std::byte> to) const;

 private:
  Mapping() = default;

  UniqueFd file_;
  uint64_t file_offset_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::byte* area_ = nullptr;
  uint64_t skip_ = 0;
  uint64_t bytes_ = 0;
  bool in_memory_ = false;
  const protocol::LaneHeader* header_ = nullptr;
  std::atomic<uint64_t> expected_boot_ = 0;
  std::vector<std::atomic<bool>> present_;
};

std::shared_ptr<Lane::Mapping> Lane::Mapping::make(std::span<const UniqueFd> lent, const wire::LaneT& terms) {
  if (lent.size() != 2) return nullptr;
  struct stat hot {};
  struct stat lane {};
  if (::fstat(lent[0].get(), &hot) != 0 || ::fstat(lent[1].get(), &lane) != 0) return nullptr;
  const auto size = static_cast<uint64_t>(hot.st_size);
  const bool fits = terms.bytes > 0 && terms.file_offset <= size && terms.bytes <= size - terms.file_offset;
  if (!fits || lane.st_size < static_cast<off_t>(sizeof(protocol::LaneHeader))) return nullptr;
  std::shared_ptr<Mapping> made(new Mapping);
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

bool Lane::Mapping::same(std::span<const UniqueFd> lent, const wire::LaneT& terms) const {
  struct stat hot {};
  return lent.size() == 2 && ::fstat(lent[0].get(), &hot) == 0 && hot.st_dev == device_ &&
         hot.st_ino == inode_ && terms.file_offset == file_offset_ && terms.bytes == bytes_;
}

void Lane::Mapping::make_present(uint64_t offset, uint64_t bytes) {
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

Result<> Lane::Mapping::copy(uint64_t offset, std::span<std::byte> to) const {
  bool present = true;
  for (uint64_t chunk = (offset + skip_) / kChunkBytes;
       chunk <= (offset + skip_ + to.size() - 1) / kChunkBytes; ++chunk)
    present = present && present_[chunk].load(std::memory_order_relaxed);
  if (!present) return pread_all(file_.get(), to, file_offset_ + offset, "the hot tier");
  std::memcpy(to.data(), at(offset), to.size());
  return {};
}

void Lane::attach(std::span<const UniqueFd> lent, const wire::LaneT& terms) {
  const std::lock_guard lock(mutex_);
  if (!mapping_ || !mapping_->same(lent, terms)) mapping_ = Mapping::make(lent, terms);
  if (!mapping_) log::info("the hot tier cannot be mapped; its service is talked to as a distant one");
  if (mapping_) mapping_->set_expected_boot(terms.boot);
  records_at_once_.store(terms.at_once);
  usable_.store(mapping_ != nullptr);
}

std::optional<Lane::Room> Lane::take(uint64_t bytes) {
  const uint64_t room = protocol::slab_footprint(bytes);
  const std::lock_guard lock(mutex_);
  for (Grant& grant : grants_) {
    if (grant.dead || grant.end - grant.at < room) continue;
    Room taken{grant.mapping, grant.number, grant.at, bytes};
    grant.at += room;
    ++grant.unsettled;
    return taken;
  }
  return std::nullopt;
}

uint64_t Lane::wanted_bytes() const {
  const std::lock_guard lock(mutex_);
  return std::max(next_want_, kFirstWantBytes);
}

std::optional<Lane::Room> Lane::add(const wire::LeasedT& leased, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t room = protocol::slab_footprint(bytes);
  if (!mapping_ || !mapping_->holds(leased.offset, leased.length) || leased.length < room)
    return std::nullopt;
  // What is left of the ones before is too small for what is written at this time.
  for (Grant& grant : grants_) grant.dead = true;
  grants_.push_back({leased.grant, leased.offset + room, leased.offset + leased.length, 1, false, mapping_});
  // Who goes on writing gets more at a time.
  next_want_ = std::min(kMostWantBytes, std::max(next_want_, kFirstWantBytes) * 2);
  return Room{mapping_, leased.grant, leased.offset, bytes};
}

void Lane::settle(const Room& room) {
  const std::lock_guard lock(mutex_);
  for (Grant& grant : grants_) {
    if (grant.number == room.grant) --grant.unsettled;
  }
}

std::vector<uint32_t> Lane::fill(const Room& room, const Batch& batch) {
  room.mapping->make_present(room.offset, room.bytes);
  std::byte* to = room.mapping->at(room.offset);
  std::vector<uint32_t> sums;
  sums.reserve(batch.bytes / kChecksumBlockBytes + 1);
  size_t index = 0;
  size_t used = 0;  // of that piece
  for (uint64_t done = 0; done < batch.bytes;) {
    const uint64_t block = std::min<uint64_t>(kChecksumBlockBytes, batch.bytes - done);
    const Piece& piece = batch.memory[index];
    if (piece.bytes - used >= block) {
      // The checksum first: it brings the bytes into the cache that the copy then takes them from.
      const std::span from(static_cast<const std::byte*>(piece.data) + used, block);
      sums.push_back(crc32c(from));
      stream_copy(to + done, from.data(), block);
      used += block;
      if (used == piece.bytes) {
        ++index;
        used = 0;
      }
    } else {
      for (uint64_t copied = 0; copied < block;) {
        const Piece& part = batch.memory[index];
        const uint64_t now = std::min<uint64_t>(part.bytes - used, block - copied);
        std::memcpy(to + done + copied, static_cast<const std::byte*>(part.data) + used, now);
        copied += now;
        used += now;
        if (used == part.bytes) {
          ++index;
          used = 0;
        }
      }
      sums.push_back(crc32c({to + done, block}));
    }
    done += block;
  }
  return sums;
}

std::vector<uint64_t> Lane::held() const {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> numbers;
  for (const Grant& grant : grants_) numbers.push_back(grant.number);
  return numbers;
}

std::vector<uint64_t> Lane::take_returns(bool idle) {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> numbers;
  std::erase_if(grants_, [&](const Grant& grant) {
    const bool over = grant.unsettled == 0 && (idle || grant.dead || grant.at == grant.end);
    if (over) numbers.push_back(grant.number);
    return over;
  });
  return numbers;
}

void Lane::fenced() {
  const std::lock_guard lock(mutex_);
  for (Grant& grant : grants_) grant.dead = true;
}

namespace {

// Where the n-th byte of a batch is in memory, walked forward only.
class Cursor {
 public:
  explicit Cursor(const Batch& batch) : batch_(batch) {}
  // The next piece of memory, at most `bytes`, from byte `at` on.
  std::span<std::byte> next(uint64_t at, uint64_t bytes) {
    while (at >= begin_ + batch_.memory[index_].bytes) begin_ += batch_.memory[index_++].bytes;
    const Piece& piece = batch_.memory[index_];
    const uint64_t skip = at - begin_;
    return {static_cast<std::byte*>(piece.data) + skip, std::min<uint64_t>(bytes, piece.bytes - skip)};
  }

 private:
  const Batch& batch_;
  size_t index_ = 0;
  uint64_t begin_ = 0;
};

}  // namespace

Result<uint64_t> Lane::copy_out(const wire::ReadDoneT& answer, const Batch& batch) const {
  std::shared_ptr<Mapping> mapping;
  {
    const std::lock_guard lock(mutex_);
    mapping = mapping_;
  }
  if (!mapping) return fail(ErrorCode::kInternal, "the hot tier is not mapped");
  Cursor cursor(batch);
  size_t sum = 0;
  for (const auto& piece : answer.pieces) {
    if (!mapping->holds(piece.offset(), piece.length()))
      return fail(ErrorCode::kProtocol, "the service named bytes outside of the hot tier");
    const auto whole = protocol::whole_blocks(piece.in_slab(), piece.length(), piece.slab_length());
    // Up to the first whole block, each whole block, and what is behind the last.
    for (uint64_t done = 0; done < piece.length();) {
      const uint64_t in_slab = piece.in_slab() + done;
      const uint64_t block = in_slab / kChecksumBlockBytes;
      const uint64_t block_end = std::min((block + 1) * kChecksumBlockBytes, piece.slab_length());
      const uint64_t part = std::min(block_end - in_slab, piece.length() - done);
      const bool is_whole = block >= whole.first && block < whole.first + whole.count;
      uint32_t crc = 0;
      for (uint64_t copied = 0; copied < part;) {
        const auto to = cursor.next(piece.at() + done + copied, part - copied);
        if (auto ok = mapping->copy(piece.offset() + done + copied, to); !ok) return fail(ok.error());
        if (is_whole) crc = crc32c(to, crc);
        copied += to.size();
      }
      if (is_whole && crc != answer.checksums[sum++]) {
        if (!mapping->in_charge()) break;
        return fail(
            Error(ErrorCode::kCorrupt, "bytes in the hot tier do not match their checksums; read again")
                .mark_retryable());
      }
      done += part;
    }
  }
  if (!mapping->in_charge())
    return fail(
        Error(ErrorCode::kConflict, "the service was restarted while its bytes were read").mark_retryable());
  return answer.bytes;
}

}  // namespace sluice::client
