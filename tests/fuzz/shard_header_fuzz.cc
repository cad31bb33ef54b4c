// A shard's header may be anything: decoding it must end in an error or in the one header that encodes to
// these bytes. Once as it is and once under a right checksum.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/checksum.h"
#include "storage/shard_format.h"

namespace {

using namespace sluice;
using namespace sluice::storage;

void feed(std::span<const std::byte> bytes) {
  const auto header = decode_shard_header(bytes);
  if (!header) return;
  const auto again = encode_shard_header(*header);
  if (!std::equal(again.begin(), again.end(), bytes.begin()) || describe(*header).empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  feed(std::as_bytes(std::span(data, size)));
  std::array<std::byte, kShardHeaderBytes> sealed{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, sealed.size()), sealed.begin());
  const uint32_t crc = crc32c(std::span(sealed).first(kShardHeaderBytes - 4));
  std::memcpy(sealed.data() + kShardHeaderBytes - 4, &crc, sizeof crc);
  feed(sealed);
  return 0;
}
