#include "lockmgr/stride.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::lockmgr {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Extent at(uint64_t begin, uint64_t bytes) {
  return {Offset(begin), Offset(begin + bytes)};
}

TEST(Stride, one_step_is_a_guess_and_the_first_access_none) {
  StridePredictor stride;
  EXPECT_THAT(stride.predict(4), IsEmpty());
  stride.observe(at(0, 10));
  EXPECT_FALSE(stride.regular());
  stride.observe(at(100, 10));
  EXPECT_THAT(stride.predict(3), ElementsAre(at(200, 10), at(300, 10), at(400, 10)));
}

TEST(Stride, backward_ends_at_the_beginning_of_the_file_and_forward_at_its_largest_end) {
  StridePredictor back;
  back.observe(at(50, 10));
  back.observe(at(30, 10));
  EXPECT_THAT(back.predict(9), ElementsAre(at(10, 10)));
  StridePredictor forward;
  forward.observe(at(kMaxFileBytes - 35, 10));
  forward.observe(at(kMaxFileBytes - 25, 10));
  EXPECT_THAT(forward.predict(9), ElementsAre(at(kMaxFileBytes - 15, 10)));
}

TEST(Stride, a_second_step_that_differs_is_no_pattern_until_it_repeats) {
  StridePredictor stride;
  stride.observe(at(0, 10));
  stride.observe(at(10, 10));
  stride.observe(at(70, 10));
  EXPECT_FALSE(stride.regular());
  stride.observe(at(130, 10));
  EXPECT_THAT(stride.predict(1), ElementsAre(at(190, 10)));
}

// A file domain cut into chunks: runs of writes inside a chunk, then a jump to the next chunk.
TEST(Stride, runs_with_jumps_between_them_are_one_pattern_after_two_of_them) {
  StridePredictor stride;
  const auto access = [](uint64_t i) { return at(i / 4 * 1000 + i % 4 * 10, 10); };
  for (uint64_t i = 0; i <= 8; ++i) stride.observe(access(i));
  const auto next = stride.predict(10);
  ASSERT_THAT(next, SizeIs(10));
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(next[i], access(9 + i)) << i;
  for (uint64_t i = 9; i < 200; ++i) stride.observe(access(i));
  EXPECT_EQ(stride.confirmed(), 191u);
}

TEST(Stride, sizes_are_part_of_the_pattern) {
  StridePredictor stride;
  stride.observe(at(0, 10));
  stride.observe(at(10, 20));
  EXPECT_FALSE(stride.regular()) << "the only step changed the size";
  for (uint64_t i = 0; i < 3; ++i) {
    stride.observe(at(100 * i + 30, 10));
    stride.observe(at(100 * i + 40, 20));
  }
  EXPECT_THAT(stride.predict(2), ElementsAre(at(330, 10), at(340, 20)));
}

}  // namespace
}  // namespace sluice::lockmgr
