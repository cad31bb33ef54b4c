#include "burst_buffer/clean_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

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
  explicit Rig(uint64_t least_clean_bytes = 1) {
    HotTier::Options options{"test.pool", kPoolBytes, [this](ContainerId c) { return sink.find(c); }};
    options.least_clean_bytes = least_clean_bytes;
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
  void remove(ContainerId file = kFile) {
    sink.remove(file);
    const auto dead = hot->forget(file);
    ASSERT_TRUE(dead);
    for (const StripeId stripe : *dead) sink.discard(stripe);
  }
  // What a reader puts together; `from_hot` is how much of it the hot tier gave.
  std::string read(std::optional<TxnId> txn, uint64_t bytes, uint64_t* from_hot = nullptr,
                   ContainerId file = kFile) {
    auto view = hot->view(file, txn, {Offset(0), Offset(bytes)});
    if (!view) return view.error().message;
    std::string below = sink.contents(file);
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

TEST(CleanCache, a_version_published_past_the_hot_tier_ends_what_is_being_read_for_it) {
  Rig rig;
  rig.write(1, 0, std::string(3000, 'a'));
  rig.drain_all();
  rig.write(2, 5000, "b");
  const auto before = rig.hot->standing(kFile);
  ASSERT_TRUE(rig.sink.publish(kFile, Epoch(1), Epoch(9), Length(0), Length(3000), {}));
  ASSERT_EQ(rig.hot->reconcile(kFile).error().code, ErrorCode::kConflict);
  EXPECT_EQ(rig.hot->usage().bytes_clean, 0u);
  const Extent extent{Offset(0), Offset(3000)};
  const auto slab = rig.hot->reserve(Length(3000));
  ASSERT_TRUE(slab);
  rig.hot->keep(kFile, before, {&extent, 1}, *slab, block_checksums(rig.hot->bytes(*slab)));
  EXPECT_EQ(rig.hot->usage().bytes_clean, 0u);
}

std::shared_ptr<SlabHold> slab_of(uint64_t offset, uint64_t bytes) {
  return std::make_shared<SlabHold>(Slab{offset, Length(bytes)}, std::vector<uint32_t>(), 0, TxnId(0));
}

TEST(CleanCachePieces, what_small_overwrites_leave_of_one_is_not_kept_in_small_rests) {
  constexpr uint64_t kMiB = 1 << 20;
  CleanCache cache(4096);
  cache.keep(kFile, {Offset(0), Offset(kMiB)}, slab_of(0, kMiB), 0);
  cache.changed(kFile, {Offset(8192), Offset(8704)});
  cache.changed(kFile, {Offset(12800), Offset(13312)});
  EXPECT_EQ(cache.pieces(), 3u) << "rests of 8192, 4096 and more bytes";
  for (uint64_t at = 0; at < kMiB; at += 1024) {
    cache.changed(kFile, {Offset(at), Offset(at + 512)});
    ASSERT_LE(cache.pieces(), 3u);
  }
  EXPECT_EQ(cache.pieces(), 0u);
  EXPECT_FALSE(cache.give_up_one());
}

TEST(CleanCachePieces, above_the_limit_what_came_first_is_given_up) {
  constexpr uint64_t kStep = 16384;
  constexpr uint64_t kBytes = (CleanCache::kMaxPieces + 1000) * kStep;
  const ContainerId other(8);
  CleanCache cache(4096);
  cache.keep(kFile, {Offset(0), Offset(kBytes)}, slab_of(0, kBytes), 0);
  cache.keep(other, {Offset(0), Offset(5000)}, slab_of(kBytes, 5000), 0);
  size_t most = 0;
  for (uint64_t at = 0; at < kBytes; at += kStep) {
    cache.changed(kFile, {Offset(at), Offset(at + 512)});
    most = std::max(most, cache.pieces());
  }
  EXPECT_LE(most, CleanCache::kMaxPieces);
  EXPECT_GT(most, CleanCache::kMaxPieces - 10);
  EXPECT_EQ(cache.pieces(), 1u) << "the other's";
  const auto found = cache.fill_in(other, {{{Offset(0), Offset(5000)}, Segment::Kind::kBelow, {}, {}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Segment::Kind::kBytes);
  cache.forget(other);
  EXPECT_EQ(cache.pieces(), 0u);
}

// Some containers of plain strings beside those of the tier. The room of the tier is wanted now and then,
// steps of the sink fail, bytes are read from the storage tier and kept later, and readers have pins
// meanwhile.
class PlainArrays {
 public:
  explicit PlainArrays(uint64_t least_clean_bytes) : rig_(least_clean_bytes) {
    for (auto& file : files_) file.id = ContainerId(next_file_++);
    rig_.sink.on_step([this](const std::string&) -> Result<> {
      if (failing_ == 0 || ++calls_ % failing_ != 0) return {};
      return fail(Error(ErrorCode::kIo, "the step was told to fail").mark_retryable());
    });
  }
  void step() {
    File& file = files_[*rc::gen::inRange<size_t>(0, files_.size())];
    const auto what = *rc::gen::inRange(0, 30);
    if (what < 9) return change(file, what);
    if (what < 12) return end_one(file, /*commit=*/what < 11);
    if (what < 16) return drain();
    if (what < 20) return want_room();
    if (what < 21) return remove(file);
    if (what < 25) return begin_stage_in(file);
    if (what < 28) return end_stage_in();
    if (what < 29) return pin(file);
    if (!pins_.empty()) pins_.erase(pins_.begin());
  }
  void check() {
    for (const File& file : files_) {
      RC_ASSERT(rig_.read(std::nullopt, kBytes, nullptr, file.id) == whole(file.committed));
      for (const auto& [txn, steps] : file.open)
        RC_ASSERT(rig_.read(TxnId(txn), kBytes, nullptr, file.id) == whole(applied(file.committed, steps)));
    }
    for (const Pinned& one : pins_) {
      size_t i = 0;
      for (const Segment& segment : one.view.segments) {
        if (segment.kind == Segment::Kind::kBytes) RC_ASSERT(text_of(segment) == one.texts[i++]);
      }
    }
  }
  void end() {
    pins_.clear();
    failing_ = 0;
    for (File& file : files_) {
      for (const auto& [txn, steps] : file.open) RC_ASSERT(rig_.hot->abort(TxnId(txn)));
    }
    RC_ASSERT(rig_.drain->run_once(false));
    RC_ASSERT(rig_.hot->usage().bytes_used == 0u);
    RC_ASSERT(rig_.hot->usage().bytes_undrained == 0u);
  }

 private:
  static constexpr uint64_t kBytes = 9000;
  using Steps = std::vector<std::pair<uint64_t, std::string>>;  // where, and the bytes; none: a truncation
  struct File {
    ContainerId id;
    std::string committed;
    std::map<uint64_t, Steps> open;
  };
  struct Pinned {
    View view;
    std::vector<std::string> texts;
  };
  struct StageIn {
    ContainerId file;
    HotTier::Standing standing;
    std::vector<Extent> extents;
    std::string text;
  };

  static std::string applied(std::string text, const Steps& steps) {
    for (const auto& [at, bytes] : steps) {
      if (bytes.empty()) {
        text.resize(at, '0');
      } else {
        text.resize(std::max<size_t>(text.size(), at + bytes.size()), '0');
        text.replace(at, bytes.size(), bytes);
      }
    }
    return text;
  }
  static std::string whole(std::string text) {
    text.resize(kBytes, '0');
    return text;
  }
  static std::string text_of(const Segment& segment) {
    return {reinterpret_cast<const char*>(segment.bytes.data()), segment.bytes.size()};
  }

  void change(File& file, int what) {
    auto& open = file.open;
    const auto txn =
        open.empty() || (open.size() < 3 && *rc::gen::inRange(0, 3) == 0)
            ? next_txn_++
            : std::next(open.begin(), *rc::gen::inRange<int>(0, static_cast<int>(open.size())))->first;
    if (!open.contains(txn)) {
      RC_ASSERT(rig_.hot->begin(TxnId(txn), file.id, SessionId(1)));
      open[txn];
    }
    const auto at = *rc::gen::inRange<uint64_t>(0, kBytes - 1);
    if (what == 0) {
      RC_ASSERT(rig_.hot->truncate(TxnId(txn), Length(at)));
      open[txn].emplace_back(at, "");
      return;
    }
    const auto length = *rc::gen::inRange<uint64_t>(1, kBytes - at + 1);
    const std::string text(length, static_cast<char>('a' + *rc::gen::inRange(0, 26)));
    if (rig_.put(txn, at, text)) open[txn].emplace_back(at, text);
  }
  void end_one(File& file, bool commit) {
    if (file.open.empty()) return;
    const auto txn = file.open.begin()->first;
    if (commit) {
      RC_ASSERT(rig_.hot->commit(TxnId(txn)));
      file.committed = applied(file.committed, file.open[txn]);
    } else {
      RC_ASSERT(rig_.hot->abort(TxnId(txn)));
    }
    file.open.erase(txn);
  }
  void drain() {
    failing_ = *rc::gen::inRange<uint64_t>(0, 4);
    (void)rig_.drain->run_once(*rc::gen::arbitrary<bool>());
  }
  void want_room() {
    const auto slab = rig_.hot->reserve(Length(*rc::gen::inRange<uint64_t>(1, kPoolBytes)));
    if (!slab) return;
    std::memset(rig_.hot->bytes(*slab).data(), '!', slab->length.value);
    rig_.hot->cancel(*slab);
  }
  // Its name is free for another container.
  void remove(File& file) {
    rig_.remove(file.id);
    file = {ContainerId(next_file_++), {}, {}};
  }
  // What the storage tier has to tell now of an extent is kept some steps later.
  void begin_stage_in(const File& file) {
    StageIn one{file.id, rig_.hot->standing(file.id), {}, {}};
    const auto begin = *rc::gen::inRange<uint64_t>(0, kBytes - 1);
    const Extent extent{Offset(begin), Offset(*rc::gen::inRange<uint64_t>(begin + 1, kBytes + 1))};
    const std::string below = rig_.sink.contents(file.id);
    const auto view = rig_.hot->view(file.id, std::nullopt, extent);
    RC_ASSERT(view);
    for (const Segment& segment : view->segments) {
      Extent part = segment.extent;
      const uint64_t length = part.length().value;
      if (segment.kind == Segment::Kind::kStripe) {
        one.text += rig_.sink.stripe_contents(segment.stripe, segment.stripe_offset, length);
      } else if (segment.kind == Segment::Kind::kBelow && part.begin.value < below.size()) {
        part.end = std::min(part.end, Offset(below.size()));
        one.text += below.substr(part.begin.value, part.length().value);
      } else {
        continue;
      }
      one.extents.push_back(part);
    }
    if (!one.extents.empty()) stage_ins_.push_back(std::move(one));
  }
  void end_stage_in() {
    if (stage_ins_.empty()) return;
    const auto at = stage_ins_.begin() + *rc::gen::inRange<int>(0, static_cast<int>(stage_ins_.size()));
    const StageIn one = std::move(*at);
    stage_ins_.erase(at);
    const auto slab = rig_.hot->reserve(Length(one.text.size()));
    if (!slab) return;
    std::memcpy(rig_.hot->bytes(*slab).data(), one.text.data(), one.text.size());
    rig_.hot->keep(one.file, one.standing, one.extents, *slab, block_checksums(rig_.hot->bytes(*slab)));
  }
  void pin(const File& file) {
    if (pins_.size() == 3) pins_.erase(pins_.begin());
    auto view = rig_.hot->view(file.id, std::nullopt, {Offset(0), Offset(kBytes)});
    RC_ASSERT(view);
    Pinned one{std::move(*view), {}};
    for (const Segment& segment : one.view.segments) {
      if (segment.kind == Segment::Kind::kBytes) one.texts.push_back(text_of(segment));
    }
    pins_.push_back(std::move(one));
  }

  Rig rig_;
  std::array<File, 2> files_;
  std::vector<StageIn> stage_ins_;
  std::vector<Pinned> pins_;
  uint64_t next_file_ = 1;
  uint64_t next_txn_ = 1;
  uint64_t calls_ = 0;
  uint64_t failing_ = 0;
};

RC_GTEST_PROP(CleanCacheProperty, readers_see_plain_arrays_whatever_is_kept, ()) {
  PlainArrays arrays(*rc::gen::element<uint64_t>(1, 1, 700));
  const auto steps = *rc::gen::inRange(1, 150);
  for (int step = 0; step < steps; ++step) {
    arrays.step();
    arrays.check();
  }
  arrays.end();
}

}  // namespace
}  // namespace sluice::burst_buffer
