#include "tools/exit_code.h"

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

TEST(ExitCode, IsWhatTheHelpSays) {
  const std::pair<ErrorCode, int> cases[] = {
      {ErrorCode::kInternal, 1}, {ErrorCode::kInvalidArgument, 2}, {ErrorCode::kNotFound, 3},
      {ErrorCode::kExists, 4},   {ErrorCode::kAccess, 7},          {ErrorCode::kNoSpace, 6},
      {ErrorCode::kIo, 1},       {ErrorCode::kCorrupt, 8},         {ErrorCode::kUnavailable, 5},
      {ErrorCode::kTimedOut, 5}, {ErrorCode::kFenced, 1},          {ErrorCode::kConflict, 4},
      {ErrorCode::kTooLarge, 2}, {ErrorCode::kUnsupported, 2},     {ErrorCode::kProtocol, 1},
      {ErrorCode::kBusy, 1},     {ErrorCode::kAborted, 1},
  };
  EXPECT_EQ(std::size(cases), size_t{kLastErrorCode});
  for (const auto& [code, exit_code] : cases)
    EXPECT_EQ(exit_code_of(Error(code, "x")), exit_code) << to_string(code);
}

TEST(ExitCode, LostDataIsDamageWhateverFailed) {
  EXPECT_EQ(exit_code_of(Error(ErrorCode::kIo, "x").mark_data_loss()), kDamaged);
}

}  // namespace
}  // namespace sluice::tools
