#include "transport/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>

#include "base/assert.h"
#include "base/checksum.h"
#include "transport/frame_generated.h"

namespace sluice::transport {
namespace {

constexpr size_t kChecksumOffset = 36;

template <std::unsigned_integral T>
void store(std::byte* at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
T load(const std::byte* at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | (static_cast<T>(at[i]) << (8 * i)));
  return value;
}

tl::unexpected<Error> bad(std::string what) {
  return fail(ErrorCode::kProtocol, "bad frame: " + std::move(what));
}

bool known(uint8_t kind) {
  return kind >= static_cast<uint8_t>(FrameKind::kHello) && kind <= static_cast<uint8_t>(FrameKind::kBye);
}

Result<> check_fields(const FrameHeader& h) {
  if ((h.flags & ~kMoreFragments) != 0 || (h.flags != 0 && h.kind != FrameKind::kData))
    return bad("unknown flags");
  if ((h.to_connection == 0) != (h.kind == FrameKind::kHello)) return bad("receiver's connection name");
  if (h.from_connection == 0 && h.kind != FrameKind::kRefuse) return bad("sender's connection name is 0");
  if (h.kind == FrameKind::kData && h.sequence == 0) return bad("data without a sequence number");
  if (h.kind == FrameKind::kData && h.payload_bytes == 0 && h.flags != 0) return bad("empty fragment");
  const bool bare = h.kind == FrameKind::kPing || h.kind == FrameKind::kPong;
  if (bare && h.payload_bytes != 0) return bad("payload where none belongs");
  return {};
}

template <class Table>
const Table* verified(std::span<const std::byte> payload) {
  const auto* data = reinterpret_cast<const uint8_t*>(payload.data());
  if (payload.empty()) return nullptr;
  flatbuffers::Verifier verifier(data, payload.size(), /*max_depth=*/4, /*max_tables=*/4);
  if (!verifier.VerifyBuffer<Table>(nullptr)) return nullptr;
  return flatbuffers::GetRoot<Table>(data);
}

std::vector<std::byte> finished(const flatbuffers::FlatBufferBuilder& builder) {
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {data, data + builder.GetSize()};
}

// A stranger's text goes to logs and terminals.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

}  // namespace

FrameHeaderBytes encode_header(const FrameHeader& h) {
  FrameHeaderBytes out{};
  store<uint32_t>(&out[0], kFrameMagic);
  store<uint8_t>(&out[4], kFrameVersion);
  store<uint8_t>(&out[5], static_cast<uint8_t>(h.kind));
  store<uint16_t>(&out[6], h.flags);
  store<uint64_t>(&out[8], h.to_connection);
  store<uint64_t>(&out[16], h.from_connection);
  store<uint64_t>(&out[24], h.sequence);
  store<uint32_t>(&out[32], h.payload_bytes);
  store<uint32_t>(&out[kChecksumOffset], crc32c(std::span(out).first(kChecksumOffset)));
  return out;
}

Result<Frame> decode_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes)
    return bad(fmt::format("{} bytes are less than a header", bytes.size()));
  const std::byte* at = bytes.data();
  if (load<uint32_t>(at) != kFrameMagic) return bad("no frame magic");
  if (load<uint32_t>(at + kChecksumOffset) != crc32c(bytes.first(kChecksumOffset)))
    return bad("header checksum");
  if (const auto version = load<uint8_t>(at + 4); version != kFrameVersion) {
    return bad(fmt::format("version {}, this side speaks {}", version, kFrameVersion));
  }
  if (const auto kind = load<uint8_t>(at + 5); !known(kind)) return bad(fmt::format("unknown kind {}", kind));
  Frame frame;
  frame.header.kind = static_cast<FrameKind>(load<uint8_t>(at + 5));
  frame.header.flags = load<uint16_t>(at + 6);
  frame.header.to_connection = load<uint64_t>(at + 8);
  frame.header.from_connection = load<uint64_t>(at + 16);
  frame.header.sequence = load<uint64_t>(at + 24);
  frame.header.payload_bytes = load<uint32_t>(at + 32);
  frame.payload = bytes.subspan(kFrameHeaderBytes);
  if (frame.payload.size() != frame.header.payload_bytes) {
    return bad(fmt::format("{} payload bytes where the header says {}", frame.payload.size(),
                           frame.header.payload_bytes));
  }
  if (auto ok = check_fields(frame.header); !ok) return fail(ok.error());
  return frame;
}

std::optional<ConnectionNames> peek_names(std::span<const std::byte> bytes) {
  if (bytes.size() < 24) return std::nullopt;
  return ConnectionNames{load<uint64_t>(&bytes[8]), load<uint64_t>(&bytes[16])};
}

std::vector<std::byte> encode_greeting(const Greeting& greeting) {
  SLUICE_ASSERT(greeting.address.size() <= kMaxAddressBytes);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(wire::CreateGreeting(builder, greeting.protocol, builder.CreateString(greeting.address)));
  return finished(builder);
}

Result<Greeting> decode_greeting(std::span<const std::byte> payload) {
  const auto* table = verified<wire::Greeting>(payload);
  if (table == nullptr) return bad("greeting does not verify");
  if (table->address()->size() > kMaxAddressBytes) return bad("greeting with an address too long");
  return Greeting{table->protocol(), printable(table->address()->str())};
}

std::vector<std::byte> encode_farewell(const Error& reason) {
  flatbuffers::FlatBufferBuilder builder;
  const std::string text = reason.message.substr(0, kMaxFarewellBytes);
  builder.Finish(
      wire::CreateFarewell(builder, static_cast<uint16_t>(reason.code), builder.CreateString(text)));
  return finished(builder);
}

Result<Error> decode_farewell(std::span<const std::byte> payload) {
  const auto* table = verified<wire::Farewell>(payload);
  if (table == nullptr) return bad("farewell does not verify");
  if (table->code() == 0 || table->code() > kLastErrorCode) return bad("farewell with an unknown code");
  if (table->message()->size() > kMaxFarewellBytes) return bad("farewell too long");
  return Error(static_cast<ErrorCode>(table->code()), printable(table->message()->str()));
}

Result<> examine_frame(std::span<const std::byte> bytes) {
  auto frame = decode_frame(bytes);
  if (!frame) return fail(frame.error());
  switch (frame->header.kind) {
    case FrameKind::kHello:
    case FrameKind::kHelloAck:
      if (auto greeting = decode_greeting(frame->payload); !greeting) return fail(greeting.error());
      return {};
    case FrameKind::kRefuse:
    case FrameKind::kBye:
      if (auto farewell = decode_farewell(frame->payload); !farewell) return fail(farewell.error());
      return {};
    case FrameKind::kData:
    case FrameKind::kPing:
    case FrameKind::kPong:
      return {};
  }
  return bad("unknown kind");
}

}  // namespace sluice::transport
