#include "client/lock_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::client {
namespace {

using lockmgr::LockPolicy;
using testing::HasSubstr;

TEST(LockMode, a_mode_that_is_named_is_taken_and_says_what_it_does) {
  for (const char* mode : {"standard", "group", "lockahead", "none"}) {
    const auto settings = settle_lock_mode(mode, 0, AccessMode::kReadWrite, 3);
    ASSERT_TRUE(settings);
    EXPECT_EQ(settings->name(), mode);
    EXPECT_EQ(settings->takes_locks(), settings->policy != LockPolicy::kNone);
    EXPECT_THAT(settings->explain(), HasSubstr("as asked"));
  }
  const auto wrong = settle_lock_mode("fast", 0, AccessMode::kReadWrite, 0);
  EXPECT_THAT(wrong.error().message, HasSubstr("SLUICE_LOCK_MODE=fast"));
}

TEST(LockMode, auto_goes_by_who_else_writes_and_says_so) {
  const auto mode = [](AccessMode access, uint32_t writers) {
    return settle_lock_mode("auto", 0, access, writers).value();
  };
  EXPECT_EQ(mode(AccessMode::kReadOnly, 4).policy, LockPolicy::kNone);
  EXPECT_THAT(mode(AccessMode::kReadOnly, 4).explain(), HasSubstr("only read"));
  EXPECT_EQ(mode(AccessMode::kReadWrite, 0).policy, LockPolicy::kNone);
  EXPECT_THAT(mode(AccessMode::kWriteOnly, 0).explain(), HasSubstr("nobody else"));
  EXPECT_EQ(mode(AccessMode::kWriteOnly, 2).policy, LockPolicy::kAuto);
  EXPECT_THAT(mode(AccessMode::kReadWrite, 2).explain(), HasSubstr("2 others had the file open"));
}

TEST(LockMode, the_window_is_held_to_its_limit) {
  EXPECT_EQ(settle_lock_mode("lockahead", 0, AccessMode::kReadWrite, 0)->extents, 64u);
  EXPECT_EQ(settle_lock_mode("lockahead", 7, AccessMode::kReadWrite, 0)->extents, 7u);
  EXPECT_THAT(settle_lock_mode("lockahead", 4097, AccessMode::kReadWrite, 0).error().message,
              HasSubstr("sluice_lockahead_extents"));
}

TEST(LockMode, those_who_attach_read_what_was_printed_and_nothing_else) {
  const auto settings = settle_lock_mode("auto", 99, AccessMode::kReadWrite, 5).value();
  EXPECT_EQ(settings.print().find(' '), std::string::npos);
  EXPECT_EQ(LockSettings::read(settings.print()), settings);
  for (const char* word : {"", "none", "none:64", "none:64:0", "none:64:0:0x", "fast:64:0:0", "none:0:0:0",
                           "none:4097:0:0", "none:64:4:0", "none:64:-1:0", "none;64;0;0"}) {
    EXPECT_FALSE(LockSettings::read(word)) << word;
  }
}

}  // namespace
}  // namespace sluice::client
