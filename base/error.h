#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// What went wrong, in the terms a caller acts on. On the wire and in the C interface by number: append only.
enum class ErrorCode : uint16_t {
  kInternal = 1,     // a broken promise of our own
  kInvalidArgument,  // the caller's words make no sense
  kNotFound,
  kExists,
  kAccess,       // permission
  kNoSpace,      // a tier or a disk is full
  kIo,           // a medium failed
  kCorrupt,      // bytes read are not the bytes written
  kUnavailable,  // the service cannot be reached now
  kTimedOut,
  kFenced,    // the session was evicted; its token is stale
  kConflict,  // a compare-and-set lost, or an exclusive holder exists
  kTooLarge,  // beyond a named limit
  kUnsupported,
  kProtocol,  // a peer sent what the protocol does not allow
  kBusy,      // not now: a resource is in use
  kAborted,   // the transaction or operation was abandoned
};
inline constexpr uint16_t kLastErrorCode = static_cast<uint16_t>(ErrorCode::kAborted);

std::string_view to_string(ErrorCode code);

// An error as a value. `message` is one sentence fit for a user: cause, object, next step.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  bool retryable = false;        // the same call may succeed later, unchanged
  bool data_loss = false;        // bytes that were acknowledged cannot be given back
  bool outcome_unknown = false;  // the effect may or may not have happened

  Error() = default;
  Error(ErrorCode c, std::string m) : code(c), message(std::move(m)) {}

  Error& mark_retryable() {
    retryable = true;
    return *this;
  }
  Error& mark_data_loss() {
    data_loss = true;
    return *this;
  }
  Error& mark_outcome_unknown() {
    outcome_unknown = true;
    return *this;
  }
};

// The error of a failed system call on `object`, e.g. errno_error(ENOSPC, "write", "/pool/targets/t0/x").
// ENOSPC and EDQUOT become kNoSpace, EACCES and EPERM kAccess, ENOENT kNotFound, EEXIST kExists, the rest
// kIo.
Error errno_error(int errnum, std::string_view operation, std::string_view object);

}  // namespace sluice
