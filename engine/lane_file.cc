#include "engine/lane_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"

namespace sluice::engine {
namespace {

constexpr size_t kFileBytes = sizeof(LaneHeader) + kLaneEntries * sizeof(LaneEntry);

uint32_t check_of(uint64_t grant, uint64_t offset, uint64_t length, uint32_t process) {
  std::array<std::byte, 28> bytes{};
  std::memcpy(bytes.data(), &grant, 8);
  std::memcpy(bytes.data() + 8, &offset, 8);
  std::memcpy(bytes.data() + 16, &length, 8);
  std::memcpy(bytes.data() + 24, &process, 4);
  return crc32c(bytes);
}

}  // namespace

Result<std::unique_ptr<LaneFile>> LaneFile::open(const std::filesystem::path& path, uint64_t boot) {
  auto fd = open_file(path, O_RDWR | O_CREAT, 0600);
  if (!fd) return fail(fd.error());
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0) return fail(errno_error(errno, "look at", path.string()));
  // Room on the medium now: a store into a mapped hole of a full disk would end the process.
  if (info.st_size != static_cast<off_t>(kFileBytes)) {
    if (::ftruncate(fd->get(), 0) != 0) return fail(errno_error(errno, "empty", path.string()));
    if (const int error = ::posix_fallocate(fd->get(), 0, kFileBytes); error != 0)
      return fail(errno_error(error, "make", path.string()));
  }
  auto readable = open_file(path, O_RDONLY);
  if (!readable) return fail(readable.error());
  void* memory = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  if (memory == MAP_FAILED) return fail(errno_error(errno, "map", path.string()));
  std::unique_ptr<LaneFile> file(new LaneFile(std::move(*readable), static_cast<std::byte*>(memory), boot));
  if (file->header().magic != protocol::kLaneMagic) {
    std::memset(memory, 0, kFileBytes);
    file->header().magic = protocol::kLaneMagic;
  }
  return file;
}

LaneFile::~LaneFile() {
  ::munmap(memory_, kFileBytes);
}

std::vector<LaneFile::Found> LaneFile::entries() const {
  std::vector<Found> found;
  for (size_t i = 0; i < kLaneEntries; ++i) {
    const LaneEntry& entry = table()[i];
    const uint64_t grant = entry.grant.load();
    if (grant == 0 || entry.check != check_of(grant, entry.offset, entry.length, entry.process)) continue;
    found.push_back({grant, entry.offset, entry.length, entry.process, i});
  }
  return found;
}

Result<size_t> LaneFile::add(uint64_t grant, uint64_t offset, uint64_t length, uint32_t process) {
  for (size_t tried = 0; tried < kLaneEntries; ++tried) {
    const size_t at = next_++ % kLaneEntries;
    LaneEntry& entry = table()[at];
    if (entry.grant.load() != 0) continue;
    entry.offset = offset;
    entry.length = length;
    entry.process = process;
    entry.check = check_of(grant, offset, length, process);
    entry.grant.store(grant);
    return at;
  }
  return fail(
      Error(ErrorCode::kBusy, "too many parts of the hot tier are handed out at once").mark_retryable());
}

void LaneFile::remove(size_t entry) {
  table()[entry].grant.store(0);
}

}  // namespace sluice::engine
