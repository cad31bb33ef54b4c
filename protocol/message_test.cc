#include "protocol/message.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace sluice::protocol {
namespace {

wire::WriteT good_write() {
  wire::WriteT write;
  write.handle = 7;
  write.extents = {wire::Extent(10, 14), wire::Extent(100, 104)};
  write.inline_ = {1, 2, 3, 4, 5, 6, 7, 8};
  write.checksums = {42};
  return write;
}

TEST(Message, what_was_encoded_comes_back) {
  const auto bytes = encode(9, good_write());
  auto decoded = decode(bytes);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ((*decoded)->id, 9u);
  const auto* write = (*decoded)->body.AsWrite();
  ASSERT_NE(write, nullptr);
  EXPECT_EQ(write->handle, 7u);
  EXPECT_EQ(total_bytes(write->extents), 8u);
  EXPECT_EQ(write->inline_.size(), 8u);
}

TEST(Message, an_error_keeps_its_code_text_and_facts) {
  auto decoded = decode(encode_error(3, Error(ErrorCode::kNoSpace, "hot tier full").mark_retryable()));
  ASSERT_TRUE(decoded);
  const Error error = error_of(*(*decoded)->body.AsFailed());
  EXPECT_EQ(error.code, ErrorCode::kNoSpace);
  EXPECT_EQ(error.message, "hot tier full");
  EXPECT_TRUE(error.retryable);
  EXPECT_FALSE(error.data_loss);
}

void expect_refused(wire::WriteT write, const char* why) {
  auto decoded = decode(encode(1, std::move(write)));
  ASSERT_FALSE(decoded) << why;
  EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol) << why;
}

TEST(Message, a_write_that_lies_about_itself_is_refused) {
  auto backwards = good_write();
  backwards.extents[0] = wire::Extent(14, 10);
  expect_refused(backwards, "backwards extent");
  auto beyond = good_write();
  beyond.extents[0] = wire::Extent(kMaxFileBytes, kMaxFileBytes + 4);
  expect_refused(beyond, "extent beyond the largest file");
  auto wrong_size = good_write();
  wrong_size.inline_.pop_back();
  expect_refused(wrong_size, "inline bytes missing");
  auto no_bytes = good_write();
  no_bytes.inline_.clear();
  expect_refused(no_bytes, "no bytes at all");
  auto short_buffer = good_write();
  short_buffer.inline_.clear();
  short_buffer.source = std::make_unique<wire::Buffer>(0, 0, 7);
  expect_refused(short_buffer, "buffer shorter than the extents");
  auto no_checksum = good_write();
  no_checksum.checksums.clear();
  expect_refused(no_checksum, "no checksum");
  auto too_many = good_write();
  too_many.extents.assign(kMaxExtentsPerRequest + 1, wire::Extent(0, 1));
  expect_refused(too_many, "too many extents");
}

TEST(Message, sums_of_extents_that_would_wrap_are_refused) {
  wire::ReadT read;
  read.extents.assign(8, wire::Extent(0, uint64_t{1} << 61));
  read.destination = std::make_unique<wire::Buffer>(0, 0, 0);
  EXPECT_FALSE(decode(encode(1, std::move(read))));
}

TEST(Message, paths_are_normalised_and_dotdot_is_refused) {
  EXPECT_EQ(normalise_path("a/b").value(), "/a/b");
  EXPECT_EQ(normalise_path("//a/./b/").value(), "/a/b");
  EXPECT_EQ(normalise_path("/").value(), "/");
  EXPECT_EQ(normalise_path("wrf_00:00:00").value(), "/wrf_00:00:00");
  EXPECT_FALSE(normalise_path("/a/../b"));
  EXPECT_FALSE(normalise_path(""));
  EXPECT_FALSE(normalise_path(std::string_view("a\0b", 3)));
  EXPECT_FALSE(normalise_path(std::string(kMaxPathBytes + 1, 'x')));
}

RC_GTEST_PROP(MessageProperty, mangled_bytes_are_refused_or_decode_to_something_legal, ()) {
  auto bytes = encode(9, good_write());
  const auto changes = *rc::gen::inRange(1, 8);
  for (int i = 0; i < changes; ++i) {
    const auto at = *rc::gen::inRange<size_t>(0, bytes.size());
    bytes[at] = static_cast<std::byte>(*rc::gen::inRange(0, 256));
  }
  bytes.resize(*rc::gen::inRange<size_t>(0, bytes.size() + 1));
  if (auto decoded = decode(bytes)) {
    if (const auto* write = (*decoded)->body.AsWrite()) {
      RC_ASSERT(total_bytes(write->extents) <= kMaxRequestBytes);
      for (const auto& extent : extents_of(write->extents)) RC_ASSERT(extent.valid());
    }
  } else {
    RC_ASSERT(decoded.error().code == ErrorCode::kProtocol);
  }
}

TEST(Message, a_write_says_in_one_way_where_its_bytes_are) {
  auto placed = good_write();
  placed.inline_.clear();
  placed.slab = std::make_unique<wire::Slab>(1, 512);
  EXPECT_TRUE(decode(encode(1, std::move(placed))));
  auto both = good_write();
  both.slab = std::make_unique<wire::Slab>(1, 512);
  expect_refused(std::move(both), "inline and in a slab");
}

TEST(Message, an_answer_whose_pieces_do_not_fit_is_refused) {
  const auto answer = [](wire::MappedPiece piece, size_t sums) {
    wire::ReadDoneT done;
    done.bytes = 100'000;
    done.pin = 1;
    done.pieces = {piece};
    done.checksums.resize(sums);
    return decode(encode(1, std::move(done))).has_value();
  };
  EXPECT_TRUE(answer(wire::MappedPiece(0, 512, 100'000, 0, 100'000), 2));
  EXPECT_TRUE(answer(wire::MappedPiece(0, 512, 100'000, 10, 200'000), 0)) << "it holds no block whole";
  EXPECT_FALSE(answer(wire::MappedPiece(0, 512, 100'000, 0, 100'000), 3)) << "a checksum of nothing";
  EXPECT_FALSE(answer(wire::MappedPiece(1, 512, 100'000, 0, 100'000), 2)) << "beyond the answer";
  EXPECT_FALSE(answer(wire::MappedPiece(0, 512, 100'000, 1, 100'000), 1)) << "beyond its slab";
  EXPECT_FALSE(answer(wire::MappedPiece(0, 512, 0, 0, 100'000), 0)) << "of no bytes";
}

TEST(Message, the_blocks_that_a_piece_holds_whole) {
  constexpr uint64_t kBlock = 65536;
  EXPECT_EQ(whole_blocks(0, 3 * kBlock, 3 * kBlock).count, 3u);
  EXPECT_EQ(whole_blocks(1, 3 * kBlock - 1, 3 * kBlock).first, 1u);
  EXPECT_EQ(whole_blocks(1, 3 * kBlock - 1, 3 * kBlock).count, 2u);
  EXPECT_EQ(whole_blocks(kBlock, 10, kBlock + 10).count, 1u) << "the short last one";
  EXPECT_EQ(whole_blocks(kBlock, 10, kBlock + 11).count, 0u);
  EXPECT_EQ(whole_blocks(5, 10, 3 * kBlock).count, 0u);
}

}  // namespace
}  // namespace sluice::protocol
