#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "base/result.h"

namespace sluice {
namespace {

TEST(Error, every_code_has_a_name_of_its_own) {
  std::set<std::string_view> names;
  for (uint16_t code = 1; code <= kLastErrorCode; ++code)
    names.insert(to_string(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), kLastErrorCode);
  EXPECT_EQ(to_string(static_cast<ErrorCode>(999)), "unknown");
}

TEST(Error, errno_keeps_cause_operation_and_object) {
  const Error full = errno_error(ENOSPC, "write", "/pool/t0/x");
  EXPECT_EQ(full.code, ErrorCode::kNoSpace);
  EXPECT_EQ(full.message, "cannot write /pool/t0/x: No space left on device");
  EXPECT_EQ(errno_error(EACCES, "open", "x").code, ErrorCode::kAccess);
  EXPECT_EQ(errno_error(ENOENT, "open", "x").code, ErrorCode::kNotFound);
  EXPECT_EQ(errno_error(EIO, "open", "x").code, ErrorCode::kIo);
}

TEST(Result, context_is_put_in_front_and_facts_survive) {
  const Result<int> failed = fail_with_context(
      "drain of /ckpt", Error(ErrorCode::kIo, "disk gone").mark_retryable().mark_data_loss());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "drain of /ckpt: disk gone");
  EXPECT_TRUE(failed.error().retryable);
  EXPECT_TRUE(failed.error().data_loss);
}

}  // namespace
}  // namespace sluice
