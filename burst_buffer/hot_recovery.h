#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "burst_buffer/hot_state.h"
#include "burst_buffer/staging_log.h"

namespace sluice::burst_buffer {

// The state that a log leads to. `memory` is the whole pool and hostile: the answer is a valid state or an
// error.
//
// Transactions that are open at the end are cut back to their last record before the first whose bytes did
// not survive: records behind the checkpoint whose checksums do not match. Only bytes that are still seen are
// checked; the others may have been given to somebody else since.
Result<std::unique_ptr<HotState>> recover_state(std::span<const std::byte> memory,
                                                const LogContents& contents);

// Recovery without consequences, for the offline checker and the fuzzer: what recovery would say of this
// pool.
Result<> check_pool(std::span<const std::byte> memory);

}  // namespace sluice::burst_buffer
