#include "engine/blocked_watch.h"

#include <gmock/gmock.h>

namespace sluice::engine {
namespace {

using burst_buffer::DrainStatus;

DrainStatus blocked(uint64_t bytes_drained = 0, ErrorCode why = ErrorCode::kIo) {
  return {.state = "blocked: why", .bytes_left = 1, .bytes_drained = bytes_drained, .blocked = why};
}

// Looks every 100 ms from `from_ms` until `to_ms`; the time at which it gave up.
std::optional<uint64_t> look(BlockedWatch& watch, uint64_t from_ms, uint64_t to_ms,
                             const DrainStatus& status) {
  for (uint64_t now = from_ms; now <= to_ms; now += 100)
    if (watch.given_up(now, status)) return now;
  return std::nullopt;
}

TEST(BlockedWatch, ADrainThatStaysBlockedIsGivenUpAfterThePatience) {
  BlockedWatch watch;
  EXPECT_EQ(look(watch, 5'000, 60'000, blocked()), 15'000u);
}

TEST(BlockedWatch, OneThatWorksIsWaitedForWithoutEnd) {
  BlockedWatch watch;
  EXPECT_EQ(
      look(watch, 0, 100'000, {.state = "draining", .bytes_left = 1, .bytes_drained = 0, .blocked = {}}),
      std::nullopt);
}

TEST(BlockedWatch, EveryByteThatWasCarriedBeginsThePatienceAnew) {
  BlockedWatch watch;
  EXPECT_EQ(look(watch, 0, 9'900, blocked(0)), std::nullopt);
  EXPECT_EQ(look(watch, 10'000, 19'900, blocked(1)), std::nullopt);
  EXPECT_EQ(look(watch, 20'000, 40'000, blocked(2)), 30'000u);
}

TEST(BlockedWatch, AMomentOfHealthBeginsThePatienceAnew) {
  BlockedWatch watch;
  EXPECT_EQ(look(watch, 0, 9'900, blocked()), std::nullopt);
  EXPECT_FALSE(watch.given_up(10'000, {.state = "idle", .bytes_left = 0, .bytes_drained = 0, .blocked = {}}));
  EXPECT_EQ(look(watch, 10'100, 40'000, blocked()), 20'100u);
}

TEST(BlockedWatch, WhatNobodyLookedAtWasNotSeenBlocked) {
  BlockedWatch watch;
  EXPECT_FALSE(watch.given_up(0, blocked()));
  EXPECT_FALSE(watch.given_up(50'000, blocked()));
  EXPECT_EQ(look(watch, 50'100, 90'000, blocked()), 60'000u);
}

TEST(BlockedError, HasTheReasonAndItsCode) {
  for (const auto& [why, code] :
       {std::pair(ErrorCode::kNoSpace, ErrorCode::kNoSpace),
        std::pair(ErrorCode::kCorrupt, ErrorCode::kCorrupt),
        std::pair(ErrorCode::kAccess, ErrorCode::kAccess), std::pair(ErrorCode::kNotFound, ErrorCode::kIo)}) {
    const Error error = blocked_error(blocked(0, why), "/x");
    EXPECT_EQ(error.code, code);
    EXPECT_FALSE(error.retryable);
    EXPECT_THAT(error.message, testing::HasSubstr("/x cannot be drained (blocked: why)"));
  }
}

}  // namespace
}  // namespace sluice::engine
