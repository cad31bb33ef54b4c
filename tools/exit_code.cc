#include "tools/exit_code.h"

namespace sluice::tools {

ExitCode exit_code_of(const Error& error) {
  if (error.data_loss) return kDamaged;
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kTooLarge:
      return kUsage;
    case ErrorCode::kNotFound:
      return kNotFound;
    case ErrorCode::kExists:
    case ErrorCode::kConflict:
      return kRefused;
    case ErrorCode::kUnavailable:
    case ErrorCode::kTimedOut:
      return kNoService;
    case ErrorCode::kNoSpace:
      return kNoSpace;
    case ErrorCode::kAccess:
      return kNoPermission;
    case ErrorCode::kCorrupt:
      return kDamaged;
    default:
      return kFailed;
  }
}

}  // namespace sluice::tools
