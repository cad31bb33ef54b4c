#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/os.h"
#include "storage/target.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kPool = 0xabcdef;
constexpr ShardName kShard{StripeId(1), ShardIndex(0)};

class FileTargetTest : public testing::Test {
 protected:
  FileTargetTest()
      : scratch_(TemporaryDirectory::create("sluice-file-target").value()), path_(scratch_.path() / "t0") {}

  std::unique_ptr<Target> open(uint64_t pool = kPool, uint32_t id = 0) {
    return open_file_target(path_, pool, TargetId(id)).value();
  }
  std::unique_ptr<Target> fresh() {
    EXPECT_TRUE(format_file_target(path_, kPool, TargetId(0)));
    return open();
  }
  static Result<> put(Target& target, ShardName name = kShard) {
    static constexpr std::array<std::byte, 100> kBytes{std::byte{7}};
    const std::span<const std::byte> whole(kBytes);
    return target.put(name, std::span(&whole, 1));
  }
  static Result<std::byte> first_byte(Target& target) {
    std::byte byte{};
    const std::span<std::byte> whole(&byte, 1);
    if (auto got = target.get(kShard, 0, std::span(&whole, 1)); !got) return fail(got.error());
    return byte;
  }
  void expect_missing(Target& target, const char* where) {
    EXPECT_EQ(target.state(), TargetState::kMissing) << where;
    EXPECT_EQ(put(target).error().code, ErrorCode::kUnavailable) << where;
    EXPECT_TRUE(put(target).error().retryable) << where;
    EXPECT_EQ(first_byte(target).error().code, ErrorCode::kUnavailable) << where;
    EXPECT_EQ(target.remove(kShard).error().code, ErrorCode::kUnavailable) << where;
    EXPECT_EQ(target.list().error().code, ErrorCode::kUnavailable) << where;
    EXPECT_EQ(target.find(StripeId(1)).error().code, ErrorCode::kUnavailable) << where;
    EXPECT_EQ(target.usage().error().code, ErrorCode::kUnavailable) << where;
    EXPECT_EQ(target.sweep().error().code, ErrorCode::kUnavailable) << where;
  }

  TemporaryDirectory scratch_;
  fs::path path_;
};

TEST_F(FileTargetTest, shards_outlive_the_process) {
  ASSERT_TRUE(put(*fresh()));
  const auto again = open();
  EXPECT_EQ(*first_byte(*again), std::byte{7});
  EXPECT_EQ(again->usage()->bytes_used, 100u);
}

TEST_F(FileTargetTest, a_directory_that_goes_while_running_is_missing_and_never_made_again) {
  const auto target = fresh();
  ASSERT_TRUE(put(*target));
  fs::remove_all(path_);
  expect_missing(*target, "removed");
  EXPECT_FALSE(fs::exists(path_));

  fs::create_directories(path_ / "shards");
  expect_missing(*target, "an empty directory in its place");
  EXPECT_THAT(put(*target).error().message, HasSubstr("holds no target"));
  EXPECT_THAT(fs::directory_iterator(path_ / "shards"), testing::Eq(fs::directory_iterator()));
}

TEST_F(FileTargetTest, a_directory_that_is_moved_away_takes_no_more_shards_and_comes_back_whole) {
  const auto target = fresh();
  ASSERT_TRUE(put(*target));
  const fs::path aside = scratch_.path() / "aside";
  fs::rename(path_, aside);
  expect_missing(*target, "moved");
  fs::rename(aside, path_);
  EXPECT_EQ(target->state(), TargetState::kUp);
  EXPECT_EQ(*first_byte(*target), std::byte{7});
}

TEST_F(FileTargetTest, an_emptied_directory_is_missing) {
  const auto target = fresh();
  fs::remove_all(path_ / "shards");
  expect_missing(*target, "without shards");
  fs::create_directory(path_ / "shards");
  fs::remove(path_ / "identity");
  expect_missing(*target, "without identity");
  EXPECT_THAT(put(*target).error().message, HasSubstr(path_.string() + " is there, but holds no target"));
}

TEST_F(FileTargetTest, a_missing_directory_opens_as_missing_and_nothing_is_created) {
  const auto target = open();
  expect_missing(*target, "never there");
  EXPECT_FALSE(fs::exists(path_));
  ASSERT_TRUE(format_file_target(path_, kPool, TargetId(0)));
  EXPECT_EQ(target->state(), TargetState::kUp);
  EXPECT_TRUE(put(*target));
}

TEST_F(FileTargetTest, a_foreign_directory_is_missing) {
  ASSERT_TRUE(format_file_target(path_, kPool, TargetId(0)));
  expect_missing(*open(kPool + 1, 0), "another pool");
  expect_missing(*open(kPool, 1), "another target");
  EXPECT_THAT(put(*open(kPool + 1, 0)).error().message,
              HasSubstr(path_.string() + " is a target of another pool"));
  EXPECT_THAT(put(*open(kPool, 1)).error().message, HasSubstr(path_.string() + " is target 0 of this pool"));
}

TEST_F(FileTargetTest, formatting_twice_is_one_target_and_foreign_directories_are_refused) {
  ASSERT_TRUE(put(*fresh()));
  EXPECT_TRUE(format_file_target(path_, kPool, TargetId(0)));
  EXPECT_EQ(*first_byte(*open()), std::byte{7});
  EXPECT_EQ(format_file_target(path_, kPool + 1, TargetId(0)).error().code, ErrorCode::kExists);
  EXPECT_EQ(format_file_target(path_, kPool, TargetId(1)).error().code, ErrorCode::kExists);

  const fs::path home = scratch_.path() / "home";
  fs::create_directory(home);
  std::ofstream(home / "thesis.tex") << "x";
  const auto refused = format_file_target(home, kPool, TargetId(2));
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("thesis.tex"));
  EXPECT_FALSE(fs::exists(home / "identity"));
}

TEST_F(FileTargetTest, half_written_shards_never_have_a_name_and_are_swept_after_a_restart) {
  ASSERT_TRUE(put(*fresh()));
  const fs::path left = path_ / "shards" / ".new-00000000-0";
  std::ofstream(left) << "half a shard";
  const auto target = open();
  EXPECT_THAT(*target->list(), testing::ElementsAre(kShard));
  ASSERT_TRUE(target->sweep());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(*first_byte(*target), std::byte{7});
  EXPECT_EQ(target->usage()->bytes_used, 100u);
}

TEST_F(FileTargetTest, names_that_are_no_shards_are_passed_over) {
  const auto target = fresh();
  for (const char* name : {"0000000000000001", "0000000000000001.64", "0000000000000001.00",
                           "000000000000000g.0", "000000000000000A.0", "1.0", "0000000000000001.0.bak"}) {
    std::ofstream(path_ / "shards" / name) << "x";
  }
  EXPECT_THAT(*target->list(), IsEmpty());
}

TEST_F(FileTargetTest, a_failed_put_leaves_the_old_shard_and_no_scraps) {
  const auto target = fresh();
  ASSERT_TRUE(put(*target));
  // A directory under the shard's name makes the last step fail, for every user.
  const ShardName blocked{StripeId(2), ShardIndex(0)};
  fs::create_directory(path_ / "shards" / "0000000000000002.0");
  EXPECT_FALSE(put(*target, blocked));
  EXPECT_EQ(target->state(), TargetState::kFailing);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(path_ / "shards")) ++files;
  EXPECT_EQ(files, 2u);
  EXPECT_EQ(*first_byte(*target), std::byte{7});
  EXPECT_EQ(target->state(), TargetState::kUp);
}

TEST_F(FileTargetTest, shards_are_private_to_the_owner) {
  ASSERT_TRUE(put(*fresh()));
  struct stat status {};
  ASSERT_EQ(::stat((path_ / "shards" / "0000000000000001.0").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((path_ / "shards").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

}  // namespace
}  // namespace sluice::storage
