#include "transport/frame.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/checksum.h"

namespace sluice::transport {
namespace {

std::vector<std::byte> assemble(const FrameHeader& header, std::span<const std::byte> payload) {
  const auto head = encode_header(header);
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

FrameHeader data_header(uint32_t payload_bytes) {
  FrameHeader header;
  header.kind = FrameKind::kData;
  header.to_connection = 0x1122334455667788;
  header.from_connection = 0x99AABBCCDDEEFF00;
  header.sequence = 7;
  header.payload_bytes = payload_bytes;
  return header;
}

// Sets bytes and mends the checksum, so that the field itself is what is wrong.
std::vector<std::byte> with_field(std::vector<std::byte> bytes, size_t at,
                                  std::initializer_list<uint8_t> value) {
  for (const uint8_t v : value) bytes[at++] = std::byte{v};
  const uint32_t crc = crc32c(std::span(bytes).first(36));
  for (size_t i = 0; i < 4; ++i) bytes[36 + i] = static_cast<std::byte>(crc >> (8 * i));
  return bytes;
}

TEST(Frame, LaysItsFieldsOutAsDocumented) {
  const auto bytes = encode_header(data_header(3));
  const std::vector<uint8_t> begin = {'S',  'L',  'F',  'R',  1,    4,    0,    0,
                                      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
  for (size_t i = 0; i < begin.size(); ++i) EXPECT_EQ(bytes[i], std::byte{begin[i]}) << i;
  EXPECT_EQ(bytes[24], std::byte{7});
  EXPECT_EQ(bytes[32], std::byte{3});
}

RC_GTEST_PROP(Frame, EveryGoodFrameComesBackAsItWas,
              (const std::vector<uint8_t>& body, uint64_t to, uint64_t from, uint64_t sequence)) {
  FrameHeader header = data_header(static_cast<uint32_t>(body.size()));
  header.to_connection = to | 1;
  header.from_connection = from | 1;
  header.sequence = sequence | 1;
  header.flags = body.empty() ? 0 : *rc::gen::element<uint16_t>(0, kMoreFragments);
  const auto bytes = assemble(header, std::as_bytes(std::span(body)));
  const auto frame = decode_frame(bytes);
  RC_ASSERT(frame.has_value());
  RC_ASSERT(frame->header == header);
  RC_ASSERT(std::ranges::equal(frame->payload, std::as_bytes(std::span(body))));
}

RC_GTEST_PROP(Frame, NoFlippedBitOfTheHeaderPasses, ()) {
  auto bytes = assemble(data_header(5), std::vector<std::byte>(5));
  const auto bit = *rc::gen::inRange<size_t>(0, kFrameHeaderBytes * 8);
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  const auto frame = decode_frame(bytes);
  RC_ASSERT(!frame.has_value());
  RC_ASSERT(frame.error().code == ErrorCode::kProtocol);
}

RC_GTEST_PROP(Frame, RandomBytesAreRefusedWithoutHarm, (const std::vector<uint8_t>& bytes)) {
  RC_ASSERT(!examine_frame(std::as_bytes(std::span(bytes))).has_value());
}

RC_GTEST_PROP(Frame, MangledPayloadsAreRefusedOrRead, (std::vector<uint8_t> noise)) {
  for (const FrameKind kind :
       {FrameKind::kHello, FrameKind::kHelloAck, FrameKind::kRefuse, FrameKind::kBye}) {
    std::vector<std::byte> payload = kind == FrameKind::kHello || kind == FrameKind::kHelloAck
                                         ? encode_greeting({kProtocolVersion, "tcp://127.0.0.1:4000"})
                                         : encode_farewell(Error(ErrorCode::kAborted, "enough"));
    for (size_t i = 0; i + 1 < noise.size(); i += 2)
      payload[noise[i] % payload.size()] = std::byte{noise[i + 1]};
    payload.resize(payload.size() - std::min<size_t>(noise.size() % 5, payload.size()));
    FrameHeader header = data_header(static_cast<uint32_t>(payload.size()));
    header.kind = kind;
    if (kind == FrameKind::kHello) header.to_connection = 0;
    const auto outcome = examine_frame(assemble(header, payload));  // must not read outside, whatever it says
    if (!outcome) RC_ASSERT(outcome.error().code == ErrorCode::kProtocol);
  }
}

TEST(Frame, EachRuleOfTheHeaderIsChecked) {
  const auto good = assemble(data_header(2), std::vector<std::byte>(2));
  ASSERT_TRUE(decode_frame(good).has_value());
  EXPECT_FALSE(decode_frame({}).has_value());
  EXPECT_FALSE(decode_frame(std::span(good).first(kFrameHeaderBytes - 1)).has_value());
  EXPECT_FALSE(decode_frame(std::span(good).first(kFrameHeaderBytes + 1)).has_value()) << "cut payload";
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_frame(longer).has_value()) << "bytes after the payload";
  EXPECT_FALSE(decode_frame(with_field(good, 0, {'X'})).has_value()) << "magic";
  EXPECT_FALSE(decode_frame(with_field(good, 4, {2})).has_value()) << "version";
  EXPECT_FALSE(decode_frame(with_field(good, 5, {0})).has_value()) << "kind 0";
  EXPECT_FALSE(decode_frame(with_field(good, 5, {8})).has_value()) << "kind 8";
  EXPECT_FALSE(decode_frame(with_field(good, 6, {2})).has_value()) << "flag 2";
  EXPECT_FALSE(decode_frame(with_field(good, 5, {7, 1})).has_value()) << "a bye in pieces";
  EXPECT_FALSE(decode_frame(with_field(good, 5, {5})).has_value()) << "a ping with a payload";
  EXPECT_FALSE(decode_frame(with_field(good, 8, {0, 0, 0, 0, 0, 0, 0, 0})).has_value()) << "no receiver";
  EXPECT_FALSE(decode_frame(with_field(good, 16, {0, 0, 0, 0, 0, 0, 0, 0})).has_value()) << "no sender";
  EXPECT_FALSE(decode_frame(with_field(good, 24, {0})).has_value()) << "no sequence";
  EXPECT_FALSE(decode_frame(with_field(good, 5, {1})).has_value())
      << "a hello that knows the receiver's name";
}

TEST(Frame, NamesOfABadFrameCanBeRead) {
  auto bytes = assemble(data_header(0), {});
  bytes[39] ^= std::byte{1};
  ASSERT_FALSE(decode_frame(bytes).has_value());
  const auto names = peek_names(bytes);
  ASSERT_TRUE(names.has_value());
  EXPECT_EQ(names->to, 0x1122334455667788u);
  EXPECT_EQ(names->from, 0x99AABBCCDDEEFF00u);
  EXPECT_FALSE(peek_names(std::span(bytes).first(23)).has_value());
}

TEST(Frame, GreetingComesBackAndLongOnesAreRefused) {
  const auto greeting = decode_greeting(encode_greeting({3, "shm://server"}));
  ASSERT_TRUE(greeting.has_value());
  EXPECT_EQ(greeting->protocol, 3u);
  EXPECT_EQ(greeting->address, "shm://server");
  const auto unprintable = decode_greeting(encode_greeting({3, "shm://\x1b[2J\n"}));
  ASSERT_TRUE(unprintable.has_value());
  EXPECT_EQ(unprintable->address, "shm://?[2J?");
  EXPECT_FALSE(decode_greeting({}).has_value());
}

TEST(Frame, FarewellKeepsCodeAndTextUpToItsLimit) {
  const auto farewell = decode_farewell(encode_farewell(Error(ErrorCode::kFenced, "evicted")));
  ASSERT_TRUE(farewell.has_value());
  EXPECT_EQ(farewell->code, ErrorCode::kFenced);
  EXPECT_EQ(farewell->message, "evicted");
  const auto cut = decode_farewell(encode_farewell(Error(ErrorCode::kFenced, std::string(10'000, 'x'))));
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->message.size(), kMaxFarewellBytes);
  EXPECT_FALSE(decode_farewell(encode_farewell(Error(static_cast<ErrorCode>(999), "x"))).has_value());
}

}  // namespace
}  // namespace sluice::transport
