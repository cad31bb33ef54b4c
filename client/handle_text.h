#pragma once

#include <cstdint>
#include <string>

#include "client/client.h"
#include "client/session.h"

namespace sluice::client {

// What a sharer must know of an open file, so that it need not ask; share() prints it, attach reads it.
struct HandleText {
  uint64_t handle = 0;
  uint64_t secret = 0;
  uint64_t container = 0;
  AccessMode access = AccessMode::kReadOnly;
  std::string lock_mode;  // LockSettings::print()
  std::string pool;
  std::string drain;  // of the pool: when the hot tier is drained
  uint64_t unavailable_after_ms = 0;
  FileInfo info;  // as it was at open

  std::string print() const;
  static Result<HandleText> parse(const std::string& text);
};

FileInfo to_file_info(const wire::FileInfoT& told);

}  // namespace sluice::client
