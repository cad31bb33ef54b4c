#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "base/os.h"
#include "storage/target.h"

// What every Target promises, over every implementation.
namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Bytes = std::vector<std::byte>;

Bytes pattern(size_t size, uint8_t seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = std::byte(static_cast<uint8_t>(seed + i * 7 + i / 251));
  return bytes;
}

ShardName name(uint64_t stripe, uint32_t shard) {
  return {StripeId(stripe), ShardIndex(shard)};
}

Result<> put(Target& target, ShardName shard, const Bytes& bytes) {
  const std::span<const std::byte> whole(bytes);
  return target.put(shard, std::span(&whole, 1));
}

Result<Bytes> get(Target& target, ShardName shard, uint64_t offset, size_t size) {
  Bytes bytes(size);
  const std::span<std::byte> whole(bytes);
  if (auto got = target.get(shard, offset, std::span(&whole, 1)); !got) return fail(got.error());
  return bytes;
}

struct Backend {
  std::string label;
  std::function<std::unique_ptr<Target>(const std::filesystem::path& scratch)> make;
};

class TargetContract : public testing::TestWithParam<Backend> {
 protected:
  TargetContract()
      : scratch_(TemporaryDirectory::create("sluice-target").value()),
        target_(GetParam().make(scratch_.path() / "t3")) {}

  TemporaryDirectory scratch_;
  std::unique_ptr<Target> target_;
};

TEST_P(TargetContract, says_who_it_is) {
  EXPECT_EQ(target_->id(), TargetId(3));
  EXPECT_EQ(target_->pool_id(), 77u);
  EXPECT_EQ(target_->state(), TargetState::kUp);
  EXPECT_FALSE(target_->path().empty());
}

TEST_P(TargetContract, gives_back_what_was_put_piece_by_piece) {
  const Bytes whole = pattern(200'000, 1);
  std::vector<std::span<const std::byte>> in;
  for (size_t at = 0; at < whole.size();) {
    const size_t size = std::min<size_t>(1 + at % 97, whole.size() - at);
    in.push_back(std::span(whole).subspan(at, size));
    if (at % 5 == 0) in.emplace_back();  // an empty piece is nothing
    at += size;
  }
  ASSERT_GT(in.size(), 1024u) << "more pieces than one system call takes";
  ASSERT_TRUE(target_->put(name(5, 2), in));
  EXPECT_EQ(*get(*target_, name(5, 2), 0, whole.size()), whole);

  Bytes head(10), tail(1000);
  const std::array<std::span<std::byte>, 3> out = {std::span(head), std::span<std::byte>(), std::span(tail)};
  ASSERT_TRUE(target_->get(name(5, 2), 1234, out));
  EXPECT_EQ(std::memcmp(head.data(), whole.data() + 1234, 10), 0);
  EXPECT_EQ(std::memcmp(tail.data(), whole.data() + 1244, 1000), 0);
}

TEST_P(TargetContract, a_put_replaces_the_whole_shard) {
  ASSERT_TRUE(put(*target_, name(1, 0), pattern(5000, 1)));
  ASSERT_TRUE(put(*target_, name(1, 0), pattern(3000, 2)));
  EXPECT_EQ(*get(*target_, name(1, 0), 0, 3000), pattern(3000, 2));
  EXPECT_EQ(get(*target_, name(1, 0), 0, 3001).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(get(*target_, name(1, 0), 5000, 1).error().code, ErrorCode::kCorrupt);
}

TEST_P(TargetContract, what_is_not_there_is_not_found) {
  EXPECT_EQ(get(*target_, name(9, 9), 0, 1).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(target_->remove(name(9, 9)));
  EXPECT_EQ(target_->state(), TargetState::kUp);
}

TEST_P(TargetContract, remove_removes_one_shard) {
  ASSERT_TRUE(put(*target_, name(1, 0), pattern(10, 1)));
  ASSERT_TRUE(put(*target_, name(1, 1), pattern(10, 2)));
  ASSERT_TRUE(target_->remove(name(1, 0)));
  EXPECT_EQ(get(*target_, name(1, 0), 0, 1).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(*get(*target_, name(1, 1), 0, 10), pattern(10, 2));
}

TEST_P(TargetContract, lists_and_finds) {
  EXPECT_THAT(*target_->list(), IsEmpty());
  const std::vector names = {name(1, 0), name(1, 63), name(2, 5), name(UINT64_MAX, 1)};
  for (const ShardName& shard : names) ASSERT_TRUE(put(*target_, shard, pattern(10, 1)));
  EXPECT_THAT(*target_->list(), UnorderedElementsAre(names[0], names[1], names[2], names[3]));
  EXPECT_THAT(*target_->find(StripeId(1)), ElementsAre(ShardIndex(0), ShardIndex(63)));
  EXPECT_THAT(*target_->find(StripeId(3)), IsEmpty());
  ASSERT_TRUE(target_->sweep());
  EXPECT_EQ(target_->list()->size(), names.size());
}

TEST_P(TargetContract, usage_follows_puts_replacements_and_removals) {
  const uint64_t before = target_->usage()->bytes_used;
  EXPECT_GT(target_->usage()->bytes_free, 0u);
  ASSERT_TRUE(put(*target_, name(1, 0), pattern(5000, 1)));
  EXPECT_EQ(target_->usage()->bytes_used, before + 5000);
  ASSERT_TRUE(put(*target_, name(1, 0), pattern(100, 1)));
  EXPECT_EQ(target_->usage()->bytes_used, before + 100);
  ASSERT_TRUE(target_->remove(name(1, 0)));
  EXPECT_EQ(target_->usage()->bytes_used, before);
}

TEST_P(TargetContract, readers_see_whole_shards_while_writers_replace_them) {
  constexpr size_t kSize = 20'000;
  ASSERT_TRUE(put(*target_, name(1, 0), Bytes(kSize, std::byte{0})));
  std::atomic<bool> stop = false;
  std::atomic<int> torn = 0;
  std::thread reader([&] {
    while (!stop) {
      const auto bytes = get(*target_, name(1, 0), 0, kSize);
      if (!bytes ||
          std::any_of(bytes->begin(), bytes->end(), [&](std::byte b) { return b != bytes->front(); }))
        ++torn;
    }
  });
  std::vector<std::thread> writers;
  for (uint8_t writer = 1; writer <= 2; ++writer) {
    writers.emplace_back([&, writer] {
      for (int round = 0; round < 50; ++round) {
        if (!put(*target_, name(1, 0), Bytes(kSize, std::byte{writer}))) ++torn;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  stop = true;
  reader.join();
  EXPECT_EQ(torn, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, TargetContract,
                         testing::Values(Backend{"file",
                                                 [](const std::filesystem::path& path) {
                                                   EXPECT_TRUE(format_file_target(path, 77, TargetId(3)));
                                                   return open_file_target(path, 77, TargetId(3)).value();
                                                 }},
                                         Backend{"memory",
                                                 [](const std::filesystem::path&) {
                                                   return make_memory_target(TargetId(3), 1 << 24, 77);
                                                 }}),
                         [](const auto& param_info) { return param_info.param.label; });

TEST(MemoryTarget, is_full_at_its_capacity) {
  const auto target = make_memory_target(TargetId(0), 1000);
  ASSERT_TRUE(put(*target, name(1, 0), pattern(900, 1)));
  EXPECT_EQ(put(*target, name(2, 0), pattern(101, 1)).error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(put(*target, name(1, 0), pattern(1000, 2))) << "a replacement counts once";
  EXPECT_EQ(target->usage()->bytes_free, 0u);
}

}  // namespace
}  // namespace sluice::storage
