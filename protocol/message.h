#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/extent.h"
#include "base/result.h"
#include "protocol/wire_generated.h"

// Messages between client and server: wire.fbs, checked. Pure; thread-safe.
namespace sluice::protocol {

inline constexpr uint32_t kVersion = 3;
inline constexpr size_t kMaxPathBytes = 4096;
inline constexpr size_t kMaxReasonBytes = 200;
inline constexpr size_t kMaxExtentsPerRequest = 1024;
inline constexpr size_t kMaxLocksPerWrite = 2048;
inline constexpr uint64_t kMaxRequestBytes = 8 * 1024 * 1024;  // of bulk data in one Write or Read
inline constexpr size_t kMaxInlineBytes = 32 * 1024;           // bulk data inside the message itself
inline constexpr size_t kMaxUnlocks = 4096;                    // locks given back by one message
inline constexpr size_t kMaxHeldLocks = 4096;                  // locks put back by one Recover
inline constexpr size_t kMaxLocksShown = 1024;                 // in one LocksShown
inline constexpr size_t kMaxGrantsPerMessage = 4096;
inline constexpr size_t kMaxPinsPerMessage = 4096;
inline constexpr uint64_t kMaxAheadBytes = 32 * 1024 * 1024;
inline constexpr size_t kMaxMappedPieces = 2048;  // in one ReadDone
inline constexpr size_t kListPage = 100;          // files in one Listed

using Body = wire::BodyUnion;

// A message of type T (a wire::...T of the object API) for request `id`.
std::vector<std::byte> encode_message(uint64_t id, Body body);

template <class T>
std::vector<std::byte> encode(uint64_t id, T body) {
  Body any;
  any.Set(std::move(body));
  return encode_message(id, std::move(any));
}

std::vector<std::byte> encode_error(uint64_t id, const Error& error);

// Verified: structure by the FlatBuffers Verifier, meaning by our own limits (extents valid and in number,
// paths short and present, bulk sizes agree, enums known). kProtocol with the reason otherwise.
Result<std::unique_ptr<wire::MessageT>> decode(std::span<const std::byte> bytes);

// The checksum blocks of a slab that [in_slab, in_slab + length) holds whole: from block `first` on, `count`
// of them. The last block of a slab may be short.
struct BlockRange {
  uint64_t first = 0;
  uint64_t count = 0;
};
BlockRange whole_blocks(uint64_t in_slab, uint64_t length, uint64_t slab_length);

Error error_of(const wire::FailedT& failed);

// Total bytes of a list of extents.
uint64_t total_bytes(const std::vector<wire::Extent>& extents);
std::vector<Extent> extents_of(const std::vector<wire::Extent>& extents);
std::vector<wire::Extent> to_wire(std::span<const Extent> extents);

// "/a/b" for "a/b", "//a/./b/": absolute and normalised. kInvalidArgument for an empty one, "..", a NUL byte,
// or more than kMaxPathBytes.
Result<std::string> normalise_path(std::string_view path);

}  // namespace sluice::protocol
