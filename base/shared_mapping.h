#pragma once

#include <cstddef>
#include <utility>

#include "base/os.h"
#include "base/result.h"

namespace sluice {

// Memory that processes share by a descriptor, which one passes to the other. Gone with the last of them.
class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  // New zeroed memory that no process can ever resize, mapped; the descriptor is for the other process.
  static Result<std::pair<SharedMapping, UniqueFd>> create(size_t bytes);
  // Maps what another process created: exactly `bytes` long and sealed, or refused with kProtocol.
  static Result<SharedMapping> attach(const UniqueFd& fd, size_t bytes, bool writable);

  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sluice
