#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

// The bytes around every message between two processes. Pure: no fabric, no clock. Any thread.
//
// A frame is a header of kFrameHeaderBytes, little-endian, and a payload:
//
//   offset size field
//        0    4 magic            "SLFR"
//        4    1 version          kFrameVersion
//        5    1 kind             FrameKind
//        6    2 flags            kMoreFragments or 0; other bits must be 0
//        8    8 to_connection    the receiver's name for the connection; 0 in hello, where it is not known
//        yet
//       16    8 from_connection  the sender's name for it; 0 only in refuse
//       24    8 sequence         data: 1, 2, 3, ... ; ping, pong, bye: data frames sent so far; others 0
//       32    4 payload_bytes    what follows the header, exactly
//       36    4 crc32c           of the 36 bytes before
//
// Connection names are random, so a frame of an earlier life of either process, or of a stranger, fits no
// connection. The payload carries no checksum: bulk bytes are checked end to end by those who use them.
namespace sluice::transport {

inline constexpr uint32_t kFrameMagic = 0x52464C53;  // "SLFR"
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 40;
inline constexpr uint16_t kMoreFragments = 1;  // the message goes on in the next data frame
inline constexpr size_t kMaxAddressBytes = 256;
inline constexpr size_t kMaxFarewellBytes = 512;  // a longer message is cut

enum class FrameKind : uint8_t { kHello = 1, kHelloAck, kRefuse, kData, kPing, kPong, kBye };

struct FrameHeader {
  FrameKind kind = FrameKind::kPing;
  uint16_t flags = 0;
  uint64_t to_connection = 0;
  uint64_t from_connection = 0;
  uint64_t sequence = 0;
  uint32_t payload_bytes = 0;

  bool operator==(const FrameHeader&) const = default;
};

// A frame as received; `payload` lies in the buffer that was decoded.
struct Frame {
  FrameHeader header;
  std::span<const std::byte> payload;
};

struct Greeting {
  uint32_t protocol = 0;
  std::string address;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

FrameHeaderBytes encode_header(const FrameHeader& header);

// Checks everything that can be checked without knowing the connection. kProtocol, with what is wrong,
// otherwise.
Result<Frame> decode_frame(std::span<const std::byte> bytes);

// The connection names of a frame that did not decode, as far as they can be read: they tell whose connection
// it spoils.
struct ConnectionNames {
  uint64_t to = 0;
  uint64_t from = 0;
};
std::optional<ConnectionNames> peek_names(std::span<const std::byte> bytes);

// Payloads. Decoders refuse with kProtocol whatever the verifier or a limit does not allow.
std::vector<std::byte> encode_greeting(const Greeting& greeting);
Result<Greeting> decode_greeting(std::span<const std::byte> payload);
std::vector<std::byte> encode_farewell(const Error& reason);
Result<Error> decode_farewell(std::span<const std::byte> payload);

// Everything above in one call on hostile bytes, for fuzzers: decodes the frame and, by its kind, the
// payload.
Result<> examine_frame(std::span<const std::byte> bytes);

}  // namespace sluice::transport
