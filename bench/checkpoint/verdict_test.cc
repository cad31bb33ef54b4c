#include "bench/checkpoint/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

using testing::HasSubstr;

constexpr Shows kW = Shows::kWhole, kA = Shows::kAbsent, kU = Shows::kUnwritten, kD = Shows::kDiffers;

Findings found(std::array<Shows, 6> shows) {
  Findings findings;
  for (size_t n = 0; n < shows.size(); ++n)
    findings[n] = {shows[n], shows[n] == kD ? "dataset X differs" : ""};
  return findings;
}

std::string complaint(std::array<Shows, 6> shows, const std::optional<SyncedState>& synced) {
  const auto got = judge("/f", found(shows), synced);
  return got ? "accepted" : got.error().message;
}

TEST(Verdict, a_finished_step_needs_all_variables) {
  EXPECT_EQ(judge("/f", found({kW, kW, kW, kW, kW, kW}), {}).value(), 6U);
  EXPECT_EQ(complaint({kW, kW, kW, kA, kW, kW}, {}), "/f: dataset /state/H is missing");
  EXPECT_EQ(complaint({kW, kW, kW, kW, kW, kU}, {}), "/f: dataset /state/V was never written");
  EXPECT_EQ(complaint({kD, kW, kW, kW, kW, kW}, {}), "/f: dataset X differs");
}

TEST(Verdict, a_synced_state_is_exactly_its_variables) {
  EXPECT_EQ(judge("/f", found({kW, kW, kW, kA, kA, kA}), SyncedState{3}).value(), 3U);
  EXPECT_EQ(judge("/f", found({kW, kW, kW, kU, kA, kA}), SyncedState{3}).value(), 3U);
  EXPECT_EQ(judge("/f", found({kA, kA, kA, kA, kA, kA}), SyncedState{0}).value(), 0U);
  EXPECT_THAT(complaint({kW, kW, kA, kA, kA, kA}, SyncedState{3}), HasSubstr("/mesh/level is missing"));
  EXPECT_THAT(complaint({kW, kW, kW, kW, kA, kA}, SyncedState{3}),
              HasSubstr("/state/H is whole, but only the first 3"));
  EXPECT_THAT(complaint({kW, kW, kW, kD, kA, kA}, SyncedState{3}),
              HasSubstr("differs, but only the first 3"));
  EXPECT_THAT(complaint({kW, kW, kW, kA, kA, kW}, SyncedState{3}), HasSubstr("/state/V"));
}

TEST(Verdict, any_synced_state_is_a_prefix_and_nothing_else) {
  EXPECT_EQ(judge("/f", found({kW, kW, kA, kA, kA, kA}), SyncedState{}).value(), 2U);
  EXPECT_EQ(judge("/f", found({kW, kW, kW, kW, kW, kW}), SyncedState{}).value(), 6U);
  EXPECT_THAT(complaint({kW, kD, kA, kA, kA, kA}, SyncedState{}), HasSubstr("differs"));
  EXPECT_THAT(complaint({kW, kA, kW, kA, kA, kA}, SyncedState{}), HasSubstr("/mesh/level is whole"));
}

}  // namespace
}  // namespace sluice::bench
