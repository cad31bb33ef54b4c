// Crash replay: a random workload over a simulated medium, cut off at every flush, reopened, and compared
// with an oracle that knows what was acknowledged and what was in flight.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/rng.h"
#include "burst_buffer/drain.h"
#include "burst_buffer/fake_sink.h"
#include "burst_buffer/hot_tier.h"
#include "burst_buffer/sim_domain.h"

namespace sluice::burst_buffer {
namespace {

constexpr size_t kPoolBytes = 192 * 1024;
constexpr uint64_t kStripeBytes = 1500;
constexpr uint64_t kFileBytes = 6000;
constexpr uint64_t kFiles = 2;

struct Step {
  bool is_truncate = false;
  uint64_t size = 0;
  std::vector<Extent> extents;
  std::string text;
  uint64_t record = 0;  // 0: not acknowledged
};

std::string applied(std::string bytes, const Step& step) {
  if (step.is_truncate) {
    bytes.resize(step.size, '0');
    return bytes;
  }
  uint64_t offset = 0;
  for (const Extent& extent : step.extents) {
    const uint64_t length = extent.length().value;
    if (bytes.size() < extent.end.value) bytes.resize(extent.end.value, '0');
    bytes.replace(extent.begin.value, length, step.text, offset, length);
    offset += length;
  }
  return bytes;
}

struct OracleTxn {
  ContainerId file;
  std::vector<Step> steps;
  bool begin_durable = false;
  size_t durable_steps = 0;  // acknowledged by a persist()
};

enum class Doing { kNothing, kBegin, kStep, kCommit, kAbort, kPersist, kDrain };

// What must be there, whatever happens to the call in hand.
struct Oracle {
  std::map<ContainerId, std::vector<std::string>> versions;  // by epoch; the last is acknowledged
  std::map<TxnId, OracleTxn> open;
  std::map<TxnId, ContainerId> ended_empty;  // a power loss may bring them back, as empty as they were
  Doing doing = Doing::kNothing;
  TxnId doing_txn;
  Step doing_step;

  Oracle() {
    for (uint64_t f = 1; f <= kFiles; ++f) versions[ContainerId(f)] = {""};
  }
};

enum class Crash { kPowerLoss, kProcess };

// What a reader puts together from the hot tier, its stripes and the published version.
std::string read_file(HotTier& hot, const FakeSink& sink, ContainerId file, std::optional<TxnId> txn) {
  auto view = hot.view(file, txn, {Offset(0), Offset(kFileBytes)});
  EXPECT_TRUE(view);
  if (!view) return view.error().message;
  std::string below = sink.contents(file);
  below.resize(kFileBytes, '0');
  std::string text;
  for (const Segment& segment : view->segments) {
    const uint64_t length = segment.extent.length().value;
    EXPECT_EQ(segment.extent.begin.value, text.size());
    switch (segment.kind) {
      case Segment::Kind::kBytes:
        text.append(reinterpret_cast<const char*>(segment.bytes.data()), segment.bytes.size());
        break;
      case Segment::Kind::kStripe:
        text += sink.stripe_contents(segment.stripe, segment.stripe_offset, length);
        break;
      case Segment::Kind::kBelow:
        text += below.substr(segment.extent.begin.value, length);
        break;
      case Segment::Kind::kZeros:
        text.append(length, '0');
        break;
    }
  }
  text.resize(hot.size(file, txn, sink.published(file).size).value, '?');
  return text;
}

Result<std::unique_ptr<HotTier>> open_tier(const std::shared_ptr<SimDomain>& domain, FakeSink& sink) {
  HotTier::Options options{"sim.pool", kPoolBytes,
                           [&sink](ContainerId file) { return std::optional(sink.published(file)); }};
  options.least_clean_bytes = 1;
  options.most_parts_in_log = 1;  // two are a table
  return HotTier::open(options, domain);
}

// Opens what a crash left and checks all of it.
class Aftermath {
 public:
  Aftermath(const Oracle& oracle, const std::shared_ptr<SimDomain>& crashed, const FakeSink& sink,
            Crash crash)
      : oracle_(oracle), crash_(crash), sink_(sink.copy()) {
    auto opened = open_tier(crashed, *sink_);
    EXPECT_TRUE(opened) << opened.error().message;
    if (!opened) return;
    hot_ = std::move(*opened);
    sink_->collect_orphans(hot_->stripes_in_use());
  }

  void check() {
    if (!hot_) return;
    for (const auto& [file, versions] : oracle_.versions) check_committed(file, versions);
    check_open();
  }

  // Everything open is committed, everything is drained: it must arrive, and nothing may be left behind.
  void finish() {
    if (!hot_) return;
    for (const auto& open : hot_->open_transactions()) {
      const std::string before = read_file(*hot_, *sink_, open.container, open.txn);
      ASSERT_TRUE(hot_->commit(open.txn));
      EXPECT_EQ(read_file(*hot_, *sink_, open.container, std::nullopt), before);
      break;  // one: the others' views change with it
    }
    for (const auto& open : hot_->open_transactions()) ASSERT_TRUE(hot_->abort(open.txn));
    std::map<ContainerId, std::string> expected;
    for (const auto& [file, versions] : oracle_.versions)
      expected[file] = read_file(*hot_, *sink_, file, std::nullopt);
    const auto drain = Drain::create(*hot_, *sink_, {});
    const auto drained = drain->run_once(false);
    ASSERT_TRUE(drained) << drained.error().message;
    for (const auto& [file, text] : expected) EXPECT_EQ(sink_->contents(file), text);
    EXPECT_EQ(hot_->usage().bytes_used, 0u);
    EXPECT_EQ(hot_->unpublished_bytes(), 0u);
  }

 private:
  bool in_flight(Doing doing, TxnId txn) const { return oracle_.doing == doing && oracle_.doing_txn == txn; }

  void check_committed(ContainerId file, const std::vector<std::string>& versions) {
    const uint64_t acknowledged = versions.size() - 1;
    const uint64_t found = hot_->committed(file, sink_->published(file).epoch).value;
    std::vector<std::string> possible = versions;
    const auto committing = oracle_.open.find(oracle_.doing_txn);
    if (oracle_.doing == Doing::kCommit && committing != oracle_.open.end() &&
        committing->second.file == file) {
      std::string next = versions.back();
      for (const Step& step : committing->second.steps) next = applied(std::move(next), step);
      possible.push_back(next);
    }
    ASSERT_GE(found, acknowledged);
    ASSERT_LT(found, possible.size()) << "an epoch that nobody committed";
    const std::string seen = read_file(*hot_, *sink_, file, std::nullopt);
    expect_text(seen, possible[found]);
    committed_[file] = seen;
  }

  // Long texts are compared here, so that a difference is a line and not two pages.
  static void expect_text(const std::string& seen, const std::string& expected) {
    if (seen == expected) return;
    EXPECT_EQ(seen.size(), expected.size());
    const auto at = std::mismatch(seen.begin(), seen.end(), expected.begin(), expected.end());
    const auto offset = at.first - seen.begin();
    ADD_FAILURE() << "bytes differ from " << offset << " on: " << seen.substr(static_cast<size_t>(offset), 20)
                  << " is not " << expected.substr(static_cast<size_t>(offset), 20);
  }

  void check_open() {
    std::map<TxnId, TransactionInfo> found;
    for (const auto& open : hot_->open_transactions()) found[open.txn] = open;
    for (const auto& [txn, info] : found) {
      if (in_flight(Doing::kBegin, txn)) continue;
      if (const auto empty = oracle_.ended_empty.find(txn); empty != oracle_.ended_empty.end()) {
        EXPECT_EQ(crash_, Crash::kPowerLoss);
        expect_text(read_file(*hot_, *sink_, empty->second, txn), committed_[empty->second]);
        continue;
      }
      ASSERT_TRUE(oracle_.open.contains(txn)) << "transaction " << txn.value << " came back";
    }
    for (const auto& [txn, expected] : oracle_.open) {
      const bool may_be_gone = in_flight(Doing::kCommit, txn) || in_flight(Doing::kAbort, txn) ||
                               (crash_ == Crash::kPowerLoss && !expected.begin_durable);
      if (!found.contains(txn)) {
        EXPECT_TRUE(may_be_gone) << "transaction " << txn.value << " is gone";
        continue;
      }
      check_steps(txn, expected, found[txn]);
    }
  }

  void check_steps(TxnId txn, const OracleTxn& expected, const TransactionInfo& info) {
    EXPECT_EQ(info.container, expected.file);
    std::vector<Step> steps = expected.steps;
    if (in_flight(Doing::kStep, txn)) steps.push_back(oracle_.doing_step);
    std::string text = committed_[expected.file];
    size_t survived = 0;
    uint64_t last_acknowledged = 0;
    for (const Step& step : steps) {
      // The step in flight has no number yet: it is there when a number is that belongs to no other.
      const bool there =
          step.record != 0 ? step.record <= info.last_record : info.last_record > last_acknowledged;
      if (!there) break;
      last_acknowledged = step.record;
      text = applied(std::move(text), step);
      ++survived;
    }
    EXPECT_GE(survived, crash_ == Crash::kProcess ? expected.steps.size() : expected.durable_steps);
    if (survived < expected.steps.size()) {
      EXPECT_FALSE(hot_->survived(expected.steps[survived].record)) << "a loss that survived() denies";
    }
    if (survived > 0 && crash_ == Crash::kProcess && steps[survived - 1].record != 0) {
      EXPECT_TRUE(hot_->survived(steps[survived - 1].record));
    }
    expect_text(read_file(*hot_, *sink_, expected.file, txn), text);
  }

  const Oracle& oracle_;
  const Crash crash_;
  std::unique_ptr<FakeSink> sink_;
  std::unique_ptr<HotTier> hot_;
  std::map<ContainerId, std::string> committed_;  // as found, and found good
};

// A random but replayable run. Stops at the first call that fails and leaves it in flight.
class Workload {
 public:
  explicit Workload(uint64_t seed)
      : rng_(seed), sink_(kStripeBytes), domain_(std::make_shared<SimDomain>(kPoolBytes)) {}

  Result<> open() {
    auto opened = open_tier(domain_, sink_);
    if (!opened) return fail(opened.error());
    hot_ = std::move(*opened);
    drain_ = Drain::create(*hot_, sink_, {});
    return {};
  }
  // `between` is called between any two calls.
  Result<> run(int calls, const std::function<void()>& between = {}) {
    for (int i = 0; i < calls; ++i) {
      if (auto ok = call(); !ok) return ok;
      oracle_.doing = Doing::kNothing;
      if (between) between();
    }
    return {};
  }

  SimDomain& domain() { return *domain_; }
  FakeSink& sink() { return sink_; }
  HotTier& hot() { return *hot_; }
  Drain& drain() { return *drain_; }
  const Oracle& oracle() const { return oracle_; }
  uint64_t commits() const { return commits_; }

 private:
  Result<> call() {
    const uint64_t choice = rng_.below(20);
    if (oracle_.open.empty() || (choice == 0 && oracle_.open.size() < 3)) return begin();
    auto at = oracle_.open.begin();
    std::advance(at, rng_.below(oracle_.open.size()));
    const TxnId txn = at->first;
    if (choice < 10) return write(txn);
    if (choice < 12) return truncate(txn);
    if (choice < 15) return commit(txn);
    if (choice == 15) return abort(txn);
    if (choice < 18) return persist();
    return drain_round(choice == 19);
  }

  Result<> begin() {
    const TxnId txn(next_txn_++);
    const ContainerId file(1 + rng_.below(kFiles));
    oracle_.doing = Doing::kBegin;
    oracle_.doing_txn = txn;
    if (auto ok = hot_->begin(txn, file, SessionId(1)); !ok) return ok;
    oracle_.open[txn].file = file;
    return {};
  }

  Result<> write(TxnId txn) {
    Step step;
    for (uint64_t i = 1 + rng_.below(3); i > 0; --i) {
      const uint64_t begin = rng_.below(kFileBytes);
      const uint64_t length = 1 + rng_.below(std::min<uint64_t>(kFileBytes - begin, 2000));
      step.extents.push_back(Extent::at(Offset(begin), Length(length)));
      step.text.append(length, static_cast<char>('A' + rng_.below(58)));
    }
    oracle_.doing = Doing::kStep;
    oracle_.doing_txn = txn;
    oracle_.doing_step = step;
    auto slab = hot_->reserve(Length(step.text.size()));
    if (!slab) return fail(slab.error());
    std::memcpy(hot_->bytes(*slab).data(), step.text.data(), step.text.size());
    const auto record = hot_->write(txn, step.extents, *slab, block_checksums(hot_->bytes(*slab)));
    return acknowledge(txn, step, record);
  }

  Result<> truncate(TxnId txn) {
    Step step;
    step.is_truncate = true;
    step.size = rng_.below(kFileBytes);
    oracle_.doing = Doing::kStep;
    oracle_.doing_txn = txn;
    oracle_.doing_step = step;
    return acknowledge(txn, step, hot_->truncate(txn, Length(step.size)));
  }

  Result<> acknowledge(TxnId txn, Step step, const Result<uint64_t>& record) {
    if (!record) return fail(record.error());
    step.record = *record;
    oracle_.open[txn].steps.push_back(std::move(step));
    return {};
  }

  Result<> commit(TxnId txn) {
    oracle_.doing = Doing::kCommit;
    oracle_.doing_txn = txn;
    const auto info = hot_->commit(txn);
    if (!info) return fail(info.error());
    const OracleTxn& done = oracle_.open[txn];
    auto& versions = oracle_.versions[done.file];
    if (!done.steps.empty()) {
      std::string next = versions.back();
      for (const Step& step : done.steps) next = applied(std::move(next), step);
      versions.push_back(next);
    } else {
      oracle_.ended_empty[txn] = done.file;
    }
    EXPECT_EQ(info->epoch.value, versions.size() - 1);
    EXPECT_EQ(info->size.value, versions.back().size());
    oracle_.open.erase(txn);
    ++commits_;
    return {};
  }

  Result<> abort(TxnId txn) {
    oracle_.doing = Doing::kAbort;
    oracle_.doing_txn = txn;
    if (auto ok = hot_->abort(txn); !ok) return ok;
    oracle_.open.erase(txn);
    return {};
  }

  Result<> persist() {
    oracle_.doing = Doing::kPersist;
    if (auto ok = hot_->persist(); !ok) return ok;
    for (auto& [txn, open] : oracle_.open) {
      open.begin_durable = true;
      open.durable_steps = open.steps.size();
    }
    return {};
  }

  Result<> drain_round(bool include_open) {
    oracle_.doing = Doing::kDrain;
    return drain_->run_once(include_open);
  }

  SeededRng rng_;
  FakeSink sink_;
  std::shared_ptr<SimDomain> domain_;
  std::unique_ptr<HotTier> hot_;
  std::unique_ptr<Drain> drain_;
  Oracle oracle_;
  uint64_t next_txn_ = 1;
  uint64_t commits_ = 0;
};

TEST(CrashReplay, a_power_loss_at_any_flush_keeps_what_was_acknowledged_and_shows_nothing_else) {
  uint64_t crashes = 0;
  for (uint64_t seed = 1; seed <= 5 && !::testing::Test::HasFailure(); ++seed) {
    Workload workload(seed);
    workload.domain().on_persist([&] {
      for (uint64_t variant = 0; variant < 3 && !::testing::Test::HasFailure(); ++variant) {
        ++crashes;
        SCOPED_TRACE("workload " + std::to_string(seed) + ", crash " + std::to_string(crashes));
        Aftermath after(workload.oracle(), workload.domain().after_power_loss(crashes), workload.sink(),
                        Crash::kPowerLoss);
        after.check();
        if (crashes % 5 == 0) after.finish();
      }
    });
    ASSERT_TRUE(workload.open());
    const auto ran = workload.run(120);
    ASSERT_TRUE(ran) << ran.error().message;
    EXPECT_GT(workload.commits(), 5u);
  }
  EXPECT_GT(crashes, 1000u);
}

TEST(CrashReplay, a_crash_of_the_process_at_any_flush_or_call_keeps_every_record) {
  uint64_t crashes = 0;
  for (uint64_t seed = 101; seed <= 106 && !::testing::Test::HasFailure(); ++seed) {
    Workload workload(seed);
    const auto crash = [&] {
      if (::testing::Test::HasFailure()) return;
      ++crashes;
      SCOPED_TRACE("workload " + std::to_string(seed) + ", crash " + std::to_string(crashes));
      Aftermath after(workload.oracle(), workload.domain().after_process_crash(), workload.sink(),
                      Crash::kProcess);
      after.check();
      if (crashes % 5 == 0) after.finish();
    };
    workload.domain().on_persist(crash);
    ASSERT_TRUE(workload.open());
    const auto ran = workload.run(150, crash);
    ASSERT_TRUE(ran) << ran.error().message;
  }
  EXPECT_GT(crashes, 1000u);
}

TEST(CrashReplay, a_crash_during_recovery_is_recovered_from) {
  uint64_t crashes = 0;
  for (uint64_t seed = 201; seed <= 204; ++seed) {
    Workload workload(seed);
    ASSERT_TRUE(workload.open());
    ASSERT_TRUE(workload.run(100));
    for (uint64_t variant = 0; variant < 10 && !::testing::Test::HasFailure(); ++variant) {
      const auto first = workload.domain().after_power_loss(variant);
      const auto sink = workload.sink().copy();
      first->on_persist([&] {
        SCOPED_TRACE("workload " + std::to_string(seed) + ", crash " + std::to_string(++crashes));
        Aftermath after(workload.oracle(), first->after_power_loss(crashes), *sink, Crash::kPowerLoss);
        after.check();
      });
      ASSERT_TRUE(open_tier(first, *sink));
    }
  }
  EXPECT_GT(crashes, 100u);
}

TEST(ErrorSweep, a_flush_that_fails_stops_changes_and_a_restart_finds_all_that_was_acknowledged) {
  uint64_t failures = 0;
  for (uint64_t failing = 0; !::testing::Test::HasFailure(); ++failing) {
    SCOPED_TRACE("flush " + std::to_string(failing));
    Workload workload(301);
    workload.domain().fail_persist(failing);
    const auto opened = workload.open();
    const auto ran = opened ? workload.run(100) : opened;
    if (ran) {
      ASSERT_LE(workload.domain().persists(), failing);  // clean: it never came to that flush
      break;
    }
    ++failures;
    EXPECT_EQ(ran.error().code, ErrorCode::kIo) << ran.error().message;
    if (opened) {
      EXPECT_FALSE(workload.hot().begin(TxnId(100'000), ContainerId(1), SessionId(1)));
      EXPECT_FALSE(workload.hot().reserve(Length(1)));
      EXPECT_FALSE(workload.hot().persist());
      for (const auto& [file, versions] : workload.oracle().versions) {
        const std::string seen = read_file(workload.hot(), workload.sink(), file, std::nullopt);
        EXPECT_EQ(seen, versions.back());
      }
    }
    for (uint64_t variant = 0; variant < 3; ++variant) {
      Aftermath after(workload.oracle(), workload.domain().after_power_loss(failing * 3 + variant),
                      workload.sink(), Crash::kPowerLoss);
      after.check();
      after.finish();
    }
  }
  EXPECT_GT(failures, 50u);
}

TEST(ErrorSweep, a_step_of_the_sink_that_fails_costs_nothing_but_time) {
  uint64_t failures = 0;
  for (uint64_t failing = 0; !::testing::Test::HasFailure(); ++failing) {
    SCOPED_TRACE("step " + std::to_string(failing));
    Workload workload(302);
    uint64_t steps = 0;
    bool failed = false;
    workload.sink().on_step([&](const std::string&) -> Result<> {
      if (steps++ != failing) return {};
      failed = true;
      return fail(ErrorCode::kUnavailable, "the simulated sink failed");
    });
    ASSERT_TRUE(workload.open());
    for (int round = 0; round < 100; ++round) {
      const auto ran = workload.run(1);
      if (!ran) {
        EXPECT_EQ(ran.error().message, "the simulated sink failed");
        EXPECT_TRUE(failed);
      }
      for (const auto& [file, versions] : workload.oracle().versions) {
        ASSERT_EQ(read_file(workload.hot(), workload.sink(), file, std::nullopt), versions.back());
      }
    }
    // The step that fails may be one of the last round.
    if (!workload.drain().run_once(false)) {
      ASSERT_TRUE(workload.drain().run_once(false));
    }
    for (const auto& [file, versions] : workload.oracle().versions) {
      EXPECT_EQ(workload.sink().contents(file), versions.back());
    }
    if (!failed) break;
    ++failures;
  }
  EXPECT_GT(failures, 10u);
}

}  // namespace
}  // namespace sluice::burst_buffer
