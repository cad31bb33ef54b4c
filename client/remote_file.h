#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/core.h"
#include "client/pieces.h"

namespace sluice::client {

// What a sharer must know of an open file; share() prints it, attach reads it.
struct HandleText {
  uint64_t handle = 0;
  uint64_t secret = 0;
  uint64_t container = 0;
  AccessMode access = AccessMode::kReadOnly;
  std::string lock_mode;  // LockSettings::print()
  std::string pool;
  uint64_t unavailable_after_ms = 0;

  std::string print() const;
  static Result<HandleText> parse(const std::string& text);
};

FileInfo to_file_info(const wire::FileInfoT& told);

// The owner keeps the client alive as long as a file is open. `asked`: what an owner opened it with.
std::unique_ptr<File> make_remote_file(std::shared_ptr<void> keep_alive, Core& core, HandleText handle,
                                       FileInfo opened, std::optional<OpenOptions> asked);

}  // namespace sluice::client
