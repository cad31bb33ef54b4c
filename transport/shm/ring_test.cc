#include "transport/shm/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <thread>

#include "base/rng.h"
#include "transport/contract_rig.h"
#include "transport/shm/exposure_table.h"

namespace sluice::transport {
namespace {

class Ring : public ::testing::Test {
 protected:
  std::vector<std::byte> take(RingPair& ring) {
    auto length = ring.take(record.data());
    EXPECT_TRUE(length.has_value());
    EXPECT_TRUE(length->has_value());
    return {record.begin(), record.begin() + static_cast<ptrdiff_t>((*length)->length)};
  }

  SharedMapping memory = std::move(SharedMapping::create(kRingMemoryBytes)->first);
  RingPair a{memory.data(), 0};
  RingPair b{memory.data(), 1};
  std::vector<std::byte> record = std::vector<std::byte>(kRingRecordBytes);
};

TEST_F(Ring, RecordsOfAnySizePassBothWaysInOrderAroundTheEnd) {
  SeededRng rng(1);
  for (auto [from, to] : {std::pair(&a, &b), {&b, &a}}) {
    std::deque<std::vector<std::byte>> expected;
    size_t passed = 0;
    for (uint64_t i = 0; passed < 2000; ++i) {
      auto bytes = pattern(rng.below(kRingRecordBytes + 1), i);
      const size_t cut = rng.below(bytes.size() + 1);
      if (from->put(i + 1, true, std::span(bytes).first(cut), std::span(bytes).subspan(cut)) ==
          RingPair::Put::kDone) {
        expected.push_back(std::move(bytes));
        if (rng.below(2) == 0) continue;
      }
      while (!expected.empty()) {
        ASSERT_TRUE(to->anything_to_take());
        ASSERT_EQ(take(*to), expected.front());
        expected.pop_front();
        ++passed;
      }
      ASSERT_FALSE(to->anything_to_take());
      ASSERT_FALSE((*to->take(record.data())).has_value());
    }
  }
}

TEST_F(Ring, FullRingSaysSoAndTheWaiterIsToldOnce) {
  const std::vector<std::byte> bytes(1000);
  size_t count = 0;
  while (a.put(1, true, bytes, {}) == RingPair::Put::kDone) ++count;
  EXPECT_GT(count, kRingBytes / 1100);
  EXPECT_LE(count, kRingBytes / 1000);
  take(b);
  EXPECT_TRUE(b.peer_waited());
  EXPECT_FALSE(b.peer_waited());
  EXPECT_EQ(a.put(1, true, bytes, {}), RingPair::Put::kDone);
}

TEST_F(Ring, SleeperIsRungOnce) {
  EXPECT_FALSE(a.disarm_peer(true));
  for (const bool hurried : {true, false}) {
    b.arm(Sleep::kAsleep);
    EXPECT_TRUE(a.disarm_peer(hurried));
    EXPECT_FALSE(a.disarm_peer(true));
  }
}

TEST_F(Ring, who_dozes_is_rung_for_what_is_hurried_only) {
  b.arm(Sleep::kDozing);
  EXPECT_FALSE(a.disarm_peer(false));
  EXPECT_TRUE(a.disarm_peer(true));
  EXPECT_FALSE(a.disarm_peer(true));
}

TEST_F(Ring, NonsenseOfTheOtherSideIsRefused) {
  auto* sides = reinterpret_cast<RingSide*>(memory.data());
  std::byte* queue_of_a = memory.data() + 2 * sizeof(RingSide);
  const auto refused = [&] {
    auto taken = b.take(record.data());
    return !taken.has_value() && taken.error().code == ErrorCode::kProtocol;
  };
  const auto set_length = [&](uint32_t length) {
    std::memcpy(queue_of_a + offsetof(RecordHeader, length), &length, sizeof length);
  };
  sides[0].tail.store(kRingBytes + 8);
  EXPECT_TRUE(refused()) << "more than fits";
  sides[0].tail.store(UINT64_MAX);
  EXPECT_TRUE(refused()) << "backwards";
  sides[0].tail.store(8);
  EXPECT_TRUE(refused()) << "less than a header";
  sides[0].tail.store(64);
  set_length(49);
  EXPECT_TRUE(refused()) << "a record longer than what is there";
  sides[0].tail.store(kRingBytes);
  set_length(kRingRecordBytes + 1);
  EXPECT_TRUE(refused()) << "a record beyond the limit";
  set_length(UINT32_MAX);
  EXPECT_TRUE(refused());
  sides[0].tail.store(64);
  set_length(48);
  EXPECT_FALSE(refused());
  // A consumer that claims to have taken what was never put gets nothing more.
  sides[0].head.store(1'000'000);
  EXPECT_EQ(b.put(1, true, record, {}), RingPair::Put::kFull);
}

TEST_F(Ring, TwoThreadsLoseNothing) {
  constexpr uint32_t kRecords = 20'000;
  std::thread producer([&] {
    for (uint32_t i = 0; i < kRecords;) {
      if (a.put(i + 1, true, std::as_bytes(std::span(&i, 1)), {}) == RingPair::Put::kDone) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  uint32_t next = 0;
  while (next < kRecords) {
    auto length = b.take(record.data());
    ASSERT_TRUE(length.has_value());
    if (!*length) {
      std::this_thread::yield();
      continue;
    }
    uint32_t value = 0;
    std::memcpy(&value, record.data(), sizeof value);
    ASSERT_EQ(value, next++);
  }
  producer.join();
}

TEST(SharedMapping, MemoryThatCouldBeCutOrIsOfAnotherSizeIsRefused) {
  UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_FALSE(SharedMapping::attach(unsealed, 4096, true).has_value());
  auto sealed = SharedMapping::create(4096);
  ASSERT_TRUE(sealed.has_value());
  EXPECT_FALSE(SharedMapping::attach(sealed->second, 8192, true).has_value());
  EXPECT_TRUE(SharedMapping::attach(sealed->second, 4096, true).has_value());
  EXPECT_NE(ftruncate(sealed->second.get(), 100), 0);
}

TEST(ExposureTable, ReachesExactlyWhatIsExposedWhileItIs) {
  auto table = ExposureTable::create();
  ASSERT_TRUE(table.has_value());
  auto view = SharedMapping::attach(table->descriptor(), kExposureTableBytes, false);
  ASSERT_TRUE(view.has_value());
  std::vector<std::byte> memory(1000);
  const auto remote = table->expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(remote.has_value());
  const auto reach = [&](uint64_t address, uint64_t length, Access access = Access::kRemoteRead) {
    return may_reach(*view, remote->key, address, length, access);
  };
  EXPECT_TRUE(reach(remote->address, 1000));
  EXPECT_TRUE(reach(remote->address + 999, 1));
  EXPECT_FALSE(reach(remote->address + 999, 2));
  EXPECT_FALSE(reach(remote->address - 1, 2));
  EXPECT_FALSE(reach(remote->address, 1001));
  EXPECT_FALSE(reach(remote->address + 10, UINT64_MAX));
  EXPECT_FALSE(reach(remote->address, 10, Access::kRemoteWrite));
  EXPECT_FALSE(may_reach(*view, remote->key ^ (uint64_t{1} << 40), remote->address, 10, Access::kRemoteRead));
  EXPECT_FALSE(may_reach(*view, 0, remote->address, 10, Access::kRemoteRead));
  table->withdraw(remote->key);
  EXPECT_FALSE(reach(remote->address, 10));
}

TEST(ExposureTable, HasALimitAndItsSlotsComeBack) {
  auto table = ExposureTable::create();
  ASSERT_TRUE(table.has_value());
  std::vector<std::byte> memory(10);
  std::vector<uint64_t> keys;
  for (size_t i = 0; i < kExposureSlots; ++i) keys.push_back(table->expose(memory, Access::kRemoteRead)->key);
  auto refused = table->expose(memory, Access::kRemoteRead);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  table->withdraw(keys[7]);
  const auto again = table->expose(memory, Access::kRemoteRead);
  ASSERT_TRUE(again.has_value());
  EXPECT_NE(again->key, keys[7]);
}

TEST(CopyBetweenProcesses, MovesBytesAndSaysWhatCannotBeReached) {
  const auto source = pattern(300'000, 1);
  std::vector<std::byte> into(source.size());
  ASSERT_TRUE(copy_from_process(getpid(), reinterpret_cast<uint64_t>(source.data()), into).has_value());
  EXPECT_EQ(into, source);
  auto nowhere = copy_from_process(getpid(), 8, into);
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace sluice::transport
