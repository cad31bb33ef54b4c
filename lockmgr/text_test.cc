#include "lockmgr/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::lockmgr {
namespace {

using testing::HasSubstr;

TEST(TableText, tells_the_story_of_two_writers) {
  EXPECT_EQ(run_script(R"(# b takes over from a
grant a PW 0 100
try b PW 0-10 20-30 noexpand
grant b PW 0 10
show
cancel a L1
show
)"),
            R"(a granted L1 PW [0, max)
b dropped [0, 10) by a granted lock
b dropped [20, 30) by a granted lock
b waits W1 for PW [0, 10)
  a revoke L1 [0, max)
L1 a PW [0, max) revoked
W1 b PW [0, 10) waiting
locks 1, waiting 1, contention 16
a cancelled L1
  b granted L2 PW [0, max) after W1
L2 b PW [0, max)
locks 1, waiting 0, contention 16
)");
}

TEST(TableText, says_covered_and_same_and_names_the_lock) {
  EXPECT_EQ(
      run_script("try a PW 0-1k\ntry a PW 0-1k\ntry a PR 0 10\ntry a GROUP:7 2k-1m\ntry a GROUP:7 3k-4k\n"),
      "a granted L1 PW [0, 1024)\na same L1 PW [0, 1024)\na covered L1 PW [0, 1024)\n"
      "a granted L2 GROUP(7) [2048, 1048576)\na covered L2 GROUP(7) [2048, 1048576)\n");
}

TEST(TableText, evicts_withdraws_and_reclaims) {
  EXPECT_EQ(
      run_script(
          "grant a PW 0 10 noexpand\ngrant b PW 0 5\ngrant c PR 0 3\nwithdraw b W1\nevict a\nreclaim L2\n"),
      "a granted L1 PW [0, 10)\nb waits W1 for PW [0, 5)\n  a revoke L1 [0, 10)\nc waits W2 for PR [0, 3)\n"
      "b withdrew W1\na evicted, locks freed: 1\n  c granted L2 PR [0, max) after W2\n  c revoke L2 [0, "
      "max)\n");
}

TEST(TableText, a_bad_line_is_named_and_changes_nothing) {
  const auto error_of = [](std::string line) {
    const std::string text = run_script(line + "\nshow\n");
    EXPECT_THAT(text, testing::StartsWith("line 1: error: "));
    EXPECT_THAT(text, testing::EndsWith("\nlocks 0, waiting 0, contention 0\n"));
    return text;
  };
  EXPECT_THAT(error_of("lock a PW 0 1"), HasSubstr("'lock'"));
  EXPECT_THAT(error_of("grant a"), HasSubstr("needs an owner"));
  EXPECT_THAT(error_of("grant a XX 0 1"), HasSubstr("unknown mode 'XX'"));
  EXPECT_THAT(error_of("grant a GROUP:0 0 1"), HasSubstr("'group'"));
  EXPECT_THAT(error_of("grant a GROUP:x 0 1"), HasSubstr("unknown mode"));
  EXPECT_THAT(error_of("grant a PW 0 1 2"), HasSubstr("'0' is not an extent"));
  EXPECT_THAT(error_of("grant a PW 0-z"), HasSubstr("'z' is not an offset"));
  EXPECT_THAT(error_of("grant a PW 99999999999999999999 1"), HasSubstr("not an extent"));
  EXPECT_THAT(error_of("grant a PW 0-99999999999999999g"), HasSubstr("not an offset"));
  EXPECT_THAT(error_of("grant a PW 10-5"), HasSubstr("begin must be below end"));
  EXPECT_THAT(error_of("grant a PW noexpand"), HasSubstr("'extents'"));
  EXPECT_THAT(error_of("cancel a L1"), HasSubstr("no lock is called 'L1'"));
  EXPECT_THAT(error_of("withdraw a W1"), HasSubstr("no such waiting request"));
  EXPECT_THAT(error_of("reclaim L9"), HasSubstr("no lock is called 'L9'"));
  EXPECT_THAT(error_of("evict"), HasSubstr("commands are"));
}

TEST(TableText, a_lock_given_back_keeps_its_name_and_cannot_be_given_back_again) {
  EXPECT_THAT(
      run_script("try a PW 0-1\ncancel a L1\ncancel a L1\nreclaim L1\n"),
      testing::AllOf(HasSubstr("line 3: error: lock cancel"), HasSubstr("line 4: error: 'L1' is not held")));
}

}  // namespace
}  // namespace sluice::lockmgr
