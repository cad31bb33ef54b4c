#include "client/lane.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace sluice::client {
namespace {

constexpr uint64_t kKiB = 1024;

class LaneTest : public testing::Test {
 protected:
  void SetUp() override {
    lent_.emplace_back(::memfd_create("hot", MFD_CLOEXEC));
    lent_.emplace_back(::memfd_create("lane", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(lent_[0].get(), 1024 * kKiB), 0);
    ASSERT_EQ(::ftruncate(lent_[1].get(), sizeof(protocol::LaneHeader)), 0);
    ASSERT_EQ(::pwrite(lent_[1].get(), &protocol::kLaneMagic, sizeof protocol::kLaneMagic, 0),
              ssize_t{sizeof protocol::kLaneMagic});
    wire::LaneT terms;
    terms.bytes = 1024 * kKiB;
    lane_.attach(lent_, terms);
    ASSERT_TRUE(lane_.usable());
  }
  Lane::Room granted(uint64_t number) {
    wire::LeasedT leased;
    leased.grant = number;
    leased.offset = (number - 1) * 64 * kKiB;
    leased.length = 64 * kKiB;
    return lane_.add(leased, kKiB).value();
  }

  std::vector<UniqueFd> lent_;
  Lane lane_;
};

using Numbers = std::vector<uint64_t>;

TEST_F(LaneTest, what_a_grant_has_left_serves_the_next_writes) {
  lane_.settle(granted(1));
  EXPECT_EQ(lane_.take_returns(/*idle=*/false), Numbers());
  const auto next = lane_.take(kKiB);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->grant, 1u);
}

TEST_F(LaneTest, a_grant_that_is_recalled_while_it_is_written_to_goes_back_with_the_end_of_that_write) {
  const Lane::Room room = granted(1);
  EXPECT_EQ(lane_.take_returns(/*idle=*/true), Numbers()) << "it is being written to";
  EXPECT_FALSE(lane_.take(kKiB)) << "somebody waits for what is left of it";
  lane_.settle(room);
  EXPECT_EQ(lane_.take_returns(/*idle=*/false), Numbers({1}));
}

}  // namespace
}  // namespace sluice::client
