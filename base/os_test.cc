#include "base/os.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>

namespace sluice {
namespace {

TEST(Os, replace_file_leaves_new_contents_and_no_scratch) {
  auto dir = TemporaryDirectory::create("sluice-os");
  ASSERT_TRUE(dir);
  const auto path = dir->path() / "f";
  ASSERT_TRUE(replace_file(path, "one"));
  ASSERT_TRUE(replace_file(path, "two"));
  EXPECT_EQ(read_file(path, 100).value(), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir->path()), {}), 1);
}

TEST(Os, read_file_refuses_more_than_its_limit) {
  auto dir = TemporaryDirectory::create("sluice-os");
  ASSERT_TRUE(replace_file(dir->path() / "f", std::string(100, 'x')));
  const auto got = read_file(dir->path() / "f", 99);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kTooLarge);
}

TEST(Os, a_read_past_the_end_is_corrupt_not_short) {
  auto dir = TemporaryDirectory::create("sluice-os");
  ASSERT_TRUE(replace_file(dir->path() / "f", "abc"));
  auto fd = open_file(dir->path() / "f", O_RDONLY);
  std::array<std::byte, 4> buffer{};
  const auto got = pread_all(fd->get(), buffer, 0, "f");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kCorrupt);
}

TEST(Os, a_full_device_is_no_space) {
  auto fd = open_file("/dev/full", O_WRONLY);
  ASSERT_TRUE(fd);
  const std::array<std::byte, 8> bytes{};
  const auto put = pwrite_all(fd->get(), bytes, 0, "/dev/full");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, ErrorCode::kNoSpace);
}

TEST(Os, temporary_directories_go_with_their_owner) {
  std::filesystem::path path;
  {
    auto dir = TemporaryDirectory::create("sluice-os");
    path = dir->path();
    ASSERT_TRUE(replace_file(path / "f", "x"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace sluice
