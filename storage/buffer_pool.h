#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace sluice::storage {

// Large scratch buffers that keep their pages: touching fresh memory costs more than the work done in it.
// Thread-safe; must outlive its buffers. Contents are whatever they were.
class BufferPool {
 public:
  // Free buffers beyond this are given back to the system.
  static constexpr size_t kMaxKeptBytes = size_t{64} * 1024 * 1024;

  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      Buffer taken(std::move(other));
      swap(taken);
      return *this;
    }
    ~Buffer();

    std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

   private:
    friend class BufferPool;
    struct Free {
      void operator()(std::byte* memory) const { std::free(memory); }
    };
    void swap(Buffer& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(memory_, other.memory_);
      std::swap(size_, other.size_);
      std::swap(capacity_, other.capacity_);
    }

    BufferPool* pool_ = nullptr;
    std::unique_ptr<std::byte, Free> memory_;
    size_t size_ = 0;
    size_t capacity_ = 0;
  };

  // At least one byte; aligned to a page.
  Buffer take(size_t size_bytes);

 private:
  void give_back(Buffer buffer);

  std::mutex mutex_;
  std::vector<Buffer> free_;
  size_t kept_bytes_ = 0;
};

}  // namespace sluice::storage
