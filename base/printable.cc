#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace sluice {
namespace {

struct Character {
  size_t bytes = 1;
  uint32_t code = 0;
  bool valid = false;
};

// The UTF-8 character that `text`, which is not empty, begins with.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t head = byte(0);
  if (head < 0x80) return {1, head, true};
  const size_t bytes = head >= 0xc2 && head <= 0xdf   ? 2
                       : (head & 0xf0) == 0xe0        ? 3
                       : head >= 0xf0 && head <= 0xf4 ? 4
                                                      : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  uint32_t code = head & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {bytes, code, true};
}

bool steers(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x200e || code == 0x200f || code == 0x61c ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(c));
  }
}

std::string escape(std::string_view text, bool double_backslashes) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::string_view bytes = text.substr(0, character.bytes);
    if (!character.valid || steers(character.code)) {
      for (char c : bytes) append_escaped(out, c);
    } else {
      if (double_backslashes && character.code == '\\') out += '\\';
      out += bytes;
    }
    text.remove_prefix(character.bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return escape(text, false);
}

std::string printable_name(std::string_view name) {
  return escape(name, true);
}

}  // namespace sluice
