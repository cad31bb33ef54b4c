#include "burst_buffer/stage_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace sluice::burst_buffer {
namespace {

constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

// A write is known by its number; its byte i lies at offset i of slab `number`.
StagedPiece piece_of(uint64_t number) {
  return {{StagedPlace::Tier::kHot, number, 0, number}, Epoch(0), nullptr};
}

TEST(StageIndex, a_truncation_cuts_what_is_below_and_a_later_write_stays) {
  StageIndex index;
  index.open(TxnId(1));
  index.truncate(TxnId(1), Length(10));
  index.write(TxnId(1), ext(20, 30), piece_of(1));
  const auto found = index.lookup(TxnId(1), ext(0, 40));
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].kind, Segment::Kind::kBelow);
  EXPECT_EQ(found[1].kind, Segment::Kind::kZeros);
  EXPECT_EQ(found[1].extent, ext(10, 20));
  EXPECT_EQ(found[2].kind, Segment::Kind::kBytes);
  EXPECT_EQ(found[3].kind, Segment::Kind::kZeros);
  EXPECT_EQ(index.size(TxnId(1), Length(100)), Length(30));
  EXPECT_EQ(index.size(std::nullopt, Length(100)), Length(100));
}

TEST(StageIndex, a_truncation_may_grow_the_file) {
  StageIndex index;
  index.open(TxnId(1));
  index.truncate(TxnId(1), Length(50));
  EXPECT_EQ(index.size(TxnId(1), Length(10)), Length(50));
  index.commit(TxnId(1), Epoch(1));
  EXPECT_EQ(index.size(std::nullopt, Length(10)), Length(50));
}

TEST(StageIndex, cuts_that_later_ones_cover_are_not_kept) {
  StageIndex index;
  uint64_t epoch = 0;
  for (const uint64_t size : {30, 20, 40, 35, 50}) {
    index.open(TxnId(++epoch));
    index.truncate(TxnId(epoch), Length(size));
    index.commit(TxnId(epoch), Epoch(epoch));
  }
  const std::map<Epoch, Length> expected{
      {Epoch(2), Length(20)}, {Epoch(4), Length(35)}, {Epoch(5), Length(50)}};
  EXPECT_EQ(index.cuts(), expected);
  index.drained(Epoch(2));
  EXPECT_EQ(index.cut(), Length(35));
  index.drained(Epoch(5));
  EXPECT_TRUE(index.idle());
}

TEST(StageIndex, only_the_parts_of_a_record_that_are_still_seen_move) {
  StageIndex index;
  index.open(TxnId(1));
  index.write(TxnId(1), ext(0, 100), piece_of(1));
  index.write(TxnId(1), ext(40, 60), piece_of(2));
  EXPECT_EQ(index.hot_parts(TxnId(1), ext(0, 100), 1), (std::vector<Extent>{ext(0, 40), ext(60, 100)}));
  index.move(TxnId(1), ext(10, 100), 1, {StagedPlace::Tier::kStripe, 77, 1000, 1}, nullptr);
  const auto found = index.lookup(TxnId(1), ext(0, 100));
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].kind, Segment::Kind::kBytes);
  EXPECT_EQ(found[1].extent, ext(10, 40));
  EXPECT_EQ(found[1].piece.place.offset, 1000u);
  EXPECT_EQ(found[2].piece.place.record, 2u);
  EXPECT_EQ(found[3].piece.place.offset, 1050u);
}

// --- the naive model: every version of the file is a plain array of what each byte is ---

constexpr uint64_t kModelBytes = 64;
constexpr uint64_t kZero = 0;

// A byte is 0, or write * 1000 + its offset in the write's slab. Bytes of the published base have numbers of
// their own.
using Bytes = std::vector<uint64_t>;

struct ModelWrite {
  bool is_truncate = false;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t number = 0;
};

Bytes applied(Bytes bytes, const std::vector<ModelWrite>& writes) {
  for (const ModelWrite& w : writes) {
    if (w.is_truncate) {
      bytes.resize(w.begin, kZero);
      continue;
    }
    if (bytes.size() < w.end) bytes.resize(w.end, kZero);
    for (uint64_t at = w.begin; at < w.end; ++at) bytes[at] = w.number * 1000 + (at - w.begin);
  }
  return bytes;
}

struct Model {
  std::map<uint64_t, Bytes> epochs;  // the published one, and all after it
  std::map<uint64_t, std::vector<ModelWrite>> open;

  Bytes seen(std::optional<uint64_t> txn) const {
    Bytes bytes = epochs.rbegin()->second;
    return txn ? applied(std::move(bytes), open.at(*txn)) : bytes;
  }
  const Bytes& published() const { return epochs.begin()->second; }
  uint64_t committed() const { return epochs.rbegin()->first; }
};

// What a reader puts together from the index and the published version.
Bytes seen(const StageIndex& index, std::optional<TxnId> txn, const Bytes& published, Extent extent) {
  Bytes bytes;
  Offset at = extent.begin;
  for (const StagedSegment& segment : index.lookup(txn, extent)) {
    RC_ASSERT(segment.extent.begin == at);
    RC_ASSERT(!segment.extent.empty());
    at = segment.extent.end;
    for (uint64_t b = segment.extent.begin.value; b < segment.extent.end.value; ++b) {
      const StagedPlace place = segment.piece.place.advanced(Length(b - segment.extent.begin.value));
      switch (segment.kind) {
        case Segment::Kind::kZeros:
          bytes.push_back(kZero);
          break;
        case Segment::Kind::kBelow:
          bytes.push_back(b < published.size() ? published[b] : kZero);
          break;
        // A moved byte is in stripe 500 + write, at 7 plus its offset in the slab.
        case Segment::Kind::kStripe:
          bytes.push_back((place.where - 500) * 1000 + place.offset - 7);
          break;
        case Segment::Kind::kBytes:
          bytes.push_back(place.where * 1000 + place.offset);
          break;
      }
    }
  }
  RC_ASSERT(at == extent.end);
  return bytes;
}

void expect_same(const StageIndex& index, const Model& model, std::optional<uint64_t> txn) {
  const auto id = txn ? std::optional(TxnId(*txn)) : std::nullopt;
  Bytes expected = model.seen(txn);
  RC_ASSERT(index.size(id, Length(model.published().size())) == Length(expected.size()));
  expected.resize(kModelBytes + 10, kZero);
  RC_ASSERT(seen(index, id, model.published(), ext(0, kModelBytes + 10)) == expected);
  const auto a = *rc::gen::inRange<uint64_t>(0, kModelBytes);
  const auto b = *rc::gen::inRange<uint64_t>(a, kModelBytes);
  RC_ASSERT(seen(index, id, model.published(), ext(a, b)) ==
            Bytes(expected.begin() + static_cast<int64_t>(a), expected.begin() + static_cast<int64_t>(b)));
}

RC_GTEST_PROP(StageIndexProperty,
              equals_a_plain_array_under_writes_truncations_commits_aborts_drains_and_moves, ()) {
  StageIndex index;
  Model model;
  Bytes base(*rc::gen::inRange<size_t>(0, kModelBytes));
  for (size_t i = 0; i < base.size(); ++i) base[i] = 900'000 + i;
  model.epochs[0] = base;

  uint64_t next_number = 1;
  const auto steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    const auto txn = *rc::gen::inRange<uint64_t>(1, 4);
    const TxnId id(txn);
    if (!index.is_open(id)) {
      index.open(id);
      model.open[txn];
    }
    const auto a = *rc::gen::inRange<uint64_t>(0, kModelBytes);
    const auto b = *rc::gen::inRange<uint64_t>(a + 1, kModelBytes + 1);
    switch (*rc::gen::inRange(0, 12)) {
      default: {
        const uint64_t number = next_number++;
        index.write(id, ext(a, b), piece_of(number));
        model.open[txn].push_back({false, a, b, number});
        break;
      }
      case 6:
      case 7:
        index.truncate(id, Length(a));
        model.open[txn].push_back({true, a, 0, 0});
        break;
      case 8:
      case 9: {
        const uint64_t epoch = model.committed() + 1;
        if (index.layer(id).untouched()) {
          RC_ASSERT(model.open[txn].empty());
          index.abort(id);
        } else {
          index.commit(id, Epoch(epoch));
          model.epochs[epoch] = model.seen(txn);
        }
        model.open.erase(txn);
        break;
      }
      case 10:
        index.abort(id);
        model.open.erase(txn);
        break;
      case 11: {
        const auto epoch = *rc::gen::inRange<uint64_t>(model.epochs.begin()->first, model.committed() + 1);
        model.epochs.erase(model.epochs.begin(), model.epochs.find(epoch));
        index.drained(Epoch(epoch));
        break;
      }
    }
    if (next_number > 1 && *rc::gen::inRange(0, 4) == 0) {
      // The whole of some write moves to a stripe: stripe 500 + write, 7 bytes in.
      const auto number = *rc::gen::inRange<uint64_t>(1, next_number);
      const auto owner = index.is_open(id) && *rc::gen::arbitrary<bool>() ? std::optional(id) : std::nullopt;
      for (const Extent part : index.hot_parts(owner, ext(0, kModelBytes), number)) {
        for (const auto& segment : index.lookup(owner, part)) {
          const StagedPlace place{StagedPlace::Tier::kStripe, 500 + number, 7 + segment.piece.place.offset,
                                  number};
          index.move(owner, segment.extent, number, place, nullptr);
        }
      }
    }
    expect_same(index, model, std::nullopt);
    for (const auto& [open, writes] : model.open) expect_same(index, model, open);
  }
}

}  // namespace
}  // namespace sluice::burst_buffer
