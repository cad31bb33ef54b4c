#include "tools/sizes.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace sluice::tools {
namespace {
constexpr std::string_view kUnits = "KMGTPE";
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const auto refuse = [&] {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no amount of bytes; write e.g. 1048576, 64K, 1.5G", text));
  };
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || !(value >= 0)) return refuse();
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  int power = 0;
  if (!unit.empty() && unit != "B") {
    const size_t index = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
    if (index == std::string_view::npos) return refuse();
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return refuse();
    power = static_cast<int>(index) + 1;
  }
  if (power == 0) {
    uint64_t whole = 0;  // exactly: a double has 53 bits
    const auto [stop, wrong] = std::from_chars(text.data(), text.data() + text.size(), whole);
    if (wrong != std::errc{} || stop != end) return refuse();
    return whole;
  }
  const double bytes = std::ldexp(value, 10 * power);
  if (bytes >= std::ldexp(1.0, 64)) return refuse();
  return static_cast<uint64_t>(bytes);
}

std::string print_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  int power = 0;
  while (value >= 1023.95 && power < static_cast<int>(kUnits.size())) {  // 1023.95 would be printed as 1024.0
    value /= 1024;
    ++power;
  }
  return fmt::format("{:.1f} {}iB", value, kUnits[static_cast<size_t>(power) - 1]);
}

}  // namespace sluice::tools
