#include "base/sentence.h"

namespace sluice {
namespace {

constexpr std::string_view kCut = "...";
constexpr size_t kLeastCauseBytes = 24;

// Between words, or in one that takes up most of the room, but never in the middle of a UTF-8 character.
std::string_view cut(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  if (const size_t space = text.rfind(' ', bytes); space != std::string_view::npos && space > bytes / 2)
    return text.substr(0, space);
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

std::string fit_sentence(std::string_view sentence, size_t bytes) {
  if (sentence.size() <= bytes) return std::string(sentence);
  size_t end = sentence.rfind("; ");
  if (end == std::string_view::npos || sentence.size() - end + kCut.size() + kLeastCauseBytes > bytes)
    end = sentence.size();
  const std::string_view next_step = sentence.substr(end);
  std::string fitted(cut(sentence.substr(0, end), bytes - kCut.size() - next_step.size()));
  return fitted.append(kCut).append(next_step);
}

}  // namespace sluice
