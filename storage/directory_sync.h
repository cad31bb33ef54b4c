#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/result.h"

namespace sluice::storage {

// One fsync of a directory for all who ask while another is running. Thread-safe.
class DirectorySync {
 public:
  // On success, every entry made before the call is durable. `fd` and `object` (its name, for errors) must be
  // the same at every call.
  Result<> sync(int fd, const std::string& object);

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  uint64_t asked_ = 0;     // calls so far
  uint64_t answered_ = 0;  // calls that a finished fsync has covered
  bool running_ = false;
  uint64_t failed_upto_ = 0;  // the last failed fsync covered the calls up to this one
  Error failure_;
};

}  // namespace sluice::storage
