#include "base/error.h"

#include <array>
#include <cerrno>
#include <system_error>

namespace sluice {

std::string_view to_string(ErrorCode code) {
  static constexpr std::array<std::string_view, kLastErrorCode + 1> kNames = {
      "unknown",  "internal error", "invalid argument", "not found",      "exists",    "access denied",
      "no space", "I/O error",      "corrupt data",     "unavailable",    "timed out", "fenced",
      "conflict", "too large",      "unsupported",      "protocol error", "busy",      "aborted"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : kNames[0];
}

namespace {

ErrorCode code_of(int errnum) {
  switch (errnum) {
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::kNoSpace;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kAccess;
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EEXIST:
      return ErrorCode::kExists;
    case EINVAL:
    case ENAMETOOLONG:
      return ErrorCode::kInvalidArgument;
    case EFBIG:
      return ErrorCode::kTooLarge;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

Error errno_error(int errnum, std::string_view operation, std::string_view object) {
  std::string message;
  message.append("cannot ").append(operation).append(" ").append(object).append(": ");
  message.append(std::generic_category().message(errnum));
  return {code_of(errnum), std::move(message)};
}

}  // namespace sluice
