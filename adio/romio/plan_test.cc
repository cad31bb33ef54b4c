#include "adio/romio/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

SluicePlanFacts small_pieces() {
  return {.ranks = 4, .atomic = 0, .hint = SLUICE_CB_AUTOMATIC, .ordered = 1, .piece_bytes = 64};
}

TEST(Plan, ChoosesByHintsViewAndAccess) {
  SluicePlanFacts facts = small_pieces();
  EXPECT_EQ(sluice_plan_view(&facts), SLUICE_TWO_PHASE_SMALL_PIECES);
  facts.piece_bytes = SLUICE_SMALL_PIECE;
  EXPECT_EQ(sluice_plan_view(&facts), SLUICE_DIRECT_LARGE_PIECES);
  facts.hint = SLUICE_CB_ENABLE;
  EXPECT_EQ(sluice_plan_view(&facts), SLUICE_TWO_PHASE_ENABLED);
  facts.ordered = 0;
  EXPECT_EQ(sluice_plan_view(&facts), SLUICE_DIRECT_UNORDERED) << "windows need rising offsets";
  facts = small_pieces();
  facts.hint = SLUICE_CB_DISABLE;
  EXPECT_EQ(sluice_plan_view(&facts), SLUICE_DIRECT_DISABLED);
  facts.atomic = 1;
  EXPECT_EQ(sluice_plan_view(&facts), SLUICE_DIRECT_ATOMIC);
  facts.ranks = 1;
  EXPECT_EQ(sluice_plan_view(&facts), SLUICE_DIRECT_ALONE);
}

TEST(Plan, PiecesFarApartAreSentDirectlyUnlessExchangeIsAskedFor) {
  SluicePlanFacts facts = small_pieces();
  SluiceAccessFacts access = {.begin = 0, .end = 8 * kMiB, .most_bytes = kMiB};
  EXPECT_EQ(sluice_plan_access(&facts, &access), SLUICE_TWO_PHASE_SMALL_PIECES);
  access.most_bytes = kMiB - 1;
  EXPECT_EQ(sluice_plan_access(&facts, &access), SLUICE_DIRECT_SPARSE);
  facts.hint = SLUICE_CB_ENABLE;
  EXPECT_EQ(sluice_plan_access(&facts, &access), SLUICE_TWO_PHASE_ENABLED);
  access.most_bytes = 0;
  EXPECT_EQ(sluice_plan_access(&facts, &access), SLUICE_DIRECT_NOTHING);
}

TEST(Plan, EveryAnswerHasWordsOfItsOwn) {
  std::set<std::string> words;
  for (int reason = 0; reason < SLUICE_PLAN_REASONS; ++reason)
    words.insert(sluice_plan_words(static_cast<SluicePlanReason>(reason)));
  EXPECT_EQ(words.size(), static_cast<size_t>(SLUICE_PLAN_REASONS));
  EXPECT_EQ(words.count(""), 0u);
}

TEST(Plan, WindowIsWholeChunksWithinItsLimits) {
  EXPECT_EQ(sluice_plan_window(4 * kMiB, kMiB), 4 * kMiB);
  EXPECT_EQ(sluice_plan_window(4 * kMiB + 5, kMiB), 4 * kMiB);
  EXPECT_EQ(sluice_plan_window(1, 64 * kKiB), SLUICE_SMALLEST_WINDOW);
  EXPECT_EQ(sluice_plan_window(-1, 64 * kKiB), SLUICE_SMALLEST_WINDOW);
  EXPECT_EQ(sluice_plan_window(int64_t{1} << 40, kMiB), SLUICE_LARGEST_WINDOW);
  EXPECT_EQ(sluice_plan_window(64 * kKiB, 16 * kMiB), 16 * kMiB) << "never less than a chunk";
  EXPECT_EQ(sluice_plan_chunk(4096), 64 * kKiB);
  EXPECT_EQ(sluice_plan_chunk(2 * kMiB), 2 * kMiB);
}

TEST(Plan, ChunksHoldTheBlocksOfAView) {
  EXPECT_EQ(sluice_plan_shape(0), 0);
  EXPECT_EQ(sluice_plan_shape(kMiB), 0) << "the default does";
  EXPECT_EQ(sluice_plan_shape(kMiB + 1), 2 * kMiB);
  EXPECT_EQ(sluice_plan_shape(3 * kMiB), 4 * kMiB);
  EXPECT_EQ(sluice_plan_shape(int64_t{1} << 40), SLUICE_LARGEST_CHUNK);
}

TEST(Plan, AggregatorsAreSpreadOverHostsInTurn) {
  const std::vector<int> hosts = {0, 0, 0, 1, 1, 2};
  std::vector<int> chosen(6, -1);
  ASSERT_EQ(sluice_plan_spread(hosts.data(), 6, 6, chosen.data()), 0);
  EXPECT_EQ(chosen, (std::vector<int>{0, 3, 5, 1, 4, 2}));
  chosen.assign(6, -1);
  ASSERT_EQ(sluice_plan_spread(hosts.data(), 6, 3, chosen.data()), 0);
  EXPECT_EQ(chosen, (std::vector<int>{0, 3, 5, -1, -1, -1}));
  std::vector<int> many(10'000), all(10'000);
  ASSERT_EQ(sluice_plan_spread(many.data(), 10'000, 10'000, all.data()), 0) << "all on one host";
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
}

// `most` bytes of one of four ranks say whether the access is dense.
struct Domains : SluiceDomains {
  Domains(int64_t begin, int64_t end, int64_t most, int64_t chunk_bytes, int count, int64_t window) {
    const SluiceAccessFacts access = {.begin = begin, .end = end, .most_bytes = most};
    sluice_plan_domains(this, &access, 4, chunk_bytes, count, window);
  }
};

// All windows of an access against the model: each column belongs, once, to aggregator c mod n.
void check_windows(int64_t begin, int64_t end, bool dense, int64_t chunk, int aggregators, int64_t window) {
  const Domains domains(begin, end, dense ? end - begin : 0, chunk, aggregators, window);
  std::set<int64_t> seen;
  for (int64_t round = 0; round < sluice_plan_rounds(&domains); ++round) {
    int64_t held = 0;
    for (int a = 0; a < aggregators; ++a) {
      const int64_t columns = sluice_window_columns(&domains, round, a);
      ASSERT_LE(columns * chunk, window);
      int64_t before = -1;
      for (int64_t i = 0; i < columns; ++i) {
        const int64_t offset = sluice_window_column(&domains, round, a, i);
        ASSERT_EQ(offset % chunk, 0);
        ASSERT_EQ(offset / chunk % aggregators, a) << "another access would give the column to another";
        ASSERT_GT(offset, before) << "pieces of a window must rise in the file";
        ASSERT_TRUE(seen.insert(offset / chunk).second) << "column " << offset / chunk << " comes twice";
        before = offset;
        if (!dense) {
          ASSERT_EQ(sluice_plan_round(&domains, offset), round);
          ASSERT_LE(offset + chunk, sluice_plan_round_end(&domains, round));
        }
      }
      held += columns * chunk;
    }
    ASSERT_LE(held, SLUICE_LARGEST_ROUND);
  }
  // Together they are all that the access touches, and less than a column of each aggregator more at each
  // end.
  const int64_t first = begin / chunk, last = (end - 1) / chunk;
  for (int64_t column = first; column <= last; ++column) ASSERT_EQ(seen.count(column), 1u);
  ASSERT_GT(*seen.begin(), first - aggregators);
  ASSERT_LT(*seen.rbegin(), last + aggregators);
}

TEST(Domains, EveryByteLiesInOneWindowOfOneRound) {
  for (unsigned seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    const int64_t chunk = (64 * kKiB) << pick(0, 8);
    const int64_t window = sluice_plan_window(pick(1, 40 * kMiB), chunk);
    const int aggregators = static_cast<int>(pick(1, pick(0, 1) ? 40 : 6000));
    const int64_t begin = pick(0, 1) * (int64_t{1} << pick(20, 60)) + pick(0, 3 * chunk);
    const int64_t end = begin + pick(1, pick(1, 600) * chunk);
    SCOPED_TRACE("seed " + std::to_string(seed));
    check_windows(begin, end, seed % 2, chunk, aggregators, window);
    if (HasFatalFailure()) return;
  }
}

TEST(Domains, TenThousandAggregatorsBeyondATebibyte) {
  const int64_t far = (int64_t{1} << 41) + 12345;
  for (const bool dense : {false, true}) {
    check_windows(far, far + 30'000 * kMiB, dense, kMiB, 10'000, 4 * kMiB);
    check_windows(far, far + 1, dense, kMiB, 10'000, 4 * kMiB);
  }
}

// Two ranks with a half of the range each are both busy in every round.
TEST(Domains, RoundsOfADenseAccessReachAllOverIt) {
  const Domains domains(0, 64 * kMiB, 64 * kMiB, kMiB, 4, 4 * kMiB);
  ASSERT_EQ(sluice_plan_rounds(&domains), 4);
  for (int64_t round = 0; round < 4; ++round) {
    EXPECT_LT(sluice_window_column(&domains, round, 0, 1), 32 * kMiB);
    EXPECT_GE(sluice_window_column(&domains, round, 0, 2), 32 * kMiB);
  }
}

TEST(Domains, RoundsOfASparseAccessAreFoundWithoutWalking) {
  const int64_t far = int64_t{1} << 61;
  const Domains domains(100, far, 8, 64 * kKiB, 4, 64 * kKiB);
  const int64_t round = sluice_plan_round(&domains, far - 1);
  EXPECT_EQ(round, (far / (64 * kKiB) - 1) / 4);
  EXPECT_EQ(round, sluice_plan_rounds(&domains) - 1);
  EXPECT_GE(sluice_plan_round_end(&domains, round), far);
  EXPECT_LT(sluice_plan_round_end(&domains, round - 1), far);
}

TEST(Turns, SharesOfATurnFitTheRoomOrAreAlone) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 50);
    const int64_t room = 1 + random() % 4000;
    std::vector<SluiceShare> shares(static_cast<size_t>(ranks));
    for (auto& share : shares) {
      share.pieces = random() % 3 ? static_cast<int32_t>(random() % 100) : 0;
      share.bytes = share.pieces * static_cast<int32_t>(1 + random() % 20);
    }
    std::vector<int> turns(shares.size(), -1);
    const int count = sluice_plan_turns(shares.data(), ranks, room, turns.data());
    std::map<int, std::pair<int64_t, int>> held;  // bytes and ranks with something
    int before = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      ASSERT_GE(turns[i], before);
      ASSERT_LT(turns[i], count);
      before = turns[i];
      auto& [bytes, busy] = held[turns[i]];
      bytes += shares[i].bytes + int64_t{SLUICE_PIECE_BYTES} * shares[i].pieces;
      busy += shares[i].pieces > 0;
    }
    for (const auto& [turn, of] : held) ASSERT_TRUE(of.first <= room || of.second == 1) << "seed " << seed;
  }
}

TEST(Turns, WhatFitsTogetherComesTogether) {
  const std::vector<SluiceShare> shares = {{1, 100}, {0, 0}, {1, 100}};
  std::vector<int> turns(3);
  EXPECT_EQ(sluice_plan_turns(shares.data(), 3, 216, turns.data()), 1);
  EXPECT_EQ(sluice_plan_turns(shares.data(), 3, 215, turns.data()), 2);
  EXPECT_EQ(turns, (std::vector<int>{0, 0, 1}));
  const std::vector<SluiceShare> alone = {{0, 0}, {1, 1000}, {0, 0}};
  EXPECT_EQ(sluice_plan_turns(alone.data(), 3, 10, turns.data()), 1) << "ranks without data take no turn";
}

}  // namespace
