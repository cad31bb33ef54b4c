#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/result.h"
#include "burst_buffer/persist_domain.h"

namespace sluice::burst_buffer {

inline constexpr uint64_t kMinPmemPoolBytes = uint64_t{16} << 20;
// One PMDK allocation cannot be larger, and the domain is one.
inline constexpr uint64_t kMaxPmemPoolBytes = uint64_t{15} << 30;

// A persist domain in the PMDK pool file `path`: on a DAX mount, on a memory file system, or on a disk. Opens
// the file, or creates it with `size_bytes` when there is none; a crash while it is created leaves no file of
// that name.
//
// libpmem decides whether flushing the CPU caches or msync makes bytes durable. The memory is prefaulted in
// the background where that costs no disk writes. The file is locked as long as the domain lives.
//
// kInvalidArgument: `size_bytes` out of range. kNoSpace: the file system has not that much room. kBusy:
// another process (or this one) has the pool open. kCorrupt: the file is no pool, or damaged. kUnsupported: a
// pool of another program or version. The message says which, with PMDK's own words.
Result<std::shared_ptr<PersistDomain>> open_pmem_domain(const std::filesystem::path& path,
                                                        uint64_t size_bytes);

}  // namespace sluice::burst_buffer
