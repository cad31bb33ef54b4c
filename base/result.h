#pragma once

#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"

namespace sluice {

// A value or an Error. Must be read.
template <class T = void>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}
inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error(code, std::move(message)));
}

// Adds what the caller was doing: "<context>: <message>".
inline tl::unexpected<Error> fail_with_context(std::string_view context, Error error) {
  error.message.insert(0, std::string(context) + ": ");
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace sluice
