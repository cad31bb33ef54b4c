#pragma once

#include <string>
#include <string_view>

// Text that others wrote (names of files, above all) as something that may be put on a terminal, or into a
// line that is parsed. Pure.
namespace sluice {

// What could break a line or steer a terminal is escaped: control characters as \n, \t, \r or \xNN, and so
// each byte of what is no UTF-8, of the control characters U+0080 to U+009F, of the line separators and of
// the marks that turn the direction of writing. For sentences.
std::string printable(std::string_view text);

// The same with every backslash doubled, so that different names never look alike. For names.
std::string printable_name(std::string_view name);

}  // namespace sluice
