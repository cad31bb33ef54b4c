#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "client/client.h"
#include "tools/interruption.h"

// Verified copies between the pool and the local file system.
//
// A copy that succeeded was read back and had the checksums of what was read from the source, and the source
// did not change meanwhile. A copy that failed leaves the destination as it was: what it had written is
// removed. Holes stay holes where the source tells of them, and runs of zeros become holes in local files.
namespace sluice::tools {

struct CopyOptions {
  bool force = false;  // replace what is there
  std::string object_class;
  uint64_t chunk_bytes = 0;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_progress;
  Interruption* interruption = nullptr;  // a signal ends the copy with kAborted
};

struct CopyReport {
  uint64_t bytes = 0;       // size of the copy
  uint64_t data_bytes = 0;  // of those, not in holes
  bool verified = false;    // false only for a destination that cannot be read back (a pipe, a device)
};

Result<CopyReport> copy_in(client::Client& client, const std::filesystem::path& from, const std::string& to,
                           const CopyOptions& options);
Result<CopyReport> copy_out(client::Client& client, const std::string& from, const std::filesystem::path& to,
                            const CopyOptions& options);
Result<CopyReport> copy_within(client::Client& client, const std::string& from, const std::string& to,
                               const CopyOptions& options);

}  // namespace sluice::tools
