#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"

namespace sluice::client {

// Why an open file cannot go on, or its transaction cannot commit. Any thread.
class FileFaults {
 public:
  explicit FileFaults(std::string path) : path_(std::move(path)) {}

  // Every later call answers this.
  void lost(const Error& why) {
    const std::lock_guard lock(mutex_);
    lost_ = why;
    // Nobody but us knows its name any more.
    if (why.code == ErrorCode::kNotFound) lost_->message = path_ + " was removed while it was open";
  }
  // What was asked again of a service that does not have the file any more is refused for that.
  Error explain(const Error& error) const { return why_lost().value_or(error); }
  std::optional<Error> why_lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  // A write failed: a transaction that lacks it is no state that anybody meant. The first one counts.
  void write_failed(const Error& why) {
    if (why.code == ErrorCode::kAccess) return;  // a handle for reading: there is nothing to commit
    const std::lock_guard lock(mutex_);
    if (failed_write_) return;
    failed_write_ = why;
    if (why.code == ErrorCode::kNotFound) return;  // removed: there is nothing to write again
    failed_write_ = Error(ErrorCode::kAborted,
                          "an earlier write to " + path_ +
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
  const std::string path_;
  mutable std::mutex mutex_;
  std::optional<Error> lost_;
  std::optional<Error> failed_write_;
};

}  // namespace sluice::client
