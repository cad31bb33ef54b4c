#include "storage/directory_sync.h"

#include "base/os.h"

namespace sluice::storage {

Result<> DirectorySync::sync(int fd, const std::string& object) {
  std::unique_lock lock(mutex_);
  const uint64_t mine = ++asked_;
  while (answered_ < mine) {
    if (running_) {
      done_.wait(lock);
      continue;
    }
    running_ = true;
    const uint64_t covers = asked_;
    lock.unlock();
    auto synced = fsync_file(fd, object);
    lock.lock();
    running_ = false;
    answered_ = covers;
    if (!synced) {
      failed_upto_ = covers;
      failure_ = std::move(synced.error());
    }
    done_.notify_all();
  }
  // A later failure may be told to an earlier caller as well: it can put its shard again, at no harm.
  if (mine <= failed_upto_) return fail(failure_);
  return {};
}

}  // namespace sluice::storage
