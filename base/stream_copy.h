#pragma once

#include <cstddef>

namespace sluice {

// memcpy for bytes that this core does not read again soon: past the caches where the processor can and it
// pays (a destination on a 16-byte boundary, some KiB at least). On return the bytes are seen by every other
// core that learns of them by a later store.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace sluice
