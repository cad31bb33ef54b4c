// Steps of a manifest may have been damaged or made up: decoding them must end in an error or in a step that
// can be encoded again, and one that passes the check must apply. Once as they are and once under a right
// checksum, which lets the deeper layers be reached.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "storage/manifest.h"

namespace {

using namespace sluice;
using namespace sluice::storage;

void feed(std::span<const std::byte> bytes) {
  const auto step = decode_step(bytes, ContainerId(1));
  if (!step) return;
  const std::string again = encode_step(*step);
  const auto same = decode_step(std::as_bytes(std::span(again)), ContainerId(1));
  if (!same || !(*same == *step)) std::abort();
  Manifest manifest(ContainerId(1));
  if (manifest.check(*step)) manifest.apply(*step);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  feed(std::as_bytes(std::span(data, size)));
  constexpr size_t kEnvelopeBytes = 8;
  if (size < kEnvelopeBytes) return 0;
  std::vector<uint8_t> sealed(data, data + size);
  std::memcpy(sealed.data(), "SLMS", 4);
  const uint32_t crc = crc32c(std::as_bytes(std::span(sealed)).subspan(kEnvelopeBytes));
  std::memcpy(sealed.data() + 4, &crc, sizeof crc);
  feed(std::as_bytes(std::span(sealed)));
  return 0;
}
