#include "client/write_behind.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "base/checksum.h"

namespace sluice::client {
namespace {

constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

// A batch over memory of its own.
struct Source {
  Source(std::vector<Extent> extents, uint8_t seed) {
    for (const Extent& extent : extents) batch.bytes += extent.length().value;
    memory.resize(batch.bytes);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(seed + i * 7);
    batch.extents = std::move(extents);
    batch.memory = {{memory.data(), memory.size()}};
  }
  std::vector<std::byte> memory;
  Batch batch;
};

constexpr uint64_t kChunk = 1024;
constexpr uint64_t kLock = 5;

Gathered empty(uint64_t capacity = kChunk) {
  return {BatchBuffer(capacity), capacity};
}

TEST(SummedCopy, bytes_and_sums_are_those_of_one_copy_however_they_were_cut) {
  rc::check([] {
    const auto sizes = *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(1, 200'000));
    uint64_t total = 0;
    for (const uint32_t size : sizes) total += size;
    std::vector<std::byte> from(total);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 251);
    std::vector<std::byte> to(total);
    SummedCopy copy(to.data());
    uint64_t at = 0;
    for (const uint32_t size : sizes) {
      const std::vector<Piece> memory = {{from.data() + at, size / 2}, {from.data() + at + size / 2, size - size / 2}};
      std::vector<Piece> there;
      for (const Piece& piece : memory) {
        if (piece.bytes > 0) there.push_back(piece);
      }
      MemoryCursor cursor(there);
      copy.append(cursor, size);
      at += size;
      RC_ASSERT(copy.bytes() == at);
    }
    RC_ASSERT(copy.finish() == block_checksums(from));
    RC_ASSERT(to == from);
  });
}

TEST(Gathered, neighbours_under_one_lock_are_one_run_and_those_of_different_locks_are_not) {
  auto gathered = empty();
  gathered.append(Source({ext(0, 100)}, 1).batch, kLock);
  gathered.append(Source({ext(100, 200)}, 2).batch, kLock);
  gathered.append(Source({ext(200, 300)}, 3).batch, kLock + 1);
  EXPECT_EQ(gathered.extents(), (std::vector<Extent>{ext(0, 200), ext(200, 300)}));
  EXPECT_EQ(gathered.bytes(), 300u);
}

TEST(Gathered, one_run_that_ends_with_a_chunk_is_whole_and_pieces_that_do_are_not) {
  auto run = empty();
  run.append(Source({ext(kChunk * 3 - 100, kChunk * 3 - 10)}, 1).batch, kLock);
  EXPECT_FALSE(run.whole(kChunk));
  run.append(Source({ext(kChunk * 3 - 10, kChunk * 3)}, 1).batch, kLock);
  EXPECT_TRUE(run.whole(kChunk));
  auto pieces = empty();
  pieces.append(Source({ext(0, 10)}, 1).batch, kLock);
  pieces.append(Source({ext(kChunk - 10, kChunk)}, 1).batch, kLock);
  EXPECT_FALSE(pieces.whole(kChunk));
  auto full = empty(20);
  full.append(Source({ext(5, 15), ext(30, 40)}, 1).batch, kLock);
  EXPECT_TRUE(full.whole(kChunk));
}

TEST(Gathered, what_lies_over_another_or_finds_no_room_is_not_taken) {
  auto gathered = empty(100);
  gathered.append(Source({ext(10, 20), ext(30, 40)}, 1).batch, kLock);
  EXPECT_TRUE(gathered.takes(Source({ext(20, 30)}, 1).batch));
  EXPECT_FALSE(gathered.takes(Source({ext(0, 5), ext(19, 25)}, 1).batch));
  EXPECT_FALSE(gathered.takes(Source({ext(100, 181)}, 1).batch));
  EXPECT_TRUE(gathered.takes(Source({ext(100, 180)}, 1).batch));
  EXPECT_TRUE(gathered.overlaps(ext(39, 50)));
  EXPECT_FALSE(gathered.overlaps(ext(40, 50)));
}

TEST(Gathered, no_more_extents_are_taken_than_one_request_may_have) {
  auto gathered = empty(Gathered::kMaxExtents * 2);
  for (uint64_t i = 0; i < Gathered::kMaxExtents; ++i) {
    const Source one({ext(i * 2, i * 2 + 1)}, 1);
    ASSERT_TRUE(gathered.takes(one.batch)) << i;
    gathered.append(one.batch, kLock);
  }
  EXPECT_FALSE(gathered.takes(Source({ext(9'000, 9'001)}, 1).batch));
  EXPECT_TRUE(gathered.whole(kChunk));
}

// Against a file that is a string.
TEST(Gathered, one_request_leaves_what_the_writes_would_have_left) {
  rc::check([] {
    constexpr uint64_t kFile = 400;
    auto gathered = empty(200);
    std::string model(kFile, '.');
    std::string file(kFile, '.');
    const auto places = *rc::gen::container<std::vector<std::pair<uint64_t, uint64_t>>>(
        rc::gen::pair(rc::gen::inRange<uint64_t>(0, kFile - 20), rc::gen::inRange<uint64_t>(1, 20)));
    uint8_t seed = 0;
    for (const auto& [at, bytes] : places) {
      const Source one({ext(at, at + bytes)}, seed += 11);
      if (!gathered.takes(one.batch)) continue;
      gathered.append(one.batch, at % 3 + 1);
      model.replace(at, bytes, reinterpret_cast<const char*>(one.memory.data()), bytes);
    }
    const auto extents = gathered.extents();
    const uint64_t total = gathered.bytes();
    const auto [buffer, sums] = gathered.finish();
    RC_ASSERT(buffer.span.size() == total);
    RC_ASSERT(sums == block_checksums(buffer.span));
    uint64_t from = 0;
    for (const Extent& extent : extents) {
      const uint64_t bytes = extent.length().value;
      file.replace(extent.begin.value, bytes, reinterpret_cast<const char*>(buffer.span.data()) + from, bytes);
      from += bytes;
    }
    RC_ASSERT(from == total);
    RC_ASSERT(file == model);
  });
}

}  // namespace
}  // namespace sluice::client
