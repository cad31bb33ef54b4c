#include "base/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace sluice {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<std::pair<SharedMapping, UniqueFd>> SharedMapping::create(size_t bytes) {
  UniqueFd fd(memfd_create("sluice", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail(errno_error(errno, "memfd_create", "memory to share"));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return fail(errno_error(errno, "size", "memory to share"));
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return fail(errno_error(errno, "seal", "memory to share"));
  auto mapping = attach(fd, bytes, /*writable=*/true);
  if (!mapping) return fail(mapping.error());
  return std::pair(std::move(*mapping), std::move(fd));
}

Result<SharedMapping> SharedMapping::attach(const UniqueFd& fd, size_t bytes, bool writable) {
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return fail(errno_error(errno, "stat", "shared memory"));
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || static_cast<size_t>(status.st_size) != bytes) {
    return fail(ErrorCode::kProtocol, "shared memory of another size, or that could be cut");
  }
  void* data = mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return fail(errno_error(errno, "map", "shared memory"));
  SharedMapping mapping;
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.bytes_ = bytes;
  return mapping;
}

}  // namespace sluice
