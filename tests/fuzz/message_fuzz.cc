// Messages between client and server, as either side receives them.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/assert.h"
#include "protocol/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto decoded = sluice::protocol::decode(std::as_bytes(std::span(data, size)));
  if (!decoded) {
    SLUICE_ASSERT(decoded.error().code == sluice::ErrorCode::kProtocol);
    return 0;
  }
  // What passed must be within the limits that the engine relies on, and survive being written again.
  const auto& body = (*decoded)->body;
  if (const auto* write = body.AsWrite()) {
    SLUICE_ASSERT(sluice::protocol::total_bytes(write->extents) <= sluice::protocol::kMaxRequestBytes);
    SLUICE_ASSERT(write->source != nullptr || write->inline_.size() == sluice::protocol::total_bytes(write->extents));
  }
  if (const auto* read = body.AsRead()) {
    SLUICE_ASSERT(sluice::protocol::total_bytes(read->extents) <= sluice::protocol::kMaxRequestBytes);
  }
  const auto again = sluice::protocol::encode_message((*decoded)->id, body);
  auto twice = sluice::protocol::decode(again);
  SLUICE_ASSERT(twice && (*twice)->body.type == body.type);
  return 0;
}
