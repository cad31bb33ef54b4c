#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "storage/testing/store_rig.h"

// A fixed piece of work is run again and again; each time another of its operations on targets and metastore
// fails, or the process dies there, until the work runs clean. After each: published versions are as before
// or after the step that failed, every read is right, and nothing is leaked once orphans are collected.
namespace sluice::storage {
namespace {

using When = FaultPlan::When;

// What is known of one file: the contents it must have, and, after a failed step, those it may have as well.
struct Oracle {
  Bytes certain;
  std::optional<Bytes> possible;

  void settle_to(const Bytes& seen) {
    ASSERT_TRUE(seen == certain || (possible && seen == *possible)) << "neither the old nor the new version";
    certain = seen;
    possible.reset();
  }
};

class Work {
 public:
  explicit Work(StoreRig& rig) : rig_(rig) {}

  // Prepared without faults: two files, one with two versions behind it.
  void prepare() {
    ASSERT_TRUE(rig_.create("/a", "EC_2P1"));
    ASSERT_TRUE(rig_.create("/b", "RP_2"));
    run_one("/a", 0, pattern(90'000, 1));
    run_one("/b", 0, pattern(5000, 2));
  }

  // The work under faults. A failed step is left as it is; later steps go on, as the drain would with its
  // next round.
  void run() {
    run_one("/a", 0, pattern(90'000, 3));     // frees the first stripe
    run_one("/a", 40'000, pattern(1000, 4));  // lies over a part
    run_one("/b", 2500, pattern(5000, 5));
    discard_one("/a");
    read_all(false);
    run_one("/b", 0, pattern(7500, 6));  // frees two
    create_and_remove();
  }

  // Everything reads as it must; a version in doubt is settled by what is there.
  void verify() {
    read_all(true);
    for (auto& [path, oracle] : files_) {
      const auto info = rig_.store().find(path);
      ASSERT_TRUE(info) << info.error().message;
      EXPECT_EQ(info->size.value, oracle.certain.size()) << path;
    }
  }

  void verify_nothing_leaked() {
    std::multiset<StripeId> expected_most;
    std::set<StripeId> live;
    const auto all = rig_.store().list("/").value();
    for (const ContainerInfo& info : all) {
      const auto layout = rig_.store().layout(info.id).value();
      for (const PlacedExtent& placed : layout) {
        if (!live.insert(placed.place.stripe).second) continue;
        for (uint32_t i = 0; i < info.attributes.object_class.width(); ++i)
          expected_most.insert(placed.place.stripe);
      }
    }
    EXPECT_EQ(rig_.stripes(), live);
    const auto shards = rig_.shards();
    for (const StripeId stripe : live) EXPECT_LE(shards.count(stripe), expected_most.count(stripe));
    // Healed, none lacks a shard.
    ASSERT_TRUE(rig_.store().heal([] { return false; }));
    EXPECT_EQ(rig_.shards(), expected_most);
  }

 private:
  void run_one(const std::string& path, size_t at, const Bytes& data) {
    Oracle& oracle = files_[path];
    Bytes after = oracle.certain;
    after.resize(std::max(after.size(), at + data.size()));
    std::copy(data.begin(), data.end(), after.begin() + static_cast<ptrdiff_t>(at));
    const auto info = rig_.store().find(path);
    if (!info) return;
    if (oracle.possible) settle(path, *info);
    // The base of the next version is not known while reads fail.
    if (oracle.possible) return;
    after = oracle.certain;
    after.resize(std::max(after.size(), at + data.size()));
    std::copy(data.begin(), data.end(), after.begin() + static_cast<ptrdiff_t>(at));
    const auto written = rig_.write(info->id, at, data);
    if (written) {
      oracle.certain = after;
    } else {
      oracle.possible = after;
    }
  }

  void settle(const std::string& path, const ContainerInfo& info) {
    const auto bytes = rig_.read(info.id, 0, info.size.value);
    if (bytes) files_[path].settle_to(*bytes);
  }

  void discard_one(const std::string& path) {
    const auto info = rig_.store().find(path);
    if (!info) return;
    const auto stripe = rig_.place(info->id, pattern(3000, 9));
    if (stripe) rig_.store().discard(*stripe);
  }

  void create_and_remove() {
    const auto made = rig_.create("/c", "S1");
    if (!made) return;
    const auto written = rig_.write(made->id, 0, pattern(100, 7));
    EXPECT_TRUE(written || !written.error().message.empty());
    const auto removed = rig_.store().remove(made->id);
    EXPECT_TRUE(removed || !removed.error().message.empty());
  }

  // With `must`, every read has to succeed; without, what succeeds has to be right.
  void read_all(bool must) {
    for (auto& [path, oracle] : files_) {
      const auto info = rig_.store().find(path);
      if (!info && !must) continue;
      ASSERT_TRUE(info) << info.error().message;
      const auto bytes = rig_.read(info->id, 0, info->size.value);
      if (!bytes && !must) continue;
      ASSERT_TRUE(bytes) << path << ": " << bytes.error().message;
      oracle.settle_to(*bytes);
    }
  }

  StoreRig& rig_;
  std::map<std::string, Oracle> files_;
};

struct Sweep {
  std::string label;
  ErrorCode code;
  When when;
  bool crash;
};

class ErrorSweep : public testing::TestWithParam<Sweep> {};

TEST_P(ErrorSweep, leaves_versions_as_before_or_after_and_nothing_leaked) {
  const Sweep& sweep = GetParam();
  uint64_t swept = 0;
  for (uint64_t n = 1; n < 2000; ++n) {
    SCOPED_TRACE("operation " + std::to_string(n));
    StoreRig rig(4);
    ASSERT_TRUE(rig.reopen());
    Work work(rig);
    work.prepare();
    if (sweep.crash) {
      rig.plan().crash_at_nth(n, sweep.when);
    } else {
      rig.plan().fail_nth(n, sweep.code, sweep.when);
    }
    work.run();
    const bool clean = !rig.plan().fired();
    rig.plan().disarm();
    if (!sweep.crash) work.verify();  // in the same run
    ASSERT_TRUE(rig.reopen());
    work.verify();
    ASSERT_TRUE(rig.store().collect_orphans({}));
    work.verify_nothing_leaked();
    work.verify();
    if (HasFailure()) return;
    if (clean) break;
    ++swept;
  }
  EXPECT_GT(swept, 50u) << "the work has many operations";
  EXPECT_LT(swept, 1000u) << "and an end";
}

INSTANTIATE_TEST_SUITE_P(Faults, ErrorSweep,
                         testing::Values(Sweep{"io_error", ErrorCode::kIo, When::kBefore, false},
                                         Sweep{"no_space", ErrorCode::kNoSpace, When::kBefore, false},
                                         Sweep{"unavailable", ErrorCode::kUnavailable, When::kBefore, false},
                                         Sweep{"done_but_reported_failed", ErrorCode::kIo, When::kAfter,
                                               false},
                                         Sweep{"crash_before", ErrorCode::kIo, When::kBefore, true},
                                         Sweep{"crash_after", ErrorCode::kIo, When::kAfter, true}),
                         [](const auto& param_info) { return param_info.param.label; });

// Recovery itself may fail or die at any of its operations; the next one puts all right.
TEST(ErrorSweepOfRecovery, orphan_collection_can_fail_anywhere) {
  for (uint64_t n = 1; n < 1000; ++n) {
    SCOPED_TRACE("operation " + std::to_string(n));
    StoreRig rig(4);
    ASSERT_TRUE(rig.reopen());
    Work work(rig);
    work.prepare();
    const ContainerId id = rig.store().find("/a")->id;
    ASSERT_TRUE(rig.place(id, pattern(1000, 20)));
    const StripeId staged = rig.place(id, pattern(1000, 21)).value();
    ASSERT_TRUE(rig.reopen());
    rig.plan().crash_at_nth(n);
    const auto collected = rig.store().collect_orphans({staged});
    const bool clean = !rig.plan().fired();
    EXPECT_TRUE(collected || !clean);
    rig.plan().disarm();
    ASSERT_TRUE(rig.reopen());
    const auto again = rig.store().collect_orphans({staged});
    ASSERT_TRUE(again) << again.error().message;
    work.verify();
    Bytes out(1000);
    ASSERT_TRUE(rig.store().read_stripe(staged, 0, out));
    EXPECT_EQ(out, pattern(1000, 21));
    rig.store().discard(staged);
    work.verify_nothing_leaked();
    if (clean) {
      EXPECT_GT(n, 10u);
      return;
    }
  }
  FAIL() << "never clean";
}

// Healing fails or dies at any of its operations; what it reports as done is done, and the next one ends it.
TEST(ErrorSweepOfHealing, can_fail_anywhere) {
  for (const bool crash : {false, true}) {
    for (uint64_t n = 1;; ++n) {
      SCOPED_TRACE("operation " + std::to_string(n) + (crash ? ", crash" : ""));
      ASSERT_LT(n, 1000u) << "never clean";
      StoreRig rig(4);
      ASSERT_TRUE(rig.reopen());
      Work work(rig);
      rig.target(2).set_missing(true);
      rig.target(3).set_missing(true);
      ASSERT_TRUE(rig.create("/wide", "EC_2P1"));
      ASSERT_TRUE(rig.write(rig.store().find("/wide")->id, 0, pattern(90'000, 8)));
      work.prepare();
      rig.target(2).set_missing(false);
      rig.target(3).set_missing(false);
      if (crash) {
        rig.plan().crash_at_nth(n);
      } else {
        rig.plan().fail_nth(n, ErrorCode::kIo);
      }
      const auto healed = rig.store().heal([] { return false; });
      const bool clean = !rig.plan().fired();
      EXPECT_TRUE(!clean || (healed && *healed > 0));
      rig.plan().disarm();
      if (crash) {
        ASSERT_TRUE(rig.reopen());
        ASSERT_TRUE(rig.store().collect_orphans({}));
      }
      work.verify();
      work.verify_nothing_leaked();
      EXPECT_EQ(rig.store().missing_shards(), 0u);
      if (HasFailure()) return;
      if (clean) break;
    }
  }
}

// A publication that the metastore did, yet reported as failed, and whose root cannot be asked for: the
// caller keeps its stripes, publishes again, and all is well.
TEST(OutcomeUnknown, publishing_again_settles_it) {
  StoreRig rig(3);
  ASSERT_TRUE(rig.reopen());
  const ContainerId id = rig.create("/a", "EC_2P1").value().id;
  const StripeId old = rig.write(id, 0, pattern(1000, 1)).value();
  const StripeId stripe = rig.place(id, pattern(1000, 2)).value();
  Publication step;
  step.from = Epoch(1);
  step.to = Epoch(2);
  step.size = Length(1000);
  step.extents.push_back({{Offset(0), Offset(1000)}, {stripe, 0}});
  rig.plan().crash_at_nth(1, When::kAfter);
  const auto unknown = rig.store().publish(id, step);
  rig.plan().disarm();
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(unknown.error().outcome_unknown);
  EXPECT_EQ(rig.stripes(), (std::set{old, stripe}));
  EXPECT_TRUE(rig.store().publish(id, step));
  EXPECT_EQ(rig.read(id, 0, 1000).value(), pattern(1000, 2));
  EXPECT_EQ(rig.stripes(), std::set{stripe}) << "the overwritten one went, late";
}

}  // namespace
}  // namespace sluice::storage
