// Transactions of more pieces than the log holds: they are placed before their commit, and the log names the
// parts of each stripe by a table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/checksum.h"
#include "burst_buffer/drain.h"
#include "burst_buffer/fake_sink.h"
#include "burst_buffer/hot_tier.h"
#include "burst_buffer/sim_domain.h"

namespace sluice::burst_buffer {
namespace {

constexpr size_t kPoolBytes = 1024 * 1024;
constexpr uint64_t kPiecesAtOnce = 150;
constexpr uint64_t kStride = 2;
const ContainerId kFile(7);
const ContainerId kOther(8);
const TxnId kTxn(1);

class ManyPieces : public ::testing::Test {
 protected:
  ManyPieces() { open(std::make_shared<SimDomain>(kPoolBytes)); }

  Result<> try_open(std::shared_ptr<SimDomain> domain) {
    drain_.reset();
    hot_.reset();
    domain_ = std::move(domain);
    HotTier::Options options{"test.pool", kPoolBytes, [this](ContainerId c) { return sink_.find(c); }};
    auto opened = HotTier::open(options, domain_);
    if (!opened) return fail(opened.error());
    hot_ = std::move(*opened);
    drain_ = Drain::create(*hot_, sink_, {});
    return {};
  }
  void open(std::shared_ptr<SimDomain> domain) {
    const auto opened = try_open(std::move(domain));
    ASSERT_TRUE(opened) << opened.error().message;
  }

  Result<> put(TxnId txn, const std::vector<Extent>& extents, const std::string& text) {
    auto slab = hot_->reserve(Length(text.size()));
    if (!slab) return fail(slab.error());
    std::memcpy(hot_->bytes(*slab).data(), text.data(), text.size());
    if (auto ok = hot_->write(txn, extents, *slab, block_checksums(hot_->bytes(*slab))); !ok)
      return fail(ok.error());
    return {};
  }
  // One-byte pieces number `first` and on, as the file has them in expected_.
  Result<> put_pieces(uint64_t first, uint64_t count, char byte) {
    std::vector<Extent> extents;
    for (uint64_t i = first; i < first + count; ++i) {
      extents.push_back(Extent::at(Offset(i * kStride), Length(1)));
      if (expected_.size() <= i * kStride) expected_.resize(i * kStride + 1, '0');
      expected_[i * kStride] = byte;
    }
    return put(kTxn, extents, std::string(count, byte));
  }
  // Places what is open, and sees that it is a table.
  void place() {
    const size_t before = sink_.stripes().size();
    ASSERT_TRUE(drain_->run_once(true));
    ASSERT_EQ(sink_.stripes().size(), before + 1);
  }
  std::string committed() {
    EXPECT_TRUE(hot_->commit(kTxn));
    EXPECT_TRUE(drain_->run_once(false));
    std::string text = sink_.contents(kFile);
    return text;
  }

  FakeSink sink_{1 << 20};  // nothing here fills a stripe
  std::shared_ptr<SimDomain> domain_;
  std::unique_ptr<HotTier> hot_;
  std::unique_ptr<Drain> drain_;
  std::string expected_;
};

TEST_F(ManyPieces, a_transaction_of_more_pieces_than_the_log_holds_is_taken_and_others_go_on) {
  ASSERT_TRUE(hot_->begin(kTxn, kFile, SessionId(1)));
  int full = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    auto ok = put_pieces(i * kPiecesAtOnce, kPiecesAtOnce, static_cast<char>('a' + i % 26));
    if (!ok) {
      ++full;
      ASSERT_EQ(ok.error().code, ErrorCode::kNoSpace) << ok.error().message;
      ASSERT_TRUE(hot_->usage().log_full);
      ASSERT_TRUE(drain_->run_once(true));
      const TxnId other(100 + i);
      ASSERT_TRUE(hot_->begin(other, kOther, SessionId(2)));
      ASSERT_TRUE(put(other, {Extent::at(Offset(i), Length(1))}, "x"));
      ASSERT_TRUE(hot_->commit(other));
      ok = put_pieces(i * kPiecesAtOnce, kPiecesAtOnce, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(ok) << ok.error().message;
    }
  }
  EXPECT_GT(full, 5) << "the log held them all";
  EXPECT_EQ(committed(), expected_);
}

TEST_F(ManyPieces, a_full_log_is_made_shorter_though_others_fill_stripes) {
  const TxnId other(2);
  ASSERT_TRUE(hot_->begin(other, kOther, SessionId(2)));
  ASSERT_TRUE(put(other, {Extent::at(Offset(0), Length(10'000))}, std::string(10'000, 'x')));
  ASSERT_TRUE(hot_->begin(kTxn, kFile, SessionId(1)));
  uint64_t pieces = 0;
  while (put_pieces(pieces, kPiecesAtOnce, 'a')) pieces += kPiecesAtOnce;
  ASSERT_GT(pieces, 500u);
  ASSERT_TRUE(hot_->commit(other));
  ASSERT_FALSE(put_pieces(pieces, kPiecesAtOnce, 'a'));
  ASSERT_TRUE(drain_->run_once(true));  // has the other file's bytes to move
  for (int i = 0; i < 3; ++i) {
    const auto ok = put_pieces(pieces, kPiecesAtOnce, 'a');
    ASSERT_TRUE(ok) << ok.error().message;
    pieces += kPiecesAtOnce;
  }
}

// Each restart begins with a checkpoint of what the one before left.
TEST_F(ManyPieces, what_lies_over_what_is_the_same_after_restarts) {
  ASSERT_TRUE(hot_->begin(kTxn, kFile, SessionId(1)));
  ASSERT_TRUE(put_pieces(0, 400, 'a'));
  place();
  ASSERT_TRUE(put_pieces(100, 200, 'b'));  // over a part of the first table
  place();
  ASSERT_TRUE(hot_->truncate(kTxn, Length(250 * kStride)));  // through both
  expected_.resize(250 * kStride, '0');
  ASSERT_TRUE(put_pieces(120, 10, 'c'));   // over both
  ASSERT_TRUE(put_pieces(260, 100, 'd'));  // where both were cut off, but not all the way
  for (int i = 0; i < 3; ++i) {
    open(domain_->after_process_crash());
    sink_.collect_orphans(hot_->stripes_in_use());
  }
  place();
  ASSERT_TRUE(hot_->persist());
  for (uint64_t seed = 0; seed < 3; ++seed) {
    open(domain_->after_power_loss(seed));
    sink_.collect_orphans(hot_->stripes_in_use());
  }
  EXPECT_EQ(committed(), expected_);
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
}

TEST_F(ManyPieces, tables_of_transactions_lie_in_the_order_of_their_commits) {
  const TxnId later(2);
  ASSERT_TRUE(hot_->begin(kTxn, kFile, SessionId(1)));
  ASSERT_TRUE(hot_->begin(later, kFile, SessionId(2)));
  std::vector<Extent> extents;
  for (uint64_t i = 0; i < 300; ++i) extents.push_back(Extent::at(Offset(i * kStride), Length(1)));
  ASSERT_TRUE(put(later, extents, std::string(300, 'z')));
  place();
  ASSERT_TRUE(put_pieces(200, 200, 'a'));
  place();
  ASSERT_TRUE(hot_->commit(kTxn));
  ASSERT_TRUE(hot_->commit(later));  // placed first, committed last
  for (int i = 0; i < 2; ++i) open(domain_->after_process_crash());
  ASSERT_TRUE(drain_->run_once(false));
  for (uint64_t i = 0; i < 300; ++i) expected_[i * kStride] = 'z';
  EXPECT_EQ(sink_.contents(kFile), expected_);
}

TEST_F(ManyPieces, tables_that_nobody_needs_take_no_room_from_others) {
  ASSERT_TRUE(hot_->begin(kTxn, kFile, SessionId(1)));
  ASSERT_TRUE(put_pieces(0, kPiecesAtOnce, 'a'));
  place();
  EXPECT_EQ(hot_->usage().bytes_used, 512u);  // its table
  ASSERT_TRUE(hot_->abort(kTxn));
  EXPECT_EQ(hot_->usage().bytes_used, 0u);
  const auto all = hot_->reserve(Length(hot_->usage().bytes_total));
  EXPECT_TRUE(all) << all.error().message;
}

TEST_F(ManyPieces, without_room_for_a_table_the_log_names_the_parts) {
  ASSERT_TRUE(hot_->begin(kTxn, kFile, SessionId(1)));
  ASSERT_TRUE(put_pieces(0, kPiecesAtOnce, 'a'));
  std::vector<Slab> taken;
  while (auto slab = hot_->reserve(Length(512))) taken.push_back(*slab);
  place();
  EXPECT_EQ(hot_->usage().bytes_used, taken.size() * 512);
  open(domain_->after_process_crash());
  EXPECT_EQ(committed(), expected_);
}

TEST_F(ManyPieces, a_damaged_table_is_told_and_not_taken_for_an_empty_one) {
  ASSERT_TRUE(hot_->begin(kTxn, kFile, SessionId(1)));
  ASSERT_TRUE(put_pieces(0, kPiecesAtOnce, 'a'));
  place();
  // The only slab in use.
  const auto free = hot_->claim(0, hot_->usage().bytes_total);
  ASSERT_FALSE(free.empty());
  const uint64_t at = free.front().offset == 0 ? free.front().length.value : 0;
  hot_->bytes({at, Length(1)})[0] ^= std::byte{1};
  const auto opened = try_open(domain_->after_process_crash());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(opened.error().data_loss);
}

}  // namespace
}  // namespace sluice::burst_buffer
