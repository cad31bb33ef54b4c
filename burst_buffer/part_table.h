#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "burst_buffer/log_record.h"

// The parts of one stripe as bytes of a slab (FORMAT.md, "Part tables"), so that the log has one record for
// all of them. Pure.
namespace sluice::burst_buffer {

// In one table; it bounds what reading a hostile one takes.
inline constexpr size_t kMaxTableParts = size_t{1} << 16;

// Parts of one stripe. About 7 bytes for each; nothing for those that go on at the stride of the ones before.
std::vector<std::byte> encode_part_table(std::span<const StripePart> parts);
// Reads them into `record`, whose slab lies in `data`, the data area, which is hostile: kCorrupt with
// data_loss when they are not what the record says.
Result<> read_part_table(TableRecord& record, std::span<const std::byte> data);

}  // namespace sluice::burst_buffer
