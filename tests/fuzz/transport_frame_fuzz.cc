// Any bytes may arrive from a peer: decoding them must neither crash nor read outside.
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  (void)sluice::transport::examine_frame(bytes).has_value();
  (void)sluice::transport::peek_names(bytes).has_value();
  (void)sluice::transport::decode_greeting(bytes).has_value();
  (void)sluice::transport::decode_farewell(bytes).has_value();
  return 0;
}
