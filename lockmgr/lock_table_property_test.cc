#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/rng.h"
#include "lockmgr/lock_model.h"

namespace sluice::lockmgr {
namespace {

constexpr uint64_t kUnit = uint64_t{4} << 20;  // 64 units: far enough for the 32 MiB limit of growth to show
constexpr uint64_t kUnits = 64;

enum class What { kRequest, kCancel, kWithdraw, kEvict, kReclaim };

struct Op {
  What what;
  OwnerId owner;
  LockMode mode;
  GroupId group;
  uint32_t flags;
  std::vector<Extent> extents;
  uint64_t pick;  // which lock or waiting request
};

void showValue(const Op& op, std::ostream& os) {
  os << "{" << static_cast<int>(op.what) << " owner " << op.owner.value << " " << to_string(op.mode, op.group)
     << " flags " << op.flags << " pick " << op.pick;
  for (const Extent& e : op.extents) os << " " << e.begin.value / kUnit << "-" << e.end.value / kUnit;
  os << "}";
}

// `small`: few places, much conflict. Otherwise anywhere in a large table.
Op make_op(Rng& rng, bool small = true) {
  static constexpr uint32_t kFlags[] = {kBlocking, kBlocking | kNoExpand, kSpeculative,
                                        kSpeculative | kNoExpand};
  Op op{};
  const uint64_t what = rng.below(small ? 20 : 19);  // evicting would empty a large table
  op.what = what < 11   ? What::kRequest
            : what < 17 ? What::kCancel
            : what < 18 ? What::kWithdraw
            : what < 19 ? What::kReclaim
                        : What::kEvict;
  op.owner = OwnerId(1 + rng.below(5));
  const uint64_t mode = rng.below(8);
  op.mode = mode < 3 ? LockMode::kPr : mode < 7 ? LockMode::kPw : LockMode::kGroup;
  op.group = GroupId(op.mode == LockMode::kGroup ? 1 + rng.below(2) : 0);
  op.flags = kFlags[rng.below(4)];
  const uint64_t extents = rng.below(3) == 0 ? 1 + rng.below(5) : 1;
  for (uint64_t i = 0; i < extents; ++i) {
    const uint64_t begin = rng.below(small ? kUnits : 3'000);
    const uint64_t length = 1 + rng.below(rng.below(small ? 4 : 100) == 0 ? kUnits : 6);
    op.extents.push_back({Offset(begin * kUnit), Offset((begin + length) * kUnit)});
  }
  op.pick = rng.next();
  return op;
}

// Runs the same calls on both and compares all that they say.
class Pair {
 public:
  void apply(const Op& op, bool look_deep = true) {
    LockEvents events;
    LockModel::Events expected;
    switch (op.what) {
      case What::kRequest:
        request({op.owner, op.mode, op.group, op.flags, op.extents}, events, expected);
        break;
      case What::kCancel:
      case What::kReclaim:
        if (model_.locks.empty()) return;
        give_back(model_.locks[op.pick % model_.locks.size()], op.what, events, expected);
        break;
      case What::kWithdraw: {
        if (model_.queue.empty()) return;
        const LockModel::Request q = model_.queue[op.pick % model_.queue.size()];
        RC_ASSERT(table_.withdraw(q.owner, Ticket(q.ticket), events).has_value());
        model_.withdraw(q.ticket, expected);
        break;
      }
      case What::kEvict:
        table_.evict(op.owner, events);
        model_.evict(op.owner, expected);
        break;
    }
    compare(events, expected);
    if (!look_deep) return;
    table_.check();
    compare_state();
  }

  // Owners keep the bargain: what is revoked is given back. Then nobody may be left waiting.
  void drain() {
    for (size_t step = 0; !model_.queue.empty(); ++step) {
      RC_ASSERT(step < 10'000u);
      const auto revoked =
          std::find_if(model_.locks.begin(), model_.locks.end(), [](const auto& l) { return l.revoked; });
      RC_ASSERT(revoked != model_.locks.end());
      LockEvents events;
      LockModel::Events expected;
      give_back(LockModel::Lock(*revoked), What::kCancel, events, expected);
      compare(events, expected);
    }
    RC_ASSERT(table_.waiting_count() == 0u);
  }

  size_t waited() const { return waited_; }
  size_t locks() const { return table_.granted_count(); }

 private:
  void request(const LockRequest& r, LockEvents& events, LockModel::Events& expected) {
    LockReply reply;
    RC_ASSERT(table_.request(r, reply, events).has_value());
    const LockModel::Reply wanted = model_.request(r, expected);
    RC_ASSERT(reply.waiting == wanted.waiting);
    RC_ASSERT(reply.ticket.value == wanted.ticket);
    waited_ += wanted.waiting ? 1 : 0;
    compare(reply.extents, wanted.answers);
  }

  void give_back(const LockModel::Lock lock, What what, LockEvents& events, LockModel::Events& expected) {
    if (what == What::kReclaim) {
      RC_ASSERT(table_.reclaim(handles_.at(lock.id), events) == !lock.revoked);
      model_.reclaim(lock.id, expected);
    } else {
      RC_ASSERT(table_.cancel(lock.owner, handles_.at(lock.id), events).has_value());
      model_.cancel(lock.id, expected);
    }
  }

  void compare(const std::vector<ExtentAnswer>& got, const std::vector<LockModel::Answer>& wanted) {
    RC_ASSERT(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      RC_ASSERT(to_string(got[i].answer) == to_string(wanted[i].answer));
      RC_ASSERT(to_string(got[i].blocker) == to_string(wanted[i].blocker));
      if (got[i].answer == LockAnswer::kGranted) {
        RC_ASSERT(to_string(got[i].extent) == to_string(wanted[i].extent));
        handles_[wanted[i].ids.front()] = got[i].handle;
      } else if (got[i].answer != LockAnswer::kDropped) {
        RC_ASSERT(std::any_of(wanted[i].ids.begin(), wanted[i].ids.end(),
                              [&](uint64_t id) { return handles_.at(id) == got[i].handle; }));
      }
    }
  }

  void compare(const LockEvents& got, const LockModel::Events& wanted) {
    RC_ASSERT(got.grants.size() == wanted.grants.size());
    for (size_t i = 0; i < got.grants.size(); ++i) {
      RC_ASSERT(got.grants[i].ticket.value == wanted.grants[i].ticket);
      compare(got.grants[i].extents, wanted.grants[i].answers);
    }
    std::vector<LockHandle> revoked;
    for (const LockRevoke& r : got.revokes) revoked.push_back(r.handle);
    std::vector<LockHandle> expected;
    for (const uint64_t id : wanted.revokes) expected.push_back(handles_.at(id));
    std::sort(revoked.begin(), revoked.end());
    std::sort(expected.begin(), expected.end());
    RC_ASSERT(revoked == expected);
  }

  void compare_state() {
    RC_ASSERT(table_.granted_count() == model_.locks.size());
    RC_ASSERT(table_.waiting_count() == model_.queue.size());
    RC_ASSERT(table_.contention() == model_.score);
    for (const LockModel::Lock& lock : model_.locks) {
      const auto info = table_.find(handles_.at(lock.id));
      RC_ASSERT(info.has_value());
      RC_ASSERT(info->owner == lock.owner);
      RC_ASSERT(info->extent == lock.extent);
      RC_ASSERT(info->revoked == lock.revoked);
    }
  }

  LockTable table_;
  LockModel model_;
  std::map<uint64_t, LockHandle> handles_;
  size_t waited_ = 0;
};

rc::Gen<Op> any_op() {
  return rc::gen::map(rc::gen::arbitrary<uint64_t>(), [](uint64_t seed) {
    SeededRng rng(seed);
    return make_op(rng);
  });
}

RC_GTEST_PROP(LockTableProperty, answers_as_the_plain_model_does, ()) {
  const auto ops = *rc::gen::container<std::vector<Op>>(any_op());
  Pair pair;
  for (const Op& op : ops) pair.apply(op);
  pair.drain();
}

RC_GTEST_PROP(LockTableProperty, large_tables_stay_equal, ()) {
  SeededRng rng(*rc::gen::arbitrary<uint64_t>());
  Pair pair;
  for (uint64_t place = 0; place < 300; ++place) {
    const uint64_t begin = place * 7919 % 300 * 10;
    Op op{What::kRequest, OwnerId(1 + rng.below(5)), LockMode::kPw, GroupId(0), kSpeculative, {}, 0};
    op.mode = rng.below(3) == 0 ? LockMode::kPr : LockMode::kPw;
    op.extents.push_back({Offset(begin * kUnit), Offset((begin + 1 + rng.below(9)) * kUnit)});
    pair.apply(op, false);
  }
  RC_ASSERT(pair.locks() == 300u);
  for (int i = 0; i < 30; ++i) pair.apply(make_op(rng, false), i % 10 == 9);
}

RC_GTEST_PROP(LockTableProperty, long_histories_stay_equal, ()) {
  SeededRng rng(*rc::gen::arbitrary<uint64_t>());
  const int length = *rc::gen::inRange(50, 150);
  Pair pair;
  for (int i = 0; i < length; ++i) pair.apply(make_op(rng));
  RC_CLASSIFY(pair.waited() > 5, "more than five requests waited");
  pair.drain();
}

}  // namespace
}  // namespace sluice::lockmgr
