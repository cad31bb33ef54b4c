#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice {

// An error's sentence in at most `bytes` bytes (40 or more). What is too long loses words of its cause, for
// "..."; the next step, which stands behind the last "; ", is kept as long as it leaves room for any cause.
// Pure.
std::string fit_sentence(std::string_view sentence, size_t bytes);

}  // namespace sluice
