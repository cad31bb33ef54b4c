#include "transport/shm/exposure_table.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <cerrno>

#include "base/assert.h"
#include "transport/ofi/socket_address.h"

namespace sluice::transport {
namespace {

constexpr uint64_t kSlotMask = kExposureSlots - 1;

uint64_t code(Access access) {
  return access == Access::kRemoteRead ? 1 : 2;
}

template <class Call>
Result<> copy_all(Call call, uint64_t address, std::byte* local, size_t length) {
  size_t done = 0;
  while (done < length) {
    iovec here{local + done, length - done};
    iovec there{reinterpret_cast<void*>(address + done), length - done};
    const ssize_t moved = call(&here, &there);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved < 0 && errno == EPERM) {
      return fail(ErrorCode::kUnsupported,
                  "this system does not let processes of one user copy each other's memory (see "
                  "kernel.yama.ptrace_scope); use tcp");
    } else if (!(moved < 0 && errno == EINTR)) {
      return fail(ErrorCode::kIo, "the peer's memory cannot be reached");
    }
  }
  return {};
}

}  // namespace

ExposureTable::ExposureTable(SharedMapping mapping, UniqueFd fd)
    : mapping_(std::move(mapping)), fd_(std::move(fd)) {
  for (size_t i = kExposureSlots; i > 0; --i) free_slots_.push_back(static_cast<uint16_t>(i - 1));
}

Result<ExposureTable> ExposureTable::create() {
  auto memory = SharedMapping::create(kExposureTableBytes);
  if (!memory) return fail(memory.error());
  return ExposureTable(std::move(memory->first), std::move(memory->second));
}

Result<RemoteBuffer> ExposureTable::expose(std::span<std::byte> memory, Access access) {
  if (memory.empty()) return fail(ErrorCode::kInvalidArgument, "cannot expose no bytes");
  if (free_slots_.empty()) {
    Error error(ErrorCode::kBusy, fmt::format("{} pieces of memory are exposed already", kExposureSlots));
    return fail(error.mark_retryable());
  }
  const uint16_t index = free_slots_.back();
  free_slots_.pop_back();
  ExposureSlot& slot = slots()[index];
  const uint64_t random = random_name() & ~kSlotMask;
  const uint64_t key = (random == 0 ? kExposureSlots : random) | index;
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  slot.address.store(address);
  slot.length.store(memory.size());
  slot.access.store(code(access));
  slot.key.store(key);
  return RemoteBuffer{address, key, memory.size()};
}

void ExposureTable::withdraw(uint64_t key) {
  const auto index = static_cast<uint16_t>(key & kSlotMask);
  SLUICE_ASSERT(slots()[index].key.load() == key);
  slots()[index].key.store(0);
  free_slots_.push_back(index);
}

bool may_reach(const SharedMapping& table, uint64_t key, uint64_t address, uint64_t length, Access access) {
  if (key == 0) return false;
  const auto* slots = reinterpret_cast<const ExposureSlot*>(table.data());
  const ExposureSlot& slot = slots[key & kSlotMask];
  if (slot.key.load() != key || slot.access.load() != code(access)) return false;
  const uint64_t begin = slot.address.load();
  const uint64_t size = slot.length.load();
  return address >= begin && length <= size && address - begin <= size - length && slot.key.load() == key;
}

Result<> copy_from_process(pid_t process, uint64_t address, std::span<std::byte> into) {
  return copy_all(
      [process](iovec* here, iovec* there) { return process_vm_readv(process, here, 1, there, 1, 0); },
      address, into.data(), into.size());
}

Result<> copy_to_process(pid_t process, uint64_t address, std::span<const std::byte> from) {
  return copy_all(
      [process](iovec* here, iovec* there) { return process_vm_writev(process, here, 1, there, 1, 0); },
      address, const_cast<std::byte*>(from.data()), from.size());
}

}  // namespace sluice::transport
