#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>

#include "base/os.h"
#include "storage/object_store.h"
#include "storage/testing/store_rig.h"

// The lost-target matrix: for each class, every set of directories that may be lost is deleted, and more than
// that.
namespace sluice::storage {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr size_t kStripes = 3;

// A pool on directories, as wide as the class, with one file of full and partial stripes; a directory can be
// taken away and brought back.
class DiskPool {
 public:
  DiskPool(const std::string& class_name, size_t targets)
      : scratch_(TemporaryDirectory::create("sluice-lost").value()), count_(targets) {
    for (uint32_t id = 0; id < count_; ++id) EXPECT_TRUE(format_file_target(path(id), 3, TargetId(id)));
    open();
    ContainerAttributes attributes;
    attributes.path = "/file";
    attributes.object_class = ObjectClass::parse(class_name).value();
    attributes.chunk_size = Length(65536);
    id_ = store_->create(attributes).value().id;
    for (size_t stripe = 0; stripe < kStripes; ++stripe) write(stripe);
  }

  void open() {
    store_.reset();
    std::vector<std::unique_ptr<Target>> targets;
    for (uint32_t id = 0; id < count_; ++id)
      targets.push_back(open_file_target(path(id), 3, TargetId(id)).value());
    store_ = ObjectStore::open({.io_threads = 0}, std::move(targets),
                               open_sqlite_metastore(scratch_.path() / "meta.db").value())
                 .value();
  }
  void take(uint32_t id) { fs::rename(path(id), scratch_.path() / ("away" + std::to_string(id))); }
  void bring_back(uint32_t id) { fs::rename(scratch_.path() / ("away" + std::to_string(id)), path(id)); }

  ObjectStore& store() { return *store_; }
  const Bytes& contents() const { return contents_; }
  Result<Bytes> read(ReadReport& report) {
    Bytes out(contents_.size(), std::byte{0xee});
    auto got = store_->read(id_, {Offset(0), Offset(out.size())}, out);
    if (!got) return fail(got.error());
    report = *got;
    return out;
  }

 private:
  fs::path path(uint32_t id) const { return scratch_.path() / ("t" + std::to_string(id)); }

  void write(size_t stripe) {
    const uint64_t full = store_->stripe_bytes(id_)->value;
    const Bytes data = pattern(stripe + 1 < kStripes ? full : full / 3 + 1, stripe);
    const std::span<const std::byte> whole(data);
    const StripeId placed = store_->place(id_, std::span(&whole, 1)).value();
    Publication step;
    step.from = Epoch(stripe);
    step.to = Epoch(stripe + 1);
    step.size = Length(contents_.size() + data.size());
    step.extents.push_back({{Offset(contents_.size()), Offset(step.size.value)}, {placed, 0}});
    ASSERT_TRUE(store_->publish(id_, step));
    contents_.insert(contents_.end(), data.begin(), data.end());
  }

  TemporaryDirectory scratch_;
  size_t count_;
  std::unique_ptr<ObjectStore> store_;
  ContainerId id_;
  Bytes contents_;
};

struct Case {
  std::string class_name;
  uint32_t k;
  uint32_t m;
};

class LostTargets : public testing::TestWithParam<Case> {};

TEST_P(LostTargets, every_set_up_to_m_reads_right_and_every_set_beyond_is_told) {
  const auto& [class_name, k, m] = GetParam();
  const uint32_t width = k + m;
  DiskPool pool(class_name, width);
  uint64_t right = 0;
  uint64_t told = 0;
  for (uint32_t lost = 0; lost < (1u << width); ++lost) {
    const auto losses = static_cast<uint32_t>(std::popcount(lost));
    if (losses > m + 1) continue;
    for (uint32_t id = 0; id < width; ++id) {
      if ((lost >> id & 1u) != 0) pool.take(id);
    }
    // At run time, and, for every third set, as found at a start.
    for (const bool restart : {false, true}) {
      if (restart && lost % 3 != 0) continue;
      SCOPED_TRACE("lost " + std::to_string(lost) + (restart ? " restarted" : ""));
      if (restart) pool.open();
      ReadReport report;
      const uint64_t counted_before = pool.store().degraded_blocks();
      const auto bytes = pool.read(report);
      if (losses <= m) {
        ASSERT_TRUE(bytes) << bytes.error().message;
        ASSERT_EQ(*bytes, pool.contents());
        // Only lost data shards are missed by a reader, each by at most one block of each stripe.
        EXPECT_EQ(pool.store().degraded_blocks() - counted_before, report.degraded_blocks);
        EXPECT_LE(report.degraded_blocks, uint64_t{losses} * kStripes);
        EXPECT_EQ(report.repaired_blocks, 0u);
        ++right;
      } else {
        ASSERT_FALSE(bytes);
        EXPECT_TRUE(bytes.error().data_loss);
        EXPECT_EQ(bytes.error().code, ErrorCode::kIo);
        for (const char* named : {"/file", "stripe ", "target "})
          EXPECT_THAT(bytes.error().message, HasSubstr(named));
        ++told;
      }
    }
    for (uint32_t id = 0; id < width; ++id) {
      if ((lost >> id & 1u) != 0) pool.bring_back(id);
    }
  }
  ReadReport report;
  EXPECT_EQ(pool.read(report).value(), pool.contents()) << "all is back";
  EXPECT_EQ(report.degraded_blocks, 0u);
  EXPECT_GT(right, 0u);
  EXPECT_GT(told, 0u);
}

// Losing every single target in turn meets every shard once: the degraded count of a class is exact.
TEST_P(LostTargets, each_single_loss_is_counted) {
  const auto& [class_name, k, m] = GetParam();
  if (m == 0) {
    DiskPool pool(class_name, k);
    pool.take(0);
    ReadReport report;
    EXPECT_TRUE(pool.read(report).error().data_loss);
    return;
  }
  DiskPool pool(class_name, k + m);
  uint64_t degraded = 0;
  for (uint32_t id = 0; id < k + m; ++id) {
    pool.take(id);
    ReadReport report;
    ASSERT_EQ(pool.read(report).value(), pool.contents());
    degraded += report.degraded_blocks;
    pool.bring_back(id);
  }
  // Every data shard of every stripe is one block, and was missed exactly once.
  EXPECT_EQ(degraded, uint64_t{k} * kStripes);
  EXPECT_EQ(pool.store().degraded_blocks(), degraded);
}

INSTANTIATE_TEST_SUITE_P(Classes, LostTargets,
                         testing::Values(Case{"S1", 1, 0}, Case{"S2", 2, 0}, Case{"SX", 5, 0},
                                         Case{"RP_2", 1, 1}, Case{"RP_3", 1, 2}, Case{"EC_2P1", 2, 1},
                                         Case{"EC_4P1", 4, 1}, Case{"EC_4P2", 4, 2}, Case{"EC_8P2", 8, 2}),
                         [](const auto& param_info) { return param_info.param.class_name; });

// Deleted, not only away: the directory comes back formatted and empty, and reads fill it again.
TEST(LostTarget, a_replaced_directory_is_healed_by_reading) {
  StoreRig rig(6);
  ASSERT_TRUE(rig.reopen());
  const ContainerId id = rig.create("/file", "EC_4P2").value().id;
  const Bytes data = pattern(4 * 65536, 1);
  const StripeId stripe = rig.write(id, 0, data).value();
  for (uint32_t shard = 0; shard < 2; ++shard) {
    const ShardName name{stripe, ShardIndex(shard)};
    ASSERT_TRUE(rig.medium(rig.place_of(name).value).remove(name));
  }
  ReadReport report;
  EXPECT_EQ(rig.read(id, 0, data.size(), &report).value(), data);
  EXPECT_EQ(report.degraded_blocks, 2u);
  EXPECT_EQ(report.repaired_blocks, 2u);
  EXPECT_EQ(rig.shards().size(), 6u);
  EXPECT_EQ(rig.read(id, 0, data.size(), &report).value(), data);
  EXPECT_EQ(report.degraded_blocks, 0u);
}

}  // namespace
}  // namespace sluice::storage
