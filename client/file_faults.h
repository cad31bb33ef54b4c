#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

namespace sluice::client {

// Why an open file cannot go on, or its transaction cannot commit. Any thread.
class FileFaults {
 public:
  // Every later call answers this.
  void lost(const Error& why) {
    const std::lock_guard lock(mutex_);
    lost_ = why;
  }
  std::optional<Error> why_lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  // A write failed: a transaction that lacks it is no state that anybody meant. The first one counts.
  void write_failed(const std::string& path, const Error& why) {
    if (why.code == ErrorCode::kAccess) return;  // a handle for reading: there is nothing to commit
    const std::lock_guard lock(mutex_);
    if (failed_write_) return;
    failed_write_ = Error(ErrorCode::kAborted,
                          "an earlier write to " + path +
                              " failed, so nothing since its last sync is committed; open it again and write "
                              "again (" +
                              why.message + ")");
  }
  Result<> check_whole() const {
    const std::lock_guard lock(mutex_);
    if (!failed_write_) return {};
    return fail(*failed_write_);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> lost_;
  std::optional<Error> failed_write_;
};

}  // namespace sluice::client
