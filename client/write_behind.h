#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/extent_map.h"
#include "client/batch_buffer.h"
#include "client/core.h"
#include "client/file_stats.h"
#include "client/summed_copy.h"

// Writes of one open file that return to the caller before the service answered. What fails of them is told
// by the next call, and by every flush, sync and close until then.
//
// There are two kinds. A write that is sent returns when the service's queue has it. One that is gathered is
// kept here, under PW locks, behind the ones before it, and goes to the service with them in one request:
// when they make a whole chunk, or when somebody needs them. Who needs them is another client that asks for
// one of the locks (flush), a read here, and whatever settles. So who reads under a lock sees all.
namespace sluice::client {

// Small writes, one behind the other in one place. Not thread-safe.
class Gathered {
 public:
  static constexpr size_t kMaxExtents = 1024;

  // `buffer` has room for `capacity` bytes.
  Gathered(BatchBuffer buffer, uint64_t capacity)
      : buffer_(std::move(buffer)), capacity_(capacity), copy_(buffer_.place()) {}

  // Whether there is room for this one, and it lies over none that is here.
  bool takes(const Batch& batch) const;
  bool overlaps(const Extent& extent) const;
  // `lock`: the one that the batch was written under.
  void append(const Batch& batch, uint64_t lock);
  // Full, or one run that reaches the end of a chunk.
  bool whole(uint64_t chunk_bytes) const;

  // The writes in order; neighbours under one lock are one.
  const std::vector<Extent>& extents() const { return extents_; }
  uint64_t bytes() const { return copy_.bytes(); }
  // Ends it: nothing is appended afterwards.
  std::pair<BatchBuffer, std::vector<uint32_t>> finish();

 private:
  BatchBuffer buffer_;
  uint64_t capacity_;
  SummedCopy copy_;
  std::vector<Extent> extents_;
  uint64_t last_lock_ = 0;
  struct Here {
    Here advanced(Length) const { return {}; }
  };
  ExtentMap<Here> covered_;
};

// Thread rule: as said at each call.
class WriteBehind {
 public:
  struct Write {  // one request
    Batch batch;  // without memory, which is the caller's again
    BatchBuffer buffer;
    std::vector<uint32_t> sums;
    LockUse use;                  // of one that is sent: until it is answered
    std::vector<uint64_t> locks;  // what it is said to be written under
    size_t message_bytes = 0;
  };
  using Answered = std::function<void(Result<uint64_t>)>;
  struct Links {
    // Says a write to the service; the write lives until `answered`. Loop thread.
    std::function<void(const Write&, bool hurried, Answered)> say;
    // Room for so many bytes to be gathered in; may wait. The caller's thread.
    std::function<Result<BatchBuffer>(uint64_t)> room;
    // A write failed. Any thread.
    std::function<void(const Error&)> failed;
  };
  WriteBehind(FileCounters& counters, ContainerId container, uint64_t chunk_bytes, Links links);
  // Before the first write.
  void join(Core& core) { core_ = &core; }

  // --- the caller's thread ---
  // What failed and was not told yet; it is told once.
  Result<> take_error();
  // Sends it. Waits while too many are under way, or one that it might overtake.
  Result<> send(std::shared_ptr<Write> write);
  // Gathers it, under the PW lock that `use` is; that ends. At most most_gathered() bytes.
  Result<> gather(const Batch& batch, LockUse use);
  uint64_t most_gathered() const { return capacity_ / 4; }
  // Every write that returned was answered.
  Result<> settle();

  // --- the loop thread ---
  // Calls `done`, at once or later, when none that touches the extent is left.
  void flush(const Extent& extent, std::function<void()> done);
  // Sends what was gathered.
  void send_gathered(bool hurried);
  // The file is lost, and what was gathered with it.
  void lost();

 private:
  enum class Outcome { kGathered, kNeedsRoom, kNeedsAnswers };
  static constexpr size_t kMostUnderWay = 64;
  static constexpr size_t kMostCopiesUnderWay = 8;  // of those that lie in memory of ours

  Outcome try_gather(const Batch& batch, LockUse& use, std::optional<Gathered>& fresh);
  Result<> wait_until(const std::function<bool()>& holds);
  void say(const std::shared_ptr<Write>& write, bool hurried);
  void answered(const std::shared_ptr<Write>& write, const Result<uint64_t>& outcome);
  // With the mutex: whether a write there is under way, and one may go out beside those that are.
  bool touched(const Extent& extent) const;
  bool may_go_out(const Batch& batch) const;
  void release_room(const BatchBuffer& buffer);
  void hurry_service();  // loop thread

  Core* core_ = nullptr;
  FileCounters& counters_;
  const ContainerId container_;
  const uint64_t chunk_bytes_;
  const uint64_t capacity_;
  const Links links_;

  std::optional<Gathered> gathered_;  // loop thread
  std::atomic<bool> has_gathered_ = false;
  struct Flush {
    Extent extent;
    std::function<void()> done;
  };
  std::list<Flush> flushes_;  // loop thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Write>> under_way_;
  std::optional<Error> error_;  // not told yet
};

}  // namespace sluice::client
