#include "burst_buffer/clean_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <string>

#include "base/checksum.h"
#include "burst_buffer/drain.h"
#include "burst_buffer/fake_sink.h"
#include "burst_buffer/hot_tier.h"
#include "burst_buffer/sim_domain.h"

// Drained bytes that the hot tier keeps for readers, seen through the tier.
namespace sluice::burst_buffer {
namespace {

constexpr size_t kPoolBytes = 1024 * 1024;
constexpr uint64_t kStripeBytes = 4000;
const ContainerId kFile(7);

// A tier over a storage tier of strings, with a drain that runs when it is told to.
struct Rig {
  Rig() {
    HotTier::Options options{"test.pool", kPoolBytes, [this](ContainerId c) { return sink.find(c); }};
    options.least_clean_bytes = 1;
    hot = *HotTier::open(options, std::make_shared<SimDomain>(kPoolBytes));
    drain = Drain::create(*hot, sink, {});
  }
  Result<> put(uint64_t txn, uint64_t at, const std::string& text) {
    auto slab = hot->reserve(Length(text.size()));
    if (!slab) return fail(slab.error());
    std::memcpy(hot->bytes(*slab).data(), text.data(), text.size());
    const Extent extent = Extent::at(Offset(at), Length(text.size()));
    auto written = hot->write(TxnId(txn), std::span(&extent, 1), *slab, block_checksums(hot->bytes(*slab)));
    return written ? Result<>() : fail(written.error());
  }
  void write(uint64_t txn, uint64_t at, const std::string& text) {
    ASSERT_TRUE(hot->begin(TxnId(txn), kFile, SessionId(1)));
    ASSERT_TRUE(put(txn, at, text));
    ASSERT_TRUE(hot->commit(TxnId(txn)));
  }
  void drain_all() { ASSERT_TRUE(drain->run_once(false)); }
  void remove() {
    sink.remove(kFile);
    const auto dead = hot->forget(kFile);
    ASSERT_TRUE(dead);
    for (const StripeId stripe : *dead) sink.discard(stripe);
  }
  // What a reader puts together; `from_hot` is how much of it the hot tier gave.
  std::string read(std::optional<TxnId> txn, uint64_t bytes, uint64_t* from_hot = nullptr) {
    auto view = hot->view(kFile, txn, {Offset(0), Offset(bytes)});
    if (!view) return view.error().message;
    std::string below = sink.contents(kFile);
    below.resize(bytes, '0');
    std::string text;
    for (const Segment& segment : view->segments) {
      const uint64_t length = segment.extent.length().value;
      if (segment.kind == Segment::Kind::kBytes) {
        text.append(reinterpret_cast<const char*>(segment.bytes.data()), length);
        if (from_hot != nullptr) *from_hot += length;
      } else if (segment.kind == Segment::Kind::kStripe) {
        text += sink.stripe_contents(segment.stripe, segment.stripe_offset, length);
      } else if (segment.kind == Segment::Kind::kBelow) {
        text += below.substr(segment.extent.begin.value, length);
      } else {
        text.append(length, '0');
      }
    }
    return text;
  }
  uint64_t hot_bytes(uint64_t bytes) {
    uint64_t from_hot = 0;
    (void)read(std::nullopt, bytes, &from_hot);
    return from_hot;
  }

  FakeSink sink{kStripeBytes};
  std::unique_ptr<HotTier> hot;
  std::unique_ptr<Drain> drain;
};

TEST(CleanCache, what_was_drained_is_read_from_the_hot_tier_and_told_with_its_place) {
  Rig rig;
  rig.write(1, 0, std::string(10'000, 'a'));
  rig.drain_all();
  EXPECT_EQ(rig.sink.contents(kFile), std::string(10'000, 'a'));
  EXPECT_EQ(rig.hot_bytes(10'000), 10'000u);
  const std::vector<Extent> some = {{Offset(3000), Offset(9000)}};
  const auto staged = rig.hot->staged(kFile, std::nullopt, some);
  ASSERT_TRUE(staged && *staged);
  for (const Segment& segment : (*staged)->segments) {
    EXPECT_EQ(segment.checksums.size(), 1u);
    EXPECT_LE(segment.in_slab + segment.bytes.size(), segment.slab_length);
    EXPECT_EQ(segment.bytes.data(),
              rig.hot->bytes({segment.area_offset, Length(segment.bytes.size())}).data());
  }
  EXPECT_EQ((*staged)->committed, Epoch(1));
}

TEST(CleanCache, its_room_counts_as_free_and_is_given_to_who_wants_it) {
  Rig rig;
  for (uint64_t txn = 1; txn <= 3; ++txn)
    rig.write(txn, (txn - 1) * 300'000, std::string(300'000, static_cast<char>('a' + txn)));
  const std::string expected = rig.read(std::nullopt, 900'000);
  rig.drain_all();
  EXPECT_EQ(rig.hot->usage().bytes_used, 0u);
  EXPECT_GE(rig.hot->usage().bytes_clean, 900'000u);
  ASSERT_LT(rig.hot->usage().bytes_total, 1'200'000u) << "nothing would have to be given up";
  const auto slab = rig.hot->reserve(Length(300'000));
  ASSERT_TRUE(slab) << slab.error().message;
  EXPECT_EQ(rig.hot_bytes(900'000), 600'000u) << "what came first is given up, and no more than need be";
  rig.hot->cancel(*slab);
  const auto all = rig.hot->reserve(Length(rig.hot->usage().bytes_total));
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(rig.hot_bytes(900'000), 0u);
  EXPECT_EQ(rig.hot->usage().bytes_clean, 0u);
  rig.hot->cancel(*all);
  EXPECT_EQ(rig.read(std::nullopt, 900'000), expected);
}

TEST(CleanCache, what_a_reader_has_a_pin_on_is_not_given_away) {
  Rig rig;
  rig.write(1, 0, std::string(300'000, 'a'));
  rig.drain_all();
  const std::vector<Extent> some = {{Offset(0), Offset(100)}};
  auto staged = rig.hot->staged(kFile, std::nullopt, some);
  ASSERT_TRUE(staged && *staged);
  const Length whole(rig.hot->usage().bytes_total);
  EXPECT_FALSE(rig.hot->reserve(whole));
  EXPECT_EQ(static_cast<char>((*staged)->segments[0].bytes[99]), 'a');
  staged->reset();
  EXPECT_TRUE(rig.hot->reserve(whole));
}

TEST(CleanCache, newer_bytes_cover_it_and_it_comes_back_with_them_when_they_are_drained) {
  Rig rig;
  rig.write(1, 0, std::string(3000, 'a'));
  rig.drain_all();
  rig.write(2, 1000, std::string(1000, 'b'));
  const std::string expected = std::string(1000, 'a') + std::string(1000, 'b') + std::string(1000, 'a');
  EXPECT_EQ(rig.read(std::nullopt, 3000), expected);
  rig.drain_all();
  EXPECT_EQ(rig.read(std::nullopt, 3000), expected);
  EXPECT_EQ(rig.hot_bytes(3000), 3000u);
}

TEST(CleanCache, bytes_that_were_placed_before_their_commit_cover_it) {
  Rig rig;
  rig.write(1, 0, std::string(kStripeBytes, 'a'));
  rig.drain_all();
  ASSERT_TRUE(rig.hot->begin(TxnId(2), kFile, SessionId(1)));
  ASSERT_TRUE(rig.put(2, 0, std::string(kStripeBytes, 'b')));
  ASSERT_TRUE(rig.drain->run_once(/*include_open=*/true));
  EXPECT_EQ(rig.read(TxnId(2), kStripeBytes), std::string(kStripeBytes, 'b'));
  EXPECT_EQ(rig.read(std::nullopt, kStripeBytes), std::string(kStripeBytes, 'a'));
  ASSERT_TRUE(rig.hot->commit(TxnId(2)));
  EXPECT_EQ(rig.read(std::nullopt, kStripeBytes), std::string(kStripeBytes, 'b'));
}

TEST(CleanCache, a_cut_takes_it_and_a_file_that_grows_again_shows_zeros) {
  Rig rig;
  rig.write(1, 0, std::string(3000, 'a'));
  rig.drain_all();
  ASSERT_TRUE(rig.hot->begin(TxnId(2), kFile, SessionId(1)));
  ASSERT_TRUE(rig.hot->truncate(TxnId(2), Length(1000)));
  ASSERT_TRUE(rig.hot->truncate(TxnId(2), Length(2000)));
  EXPECT_EQ(rig.read(TxnId(2), 2000), std::string(1000, 'a') + std::string(1000, '0'));
  EXPECT_EQ(rig.read(std::nullopt, 3000), std::string(3000, 'a'));
  ASSERT_TRUE(rig.hot->commit(TxnId(2)));
  EXPECT_EQ(rig.read(std::nullopt, 2000), std::string(1000, 'a') + std::string(1000, '0'));
  rig.drain_all();
  EXPECT_EQ(rig.read(std::nullopt, 2000), std::string(1000, 'a') + std::string(1000, '0'));
}

TEST(CleanCache, nothing_of_a_removed_container_is_kept) {
  Rig rig;
  rig.write(1, 0, std::string(300'000, 'a'));
  rig.drain_all();
  rig.remove();
  EXPECT_EQ(rig.hot->usage().bytes_clean, 0u);
  EXPECT_EQ(rig.hot_bytes(300'000), 0u);
}

TEST(CleanCache, what_was_read_from_the_storage_tier_is_kept_unless_the_container_changed_meanwhile) {
  Rig rig;
  rig.write(1, 0, std::string(3000, 'a'));
  rig.drain_all();
  const auto give_up_all = [&] {
    const auto all = rig.hot->reserve(Length(rig.hot->usage().bytes_total));
    ASSERT_TRUE(all);
    rig.hot->cancel(*all);
  };
  const auto keep = [&](const HotTier::Standing& then, char with) {
    const std::vector<Extent> extents = {{Offset(0), Offset(1000)}, {Offset(2000), Offset(3000)}};
    const auto slab = rig.hot->reserve(Length(2000));
    ASSERT_TRUE(slab);
    std::memset(rig.hot->bytes(*slab).data(), with, 2000);
    rig.hot->keep(kFile, then, extents, *slab, block_checksums(rig.hot->bytes(*slab)));
  };
  give_up_all();
  keep(rig.hot->standing(kFile), 'a');
  EXPECT_EQ(rig.hot_bytes(3000), 2000u);
  EXPECT_EQ(rig.read(std::nullopt, 3000), std::string(3000, 'a'));
  EXPECT_EQ(rig.hot->usage().bytes_used, 0u);

  give_up_all();
  const auto before_commit = rig.hot->standing(kFile);
  rig.write(2, 0, std::string(3000, 'b'));
  rig.drain_all();
  give_up_all();
  keep(before_commit, 'a');
  EXPECT_EQ(rig.read(std::nullopt, 3000), std::string(3000, 'b'));
  EXPECT_EQ(rig.hot->usage().bytes_clean, 0u);

  // After a restart the hot tier has not heard of it before it goes.
  const ContainerId unheard(8);
  const auto before_removal = rig.hot->standing(unheard);
  ASSERT_TRUE(rig.hot->forget(unheard));
  const auto slab = rig.hot->reserve(Length(2000));
  ASSERT_TRUE(slab);
  const Extent extent{Offset(0), Offset(2000)};
  rig.hot->keep(unheard, before_removal, {&extent, 1}, *slab, block_checksums(rig.hot->bytes(*slab)));
  EXPECT_EQ(rig.hot->usage().bytes_clean, 0u);
  EXPECT_EQ(rig.hot->usage().bytes_used, 0u);
}

// Against plain strings; the room of the tier is wanted now and then, and steps of the sink fail.
RC_GTEST_PROP(CleanCacheProperty, readers_see_a_plain_array_whatever_is_kept, ()) {
  constexpr uint64_t kBytes = 9000;
  Rig rig;
  std::string committed;
  struct Open {
    std::vector<std::pair<uint64_t, std::string>> steps;  // where, and the bytes; none: a truncation
  };
  std::map<uint64_t, Open> open;
  uint64_t next = 1;
  const auto applied = [](std::string text, const Open& txn) {
    for (const auto& [at, bytes] : txn.steps) {
      if (bytes.empty()) {
        text.resize(at, '0');
      } else {
        text.resize(std::max<size_t>(text.size(), at + bytes.size()), '0');
        text.replace(at, bytes.size(), bytes);
      }
    }
    return text;
  };
  const auto check = [&] {
    std::string all = committed;
    all.resize(kBytes, '0');
    RC_ASSERT(rig.read(std::nullopt, kBytes) == all);
    for (const auto& [txn, steps] : open) {
      std::string own = applied(committed, steps);
      own.resize(kBytes, '0');
      RC_ASSERT(rig.read(TxnId(txn), kBytes) == own);
    }
  };
  uint64_t calls = 0;
  uint64_t failing = 0;
  rig.sink.on_step([&](const std::string&) -> Result<> {
    if (failing == 0 || ++calls % failing != 0) return {};
    return fail(Error(ErrorCode::kIo, "the step was told to fail").mark_retryable());
  });
  const auto steps = *rc::gen::inRange(1, 50);
  for (int step = 0; step < steps; ++step) {
    const auto txn =
        open.empty() || (open.size() < 3 && *rc::gen::inRange(0, 3) == 0)
            ? next++
            : std::next(open.begin(), *rc::gen::inRange<int>(0, static_cast<int>(open.size())))->first;
    if (!open.contains(txn)) {
      RC_ASSERT(rig.hot->begin(TxnId(txn), kFile, SessionId(1)));
      open[txn];
    }
    const auto at = *rc::gen::inRange<uint64_t>(0, kBytes - 1);
    switch (*rc::gen::inRange(0, 10)) {
      default: {
        const auto length = *rc::gen::inRange<uint64_t>(1, kBytes - at + 1);
        const std::string text(length, static_cast<char>('a' + *rc::gen::inRange(0, 26)));
        if (rig.put(txn, at, text)) open[txn].steps.emplace_back(at, text);
        break;
      }
      case 0:
        RC_ASSERT(rig.hot->truncate(TxnId(txn), Length(at)));
        open[txn].steps.emplace_back(at, "");
        break;
      case 1:
      case 2:
        RC_ASSERT(rig.hot->commit(TxnId(txn)));
        committed = applied(committed, open[txn]);
        open.erase(txn);
        break;
      case 3:
        RC_ASSERT(rig.hot->abort(TxnId(txn)));
        open.erase(txn);
        break;
      case 4:
      case 5:
        failing = *rc::gen::inRange<uint64_t>(0, 4);
        (void)rig.drain->run_once(*rc::gen::arbitrary<bool>());
        break;
      case 6:
        if (const auto slab = rig.hot->reserve(Length(*rc::gen::inRange<uint64_t>(1, kPoolBytes)))) {
          std::memset(rig.hot->bytes(*slab).data(), '!', slab->length.value);
          rig.hot->cancel(*slab);
        }
        break;
    }
    check();
  }
  failing = 0;
  for (const auto& [txn, steps_of] : open) RC_ASSERT(rig.hot->abort(TxnId(txn)));
  RC_ASSERT(rig.drain->run_once(false));
  RC_ASSERT(rig.hot->usage().bytes_used == 0u);
  RC_ASSERT(rig.hot->usage().bytes_undrained == 0u);
}

}  // namespace
}  // namespace sluice::burst_buffer
