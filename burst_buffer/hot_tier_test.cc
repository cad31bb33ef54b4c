#include "burst_buffer/hot_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "base/checksum.h"
#include "base/os.h"
#include "burst_buffer/pmem/pmem_domain.h"
#include "burst_buffer/sim_domain.h"
#include "burst_buffer/staging_log.h"

namespace sluice::burst_buffer {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPoolBytes = 1024 * 1024;
const ContainerId kFile(7);
const SessionId kSession(3);

class HotTierTest : public ::testing::Test {
 protected:
  HotTierTest() { open(std::make_shared<SimDomain>(kPoolBytes)); }

  void open(std::shared_ptr<SimDomain> domain) {
    hot_.reset();
    domain_ = std::move(domain);
    HotTier::Options options{"test.pool", kPoolBytes, {}};
    options.on_change = [this](ContainerId container) { changed_.push_back(container); };
    if (published_) options.published = [this](ContainerId) { return published_; };
    auto opened = HotTier::open(options, domain_);
    ASSERT_TRUE(opened) << opened.error().message;
    hot_ = std::move(*opened);
  }
  void restart() { open(domain_->after_process_crash()); }
  void lose_power(uint64_t seed) { open(domain_->after_power_loss(seed)); }

  TxnId begin(uint64_t id, ContainerId container = kFile) {
    const auto begun = hot_->begin(TxnId(id), container, kSession);
    EXPECT_TRUE(begun) << begun.error().message;
    return TxnId(id);
  }
  Result<uint64_t> put(TxnId txn, uint64_t at, std::string_view text) {
    return put_list(txn, {{Extent::at(Offset(at), Length(text.size()))}}, text);
  }
  Result<uint64_t> put_list(TxnId txn, std::vector<Extent> extents, std::string_view text) {
    auto slab = hot_->reserve(Length(text.size()));
    if (!slab) return fail(slab.error());
    std::memcpy(hot_->bytes(*slab).data(), text.data(), text.size());
    return hot_->write(txn, extents, *slab, block_checksums(hot_->bytes(*slab)));
  }
  // As a reader sees it: '.' for below, '0' for zeros, '#' for a stripe.
  std::string get(std::optional<TxnId> txn, uint64_t begin, uint64_t end, ContainerId container = kFile) {
    auto view = hot_->view(container, txn, {Offset(begin), Offset(end)});
    if (!view) return view.error().message;
    std::string text;
    for (const Segment& segment : view->segments) {
      EXPECT_EQ(segment.extent.begin.value, begin + text.size());
      const size_t length = segment.extent.length().value;
      switch (segment.kind) {
        case Segment::Kind::kBytes:
          text.append(reinterpret_cast<const char*>(segment.bytes.data()), segment.bytes.size());
          break;
        case Segment::Kind::kStripe:
          text.append(length, '#');
          break;
        case Segment::Kind::kBelow:
          text.append(length, '.');
          break;
        case Segment::Kind::kZeros:
          text.append(length, '0');
          break;
      }
    }
    return text;
  }
  CommitInfo commit(TxnId txn) {
    const auto info = hot_->commit(txn);
    EXPECT_TRUE(info) << info.error().message;
    return info ? *info : CommitInfo{};
  }
  static std::string text_of(const DrainWork::Piece& piece) {
    return {reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size()};
  }

  std::optional<CommitInfo> published_;
  std::shared_ptr<SimDomain> domain_;
  std::vector<ContainerId> changed_;
  std::unique_ptr<HotTier> hot_;
};

TEST_F(HotTierTest, strangers_see_a_write_only_when_it_is_committed) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 2, "abc"));
  EXPECT_EQ(get(txn, 0, 6), "..abc.");
  EXPECT_EQ(get(std::nullopt, 0, 6), "......");
  EXPECT_EQ(hot_->size(kFile, txn, Length(1)), Length(5));
  EXPECT_EQ(hot_->size(kFile, std::nullopt, Length(1)), Length(1));
  const CommitInfo info = commit(txn);
  EXPECT_EQ(info.epoch, Epoch(1));
  EXPECT_EQ(info.size, Length(5));
  EXPECT_EQ(get(std::nullopt, 0, 6), "..abc.");
  EXPECT_EQ(hot_->committed(kFile, Epoch(0)), Epoch(1));
}

TEST_F(HotTierTest, a_record_of_many_extents_is_read_piece_by_piece) {
  const TxnId txn = begin(1);
  const auto at = [](uint64_t b, uint64_t e) { return Extent{Offset(b), Offset(e)}; };
  ASSERT_TRUE(put_list(txn, {at(8, 10), at(0, 3), at(9, 12)}, "abcdefgh"));
  EXPECT_EQ(get(txn, 0, 13), "cde.....afgh.");
  commit(txn);
  restart();
  EXPECT_EQ(get(std::nullopt, 0, 13), "cde.....afgh.");
}

TEST_F(HotTierTest, a_request_that_makes_no_sense_is_refused_and_its_slab_is_free_again) {
  const TxnId txn = begin(1);
  const std::vector<Extent> none;
  const std::vector<Extent> short_by_one{Extent::at(Offset(0), Length(3))};
  const std::vector<Extent> empty{Extent::at(Offset(0), Length(4)), Extent::at(Offset(9), Length(0))};
  for (const auto& extents : {none, short_by_one, empty}) {
    const auto written = put_list(txn, extents, "abcd");
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(put(TxnId(99), 0, "x").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(hot_->begin(txn, kFile, kSession).error().code, ErrorCode::kExists);
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
}

TEST_F(HotTierTest, a_commit_answers_the_same_again_until_its_epoch_is_drained) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  const CommitInfo first = commit(txn);
  EXPECT_EQ(commit(txn).epoch, first.epoch);
  restart();
  EXPECT_EQ(commit(txn).size, first.size);
  ASSERT_TRUE(hot_->drained(kFile, first.epoch));
  EXPECT_EQ(hot_->commit(txn).error().code, ErrorCode::kNotFound);
}

TEST_F(HotTierTest, an_empty_transaction_commits_without_an_epoch) {
  EXPECT_EQ(commit(begin(1)).epoch, Epoch(0));
  const TxnId second = begin(2);
  ASSERT_TRUE(put(second, 0, "abc"));
  EXPECT_EQ(commit(second).epoch, Epoch(1));
  EXPECT_EQ(commit(begin(3)).epoch, Epoch(1));
  EXPECT_EQ(commit(TxnId(3)).size, Length(3));
}

TEST_F(HotTierTest, an_aborted_transaction_leaves_nothing) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  ASSERT_TRUE(hot_->abort(txn));
  EXPECT_EQ(get(std::nullopt, 0, 3), "...");
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  EXPECT_TRUE(hot_->open_transactions().empty());
}

TEST_F(HotTierTest, a_truncation_hides_what_is_below_until_it_is_published) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(hot_->truncate(txn, Length(2)));
  ASSERT_TRUE(put(txn, 4, "x"));
  EXPECT_EQ(get(txn, 0, 6), "..00x0");
  const CommitInfo info = commit(txn);
  EXPECT_EQ(get(std::nullopt, 0, 6), "..00x0");
  ASSERT_TRUE(hot_->drained(kFile, info.epoch));
  EXPECT_EQ(get(std::nullopt, 0, 6), "......");
}

TEST_F(HotTierTest, an_open_transaction_is_there_after_a_crash_of_the_process) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  const auto last = put(txn, 1, "XY");
  ASSERT_TRUE(last);
  restart();
  EXPECT_EQ(get(txn, 0, 4), "aXY.");
  EXPECT_EQ(get(std::nullopt, 0, 4), "....");
  const auto open = hot_->open_transactions();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].txn, txn);
  EXPECT_EQ(open[0].container, kFile);
  EXPECT_EQ(open[0].session, kSession);
  EXPECT_EQ(open[0].last_record, *last);
  EXPECT_EQ(hot_->last_record(), *last);
  EXPECT_EQ(commit(txn).size, Length(3));
}

TEST_F(HotTierTest, numbers_of_records_that_a_power_loss_took_are_not_given_again) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "kept"));
  ASSERT_TRUE(hot_->persist());
  const auto lost = put(txn, 8, "lost");
  ASSERT_TRUE(lost);
  bool lost_once = false;
  const auto crashed = domain_;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(seed);
    open(crashed->after_power_loss(seed));
    const bool survived = hot_->last_record() >= *lost;
    EXPECT_EQ(hot_->survived(*lost), survived);
    lost_once = lost_once || !survived;
    EXPECT_EQ(get(txn, 0, 12), survived ? "kept....lost" : "kept........");
    const auto next = put(txn, 20, "next");
    ASSERT_TRUE(next);
    EXPECT_GT(*next, *lost);
    restart();
    EXPECT_EQ(hot_->survived(*lost), survived);  // later records and restarts do not hide a loss
    EXPECT_TRUE(hot_->survived(*next));
  }
  EXPECT_TRUE(lost_once);
}

TEST_F(HotTierTest, bytes_overwritten_in_an_open_transaction_come_back_when_the_newer_ones_are_lost) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, std::string(4096, 'a')));
  ASSERT_TRUE(hot_->persist());
  ASSERT_TRUE(put(txn, 0, std::string(4096, 'b')));
  // The only free room would be the older slab, if it were given away too early.
  while (hot_->usage().bytes_total - hot_->usage().bytes_used >= 4096) {
    const auto slab = hot_->reserve(Length(4096));
    ASSERT_TRUE(slab);
    std::memset(hot_->bytes(*slab).data(), 'z', 4096);
  }
  bool lost_once = false;
  const auto crashed = domain_;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    open(crashed->after_power_loss(seed));
    const std::string seen = get(txn, 0, 4096);
    EXPECT_TRUE(seen == std::string(4096, 'a') || seen == std::string(4096, 'b')) << seed;
    lost_once = lost_once || seen[0] == 'a';
  }
  EXPECT_TRUE(lost_once);
}

TEST_F(HotTierTest, a_full_tier_says_so_and_takes_writes_again_after_the_drain) {
  const TxnId txn = begin(1);
  const std::string big(64 * 1024, 'x');
  uint64_t at = 0;
  Result<uint64_t> written = uint64_t{0};
  while ((written = put(txn, at, big))) at += big.size();
  EXPECT_EQ(written.error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(written.error().retryable);
  EXPECT_THAT(written.error().message, HasSubstr("no room for 64 KiB"));
  EXPECT_THAT(written.error().message, HasSubstr("wait for the drain"));
  EXPECT_EQ(hot_->reserve(Length(kPoolBytes)).error().code, ErrorCode::kTooLarge);
  const CommitInfo info = commit(txn);
  ASSERT_TRUE(hot_->drained(kFile, info.epoch));
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  EXPECT_TRUE(put(begin(2), 0, big));
}

TEST_F(HotTierTest, a_view_keeps_its_bytes_after_they_are_drained) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  const CommitInfo info = commit(txn);
  auto view = hot_->view(kFile, std::nullopt, {Offset(0), Offset(3)});
  ASSERT_TRUE(view);
  ASSERT_TRUE(hot_->drained(kFile, info.epoch));
  EXPECT_GT(hot_->usage().bytes_used, 0u);
  EXPECT_EQ(hot_->usage().bytes_undrained, 0u);
  std::vector<Slab> all;
  while (auto slab = hot_->reserve(Length(512))) {
    std::memset(hot_->bytes(*slab).data(), 'z', 512);
    all.push_back(*slab);
  }
  EXPECT_EQ(static_cast<char>(view->segments[0].bytes[0]), 'a');
  view->pin.reset();
  EXPECT_TRUE(hot_->reserve(Length(512)));
}

TEST_F(HotTierTest, a_pin_may_outlive_the_tier) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  auto view = hot_->view(kFile, txn, {Offset(0), Offset(3)});
  ASSERT_TRUE(view);
  hot_.reset();
  domain_.reset();
  EXPECT_EQ(static_cast<char>(view->segments[0].bytes[2]), 'c');
}

TEST_F(HotTierTest, placed_bytes_free_their_slabs_and_are_read_from_the_stripe) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abcdef"));
  {
    const DrainWork work = hot_->drain_work(kFile, true);
    ASSERT_EQ(work.pieces.size(), 1u);
    EXPECT_EQ(work.from, work.to);
    EXPECT_EQ(work.pieces[0].open_txn, txn);
    EXPECT_EQ(text_of(work.pieces[0]), "abcdef");
    EXPECT_TRUE(hot_->verify(work.pieces[0]));
    const PlacedPiece placed{work.pieces[0].extent, work.pieces[0].place, StripeId(5), 100};
    EXPECT_THAT(*hot_->placed(kFile, std::span(&placed, 1)), ::testing::IsEmpty());
  }
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  ASSERT_TRUE(put(txn, 2, "X"));
  EXPECT_EQ(get(txn, 0, 6), "##X###");
  restart();
  EXPECT_EQ(get(txn, 0, 6), "##X###");
  EXPECT_EQ(hot_->stripes_in_use(), std::set<StripeId>{StripeId(5)});
  auto view = hot_->view(kFile, txn, {Offset(3), Offset(6)});
  EXPECT_EQ(view->segments[0].stripe, StripeId(5));
  EXPECT_EQ(view->segments[0].stripe_offset, 103u);
}

TEST_F(HotTierTest, the_stripe_of_an_aborted_transaction_is_answered_once_to_be_discarded) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  {
    const DrainWork work = hot_->drain_work(kFile, true);
    const PlacedPiece placed{work.pieces[0].extent, work.pieces[0].place, StripeId(5), 0};
    ASSERT_TRUE(hot_->placed(kFile, std::span(&placed, 1)));
  }
  auto view = hot_->view(kFile, txn, {Offset(0), Offset(3)});
  ASSERT_TRUE(hot_->abort(txn));
  EXPECT_THAT(*hot_->placed(kFile, {}), ::testing::IsEmpty());  // a reader still needs it
  view->pin.reset();
  EXPECT_THAT(*hot_->placed(kFile, {}), ::testing::ElementsAre(StripeId(5)));
  EXPECT_THAT(*hot_->placed(kFile, {}), ::testing::IsEmpty());
}

TEST_F(HotTierTest, a_stripe_placed_for_a_transaction_that_aborted_meanwhile_is_answered_at_once) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  const DrainWork work = hot_->drain_work(kFile, true);
  ASSERT_TRUE(hot_->abort(txn));
  const PlacedPiece placed{work.pieces[0].extent, work.pieces[0].place, StripeId(5), 0};
  EXPECT_THAT(*hot_->placed(kFile, std::span(&placed, 1)), ::testing::ElementsAre(StripeId(5)));
}

TEST_F(HotTierTest, a_stripe_offered_for_publication_is_not_answered_before_that_is_settled) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  const CommitInfo first = commit(txn);
  {
    const DrainWork work = hot_->drain_work(kFile, false);
    const PlacedPiece placed{work.pieces[0].extent, work.pieces[0].place, StripeId(5), 0};
    ASSERT_TRUE(hot_->placed(kFile, std::span(&placed, 1)));
    const TxnId second = begin(2);
    ASSERT_TRUE(put(second, 0, "xyz"));
    commit(second);
    EXPECT_THAT(*hot_->placed(kFile, {}), ::testing::IsEmpty());
    EXPECT_FALSE(hot_->usage().dead_stripes);
    ASSERT_TRUE(hot_->drained(kFile, first.epoch));
  }
  EXPECT_EQ(get(std::nullopt, 0, 3), "xyz");
  EXPECT_TRUE(hot_->usage().dead_stripes);
  EXPECT_THAT(*hot_->placed(kFile, {}), ::testing::ElementsAre(StripeId(5)));
  EXPECT_THAT(*hot_->forget(kFile), ::testing::IsEmpty());
}

TEST_F(HotTierTest, recovery_forgets_what_the_storage_tier_published_already) {
  published_ = CommitInfo{Epoch(4), Length(10)};
  open(std::make_shared<SimDomain>(kPoolBytes));
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  EXPECT_EQ(commit(txn).epoch, Epoch(5));
  EXPECT_EQ(hot_->size(kFile, std::nullopt, Length(0)), Length(10));
  published_ = CommitInfo{Epoch(5), Length(10)};
  restart();
  EXPECT_EQ(get(std::nullopt, 0, 3), "...");
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  EXPECT_TRUE(hot_->undrained().empty());
  ASSERT_TRUE(put(begin(2), 0, "abc"));
  EXPECT_EQ(commit(TxnId(2)).epoch, Epoch(6));
}

TEST_F(HotTierTest, recovery_fails_rather_than_drop_a_container_that_cannot_be_asked_about) {
  put(begin(1), 0, "abc").value();
  commit(TxnId(1));
  auto domain = domain_->after_process_crash();
  hot_.reset();
  HotTier::Options options{"test.pool", kPoolBytes, {}};
  options.published = [](ContainerId) -> Result<std::optional<CommitInfo>> {
    return fail(ErrorCode::kBusy, "the metastore is locked");
  };
  EXPECT_EQ(HotTier::open(options, domain).error().code, ErrorCode::kBusy);
  published_ = CommitInfo{Epoch(0), Length(0)};
  open(domain->after_process_crash());
  EXPECT_EQ(get(std::nullopt, 0, 3), "abc");
}

TEST_F(HotTierTest, reconcile_takes_up_a_publication_of_unknown_outcome_and_refuses_a_strangers) {
  published_ = CommitInfo{Epoch(0), Length(0)};
  open(std::make_shared<SimDomain>(kPoolBytes));
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  commit(txn);
  EXPECT_EQ(*hot_->reconcile(kFile), Epoch(0));
  published_ = CommitInfo{Epoch(1), Length(3)};
  EXPECT_EQ(hot_->reconcile(kFile).error().code, ErrorCode::kConflict);  // never offered to the drain
  (void)hot_->drain_work(kFile, false);
  EXPECT_EQ(*hot_->reconcile(kFile), Epoch(1));
  EXPECT_TRUE(hot_->undrained().empty());
}

TEST_F(HotTierTest, a_forgotten_container_leaves_no_bytes_and_no_transactions) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  commit(txn);
  ASSERT_TRUE(put(begin(2), 0, "abc"));
  ASSERT_TRUE(hot_->forget(kFile));
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  EXPECT_TRUE(hot_->open_transactions().empty());
  restart();
  EXPECT_EQ(get(std::nullopt, 0, 3), "...");
  EXPECT_EQ(hot_->commit(TxnId(2)).error().code, ErrorCode::kNotFound);
}

TEST_F(HotTierTest, bytes_damaged_in_the_tier_do_not_pass_verify) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, std::string(3 * kChecksumBlockBytes, 'a')));
  commit(txn);
  DrainWork work = hot_->drain_work(kFile, false);
  ASSERT_TRUE(hot_->verify(work.pieces[0]));
  const_cast<std::byte&>(work.pieces[0].bytes[2 * kChecksumBlockBytes]) ^= std::byte{1};
  const auto verified = hot_->verify(work.pieces[0]);
  EXPECT_EQ(verified.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(verified.error().data_loss);
  // A piece that does not touch the damaged block is good.
  DrainWork::Piece front = work.pieces[0];
  front.extent.end = Offset(kChecksumBlockBytes);
  EXPECT_TRUE(hot_->verify(front));
}

TEST_F(HotTierTest, after_a_failed_flush_changes_are_refused_and_readers_are_served) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 0, "abc"));
  commit(txn);
  const TxnId second = begin(2);
  ASSERT_TRUE(put(second, 0, "xyz"));
  domain_->fail_persist(domain_->persists());
  const auto failed = hot_->commit(second);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kIo);
  EXPECT_EQ(hot_->commit(second).error().code, ErrorCode::kIo);
  EXPECT_EQ(put(second, 0, "q").error().code, ErrorCode::kIo);
  EXPECT_EQ(get(std::nullopt, 0, 3), "abc");
  lose_power(1);
  EXPECT_EQ(get(std::nullopt, 0, 3), "abc");
}

TEST_F(HotTierTest, overwriting_for_ever_in_one_transaction_never_fills_the_log) {
  const TxnId txn = begin(1);
  for (int i = 0; i < 5000; ++i) {
    const auto written = put(txn, static_cast<uint64_t>(i % 7), "0123456789");
    ASSERT_TRUE(written) << i << ": " << written.error().message;
  }
  restart();
  EXPECT_EQ(get(txn, 0, 3).size(), 3u);
}

TEST_F(HotTierTest, a_log_full_of_small_writes_asks_for_the_drain_and_recovers) {
  const TxnId txn = begin(1);
  uint64_t at = 0;
  Result<uint64_t> written = uint64_t{0};
  while ((written = put(txn, at, "small"))) at += 10;
  EXPECT_EQ(written.error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(written.error().retryable);
  EXPECT_GT(at, 1000u);
  restart();
  EXPECT_EQ(get(txn, 0, 12), "small.....sm");
  const CommitInfo info = commit(txn);
  ASSERT_TRUE(hot_->drained(kFile, info.epoch));
  EXPECT_TRUE(put(begin(2), 0, "small"));
}

TEST_F(HotTierTest, many_threads_write_and_read_their_own) {
  std::vector<std::jthread> threads;
  for (uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      const ContainerId container(t);
      const std::string text(1000, static_cast<char>('a' + t));
      for (uint64_t round = 0; round < 60; ++round) {
        const TxnId txn(t * 1000 + round);
        ASSERT_TRUE(hot_->begin(txn, container, kSession));
        ASSERT_TRUE(put(txn, round * 10, text));
        EXPECT_EQ(get(txn, round * 10, round * 10 + 1000, container), text);
        const auto info = hot_->commit(txn);
        ASSERT_TRUE(info);
        EXPECT_EQ(info->epoch, Epoch(round + 1));
        if (round % 3 == 0) {
          ASSERT_TRUE(hot_->drained(container, info->epoch));
        }
        if (round % 7 == 0) {
          ASSERT_TRUE(hot_->persist());
        }
      }
    });
  }
  threads.clear();
  for (uint64_t t = 1; t <= 4; ++t) EXPECT_EQ(hot_->committed(ContainerId(t), Epoch(0)), Epoch(60));
}

TEST(HotTierPool, a_pool_file_is_created_used_and_recovered) {
  auto directory = TemporaryDirectory::create("sluice-hot");
  ASSERT_TRUE(directory);
  const HotTier::Options options{(directory->path() / "hot.pool").string(), 16 << 20, {}};
  {
    auto hot = HotTier::open(options, nullptr);
    ASSERT_TRUE(hot) << hot.error().message;
    ASSERT_TRUE((*hot)->begin(TxnId(1), kFile, kSession));
    auto slab = (*hot)->reserve(Length(100'000));
    ASSERT_TRUE(slab);
    std::memset((*hot)->bytes(*slab).data(), 'q', 100'000);
    const Extent extent = Extent::at(Offset(5), Length(100'000));
    ASSERT_TRUE((*hot)->write(TxnId(1), std::span(&extent, 1), *slab, block_checksums((*hot)->bytes(*slab))));
    ASSERT_TRUE((*hot)->commit(TxnId(1)));
  }
  auto hot = HotTier::open(options, nullptr);
  ASSERT_TRUE(hot) << hot.error().message;
  auto view = (*hot)->view(kFile, std::nullopt, {Offset(5), Offset(100'005)});
  ASSERT_TRUE(view);
  ASSERT_EQ(view->segments.size(), 1u);
  EXPECT_EQ(static_cast<char>(view->segments[0].bytes[99'999]), 'q');
}

TEST_F(HotTierTest, staged_bytes_are_told_with_their_places_or_not_at_all) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 100, "abcdef"));
  ASSERT_TRUE(put(txn, 102, "XY"));
  const std::vector<Extent> inside = {{Offset(101), Offset(106)}, {Offset(100), Offset(102)}};
  auto staged = hot_->staged(kFile, txn, inside);
  ASSERT_TRUE(staged);
  ASSERT_TRUE(*staged);
  std::string text;
  for (const Segment& segment : (*staged)->segments) {
    text.append(reinterpret_cast<const char*>(segment.bytes.data()), segment.bytes.size());
    EXPECT_EQ(segment.bytes.data(), hot_->bytes({segment.area_offset, Length(segment.bytes.size())}).data());
    EXPECT_LE(segment.in_slab + segment.bytes.size(), segment.slab_length);
    EXPECT_EQ(segment.checksums.size(), 1u);
  }
  EXPECT_EQ(text, "bXYefab");
  const std::vector<Extent> beyond = {{Offset(104), Offset(107)}};
  EXPECT_FALSE(*hot_->staged(kFile, txn, beyond)) << "a byte of it lies elsewhere";
  EXPECT_FALSE(*hot_->staged(kFile, std::nullopt, inside)) << "not committed";
  commit(txn);
  EXPECT_TRUE(*hot_->staged(kFile, txn, inside)) << "committed meanwhile";
  EXPECT_FALSE(*hot_->staged(ContainerId(8), std::nullopt, inside));
}

TEST_F(HotTierTest, what_is_staged_behind_the_bytes_asked_for_is_told_up_to_the_first_that_is_not) {
  const TxnId txn = begin(1);
  ASSERT_TRUE(put(txn, 100, "abc"));
  ASSERT_TRUE(put(txn, 103, "def"));
  ASSERT_TRUE(put(txn, 107, "gap before"));
  const std::vector<Extent> asked = {{Offset(100), Offset(102)}};
  const auto told = [&](Extent ahead, size_t most) {
    const auto staged = hot_->staged(kFile, txn, asked, ahead, most);
    std::string text;
    for (const Segment& segment : (*staged)->segments)
      text.append(reinterpret_cast<const char*>(segment.bytes.data()), segment.bytes.size());
    return text;
  };
  EXPECT_EQ(told({Offset(102), Offset(200)}, 9), "abcdef");
  EXPECT_EQ(told({Offset(102), Offset(105)}, 9), "abcde");
  EXPECT_EQ(told({Offset(102), Offset(200)}, 2), "abc");
  EXPECT_EQ(told({Offset(106), Offset(200)}, 9), "ab");
}

TEST_F(HotTierTest, every_change_that_a_reader_may_see_is_told) {
  const auto told = [&] { return std::exchange(changed_, {}) == std::vector<ContainerId>{kFile}; };
  const TxnId txn = begin(1);
  changed_.clear();
  ASSERT_TRUE(put(txn, 0, "abc"));
  EXPECT_TRUE(told());
  ASSERT_TRUE(hot_->truncate(txn, Length(2)));
  EXPECT_TRUE(told());
  commit(txn);
  EXPECT_TRUE(told());
  const TxnId next = begin(2);
  ASSERT_TRUE(put(next, 0, "x"));
  changed_.clear();
  ASSERT_TRUE(hot_->abort(next));
  EXPECT_TRUE(told());
}

TEST_F(HotTierTest, a_slab_that_could_not_be_recorded_is_still_its_fillers) {
  auto slab = hot_->reserve(Length(4));
  ASSERT_TRUE(slab);
  std::memcpy(hot_->bytes(*slab).data(), "abcd", 4);
  const uint64_t used = hot_->usage().bytes_used;
  const std::vector<Extent> extents = {{Offset(0), Offset(4)}};
  EXPECT_FALSE(hot_->record(TxnId(1), extents, *slab, block_checksums(hot_->bytes(*slab))));
  EXPECT_EQ(hot_->usage().bytes_used, used);
  const TxnId txn = begin(1);
  EXPECT_TRUE(hot_->record(txn, extents, *slab, block_checksums(hot_->bytes(*slab))));
  EXPECT_EQ(get(txn, 0, 4), "abcd");
}

}  // namespace
}  // namespace sluice::burst_buffer
