#include "client/read_ahead.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/checksum.h"

namespace sluice::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kBlock = kChecksumBlockBytes;
constexpr ContainerId kFile(3);
constexpr uint64_t kBoot = 77;

Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

// A hot tier of a few blocks, as a service would lend it. File byte i lies at area byte `i + shift` in slabs
// of two blocks.
class ReadAheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    hot_ = UniqueFd(memfd_create("hot", MFD_CLOEXEC));
    lane_ = UniqueFd(memfd_create("lane", MFD_CLOEXEC));
    std::vector<std::byte> bytes(kArea);
    for (size_t i = 0; i < kArea; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
    ASSERT_EQ(::write(hot_.get(), bytes.data(), kArea), static_cast<ssize_t>(kArea));
    area_ = bytes;
    const uint64_t header[8] = {protocol::kLaneMagic, kBoot};
    ASSERT_EQ(::write(lane_.get(), header, sizeof header), static_cast<ssize_t>(sizeof header));
    board_ = std::make_shared<const SharedMapping>(
        std::move(SharedMapping::create(protocol::kChangeBoardBytes)->first));
    const std::vector<UniqueFd> lent = lend();
    wire::LaneT terms;
    terms.bytes = kArea;
    map_ = HotMap::make(lent, terms);
    ASSERT_TRUE(map_);
    map_->set_expected_boot(kBoot);
  }
  std::vector<UniqueFd> lend() const {
    std::vector<UniqueFd> lent;
    lent.emplace_back(::dup(hot_.get()));
    lent.emplace_back(::dup(lane_.get()));
    return lent;
  }

  // `asked` bytes of the file and `ahead` behind them, from file byte 0, which is area byte `shift`.
  std::shared_ptr<const Told> tell(uint64_t asked, uint64_t ahead, uint64_t shift = 0, uint64_t pin = 1) {
    wire::ReadDoneT answer;
    answer.bytes = asked;
    answer.ahead = ahead;
    answer.pin = pin;
    for (uint64_t at = 0; at < asked + ahead;) {
      const uint64_t slab = (at + shift) / kSlab * kSlab;
      const uint64_t in_slab = at + shift - slab;
      const uint64_t length = std::min(kSlab - in_slab, asked + ahead - at);
      answer.pieces.emplace_back(at, at + shift, length, in_slab, kSlab);
      const auto whole = protocol::whole_blocks(in_slab, length, kSlab);
      for (uint64_t block = whole.first; block < whole.first + whole.count; ++block)
        answer.checksums.push_back(crc32c(std::span(area_).subspan(slab + block * kBlock, kBlock)));
      at += length;
    }
    return std::make_shared<const Told>(map_, std::move(answer), ChangeMark(board_, kFile));
  }

  std::vector<Batch> plan(std::vector<Extent> extents) {
    uint64_t total = 0;
    for (const Extent& extent : extents) total += extent.length().value;
    memory_.assign(total, std::byte{0});
    // In two pieces of memory, the first of them odd.
    const uint64_t first = total / 3;
    const std::vector<Piece> pieces = {{memory_.data(), first}, {memory_.data() + first, total - first}};
    return plan_batches(extents, pieces, {}).value();
  }
  std::vector<std::byte> area(uint64_t begin, uint64_t end) const {
    return {area_.begin() + static_cast<ptrdiff_t>(begin), area_.begin() + static_cast<ptrdiff_t>(end)};
  }
  void change() { ++protocol::change_word(board_->data(), kFile.value); }
  void damage(uint64_t at) { map_->at(0)[at] ^= std::byte{1}; }

  static constexpr uint64_t kSlab = 2 * kBlock;
  static constexpr uint64_t kArea = 8 * kBlock;
  UniqueFd hot_, lane_;
  std::vector<std::byte> area_;
  std::shared_ptr<const SharedMapping> board_;
  std::shared_ptr<HotMap> map_;
  std::vector<std::byte> memory_;
  ReadAhead ahead_;
};

TEST_F(ReadAheadTest, any_part_of_what_was_told_is_copied_and_whole_blocks_are_compared) {
  constexpr uint64_t kShift = 100;
  const auto told = tell(kBlock, 4 * kBlock, kShift);
  for (const auto& [begin, end] : {std::pair<uint64_t, uint64_t>{0, 5 * kBlock},
                                   {0, 1},
                                   {kBlock - 100, 3 * kBlock - 100},
                                   {17, 2 * kBlock + 5},
                                   {5 * kBlock - 3, 5 * kBlock}}) {
    std::vector<std::byte> got(end - begin);
    const Piece piece{got.data(), got.size()};
    MemoryCursor cursor({&piece, 1});
    const auto copied = told->copy_out(begin, end - begin, cursor);
    ASSERT_TRUE(copied) << begin << ": " << copied.error().message;
    EXPECT_EQ(got, area(begin + kShift, end + kShift)) << begin;
  }
  // Block 1 of the area is the first that is whole; damage in it is found when it is read whole, and only
  // then.
  damage(kBlock + 7);
  std::vector<std::byte> got(5 * kBlock);
  const Piece piece{got.data(), got.size()};
  MemoryCursor all({&piece, 1});
  const auto damaged = told->copy_out(0, got.size(), all);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, ErrorCode::kCorrupt);
  MemoryCursor others({&piece, 1});
  EXPECT_TRUE(told->copy_out(2 * kBlock - kShift, 2 * kBlock, others));
}

TEST_F(ReadAheadTest, reads_inside_what_is_kept_are_served_and_others_are_not) {
  EXPECT_FALSE(ahead_.serve(plan({ext(0, 10)}), 0));
  ahead_.keep(tell(10, 3 * kBlock), ext(0, 10), 0);
  EXPECT_EQ(ahead_.serve(plan({ext(10, 2 * kBlock)}), 1), 2 * kBlock - 10);
  EXPECT_EQ(memory_, area(10, 2 * kBlock));
  EXPECT_EQ(ahead_.serve(plan({ext(5, 9), ext(100, 300)}), 1), 204u);
  auto both = area(5, 9);
  const auto second = area(100, 300);
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(memory_, both);
  EXPECT_FALSE(ahead_.serve(plan({ext(5, 9), ext(3 * kBlock, 3 * kBlock + 11)}), 1));
}

TEST_F(ReadAheadTest, nothing_is_served_after_a_change_by_another_service_or_when_it_is_old) {
  ahead_.keep(tell(10, kBlock), ext(0, 10), 0);
  change();
  EXPECT_FALSE(ahead_.serve(plan({ext(0, 5)}), 1));
  ahead_.keep(tell(10, kBlock), ext(0, 10), 1);
  EXPECT_TRUE(ahead_.serve(plan({ext(0, 5)}), 1)) << "told after the change";
  EXPECT_FALSE(ahead_.serve(plan({ext(0, 5)}), 2 + ReadAhead::kOldMs));
  ahead_.keep(tell(10, kBlock), ext(0, 10), 3);
  const uint64_t other = kBoot + 1;
  ASSERT_EQ(::pwrite(lane_.get(), &other, sizeof other, 8), static_cast<ssize_t>(sizeof other));
  EXPECT_FALSE(ahead_.serve(plan({ext(0, 5)}), 4));
}

TEST_F(ReadAheadTest, who_is_told_of_no_board_keeps_nothing_that_stands) {
  wire::ReadDoneT answer;
  EXPECT_FALSE(Told(map_, answer, ChangeMark()).holds());
}

TEST_F(ReadAheadTest, more_is_asked_for_as_long_as_reads_go_forward) {
  EXPECT_EQ(ahead_.wanted(ext(0, 100)), ReadAhead::kLeastBytes);
  EXPECT_EQ(ahead_.wanted(ext(100, 200)), 2 * ReadAhead::kLeastBytes);
  EXPECT_EQ(ahead_.wanted(ext(400, 500)), 4 * ReadAhead::kLeastBytes) << "others read what lies between";
  EXPECT_EQ(ahead_.wanted(ext(0, 100)), 0u) << "backwards";
  EXPECT_EQ(ahead_.wanted(ext(1'000'000, 1'000'100)), 0u) << "far away";
  for (uint64_t i = 0; i < 12; ++i)
    EXPECT_LE(ahead_.wanted(ext(1'000'100 + i, 1'000'101 + i)), ReadAhead::kMostBytes);
  EXPECT_EQ(ahead_.wanted(ext(1'000'200, 1'000'300)), ReadAhead::kMostBytes);
}

TEST_F(ReadAheadTest, pins_are_given_back_when_replaced_idle_old_or_asked_for_but_not_while_somebody_reads) {
  EXPECT_FALSE(ahead_.holds_pins());
  ahead_.keep(tell(10, kBlock, 0, /*pin=*/1), ext(0, 10), 0);
  EXPECT_THAT(ahead_.take_spent(1, false), IsEmpty());
  ahead_.keep(tell(10, kBlock, 0, 2), ext(0, 10), 2);
  EXPECT_THAT(ahead_.take_spent(3, false), ElementsAre(1));
  EXPECT_TRUE(ahead_.serve(plan({ext(0, 5)}), 15));
  EXPECT_THAT(ahead_.take_spent(16 + ReadAhead::kIdleMs - 2, false), IsEmpty()) << "used meanwhile";
  EXPECT_THAT(ahead_.take_spent(15 + ReadAhead::kIdleMs, false), ElementsAre(2));
  EXPECT_FALSE(ahead_.holds_pins());
  auto reading = tell(10, kBlock, 0, 3);
  ahead_.keep(reading, ext(0, 10), 50);
  EXPECT_THAT(ahead_.take_spent(51, true), IsEmpty()) << "somebody copies out of it";
  EXPECT_TRUE(ahead_.holds_pins());
  reading.reset();
  EXPECT_THAT(ahead_.take_spent(52, false), ElementsAre(3));
}

}  // namespace
}  // namespace sluice::client
