#include "adio/hints.h"

#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "base/nearest.h"

namespace sluice::adio {
namespace {

constexpr uint64_t kMinChunkBytes = 64 * 1024;
constexpr uint64_t kMaxChunkBytes = 16 * 1024 * 1024;
constexpr uint64_t kMaxLockaheadExtents = 4096;

const std::vector<std::string_view> kNames = {
    "sluice_chunk_size",        "sluice_drain",        "sluice_lock_mode", "sluice_lock_reason",
    "sluice_lockahead_extents", "sluice_object_class", "sluice_visibility"};
const std::vector<std::string_view> kLockModes = {"auto", "standard", "group", "lockahead", "none"};
const std::vector<std::string_view> kVisibilities = {"commit"};
const std::vector<std::string_view> kDrains = {"immediate", "on_sync", "watermark", "idle"};

bool contains(const std::vector<std::string_view>& values, std::string_view value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::string join(const std::vector<std::string_view>& values) {
  std::string text;
  for (const auto value : values) text += (text.empty() ? "" : ", ") + std::string(value);
  return text;
}

// A number of bytes: "65536", "64k", "1M", "1g".
std::optional<uint64_t> parse_bytes(std::string_view text) {
  uint64_t number = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (bad != std::errc()) return std::nullopt;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  int shift = 0;
  if (unit == "k" || unit == "K" || unit == "KiB")
    shift = 10;
  else if (unit == "m" || unit == "M" || unit == "MiB")
    shift = 20;
  else if (unit == "g" || unit == "G" || unit == "GiB")
    shift = 30;
  else if (!unit.empty())
    return std::nullopt;
  if (number > (std::numeric_limits<uint64_t>::max() >> shift)) return std::nullopt;
  return number << shift;
}

bool valid_chunk(uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kMinChunkBytes && bytes <= kMaxChunkBytes;
}

tl::unexpected<Error> bad_value(const std::string& name, const std::string& value,
                                const std::string& advice) {
  return fail(ErrorCode::kInvalidArgument, "the hint " + name + "=" + value + " is not valid; " + advice);
}

Result<> check_choice(const std::string& name, const std::string& value,
                      const std::vector<std::string_view>& choices) {
  if (contains(choices, value)) return {};
  return bad_value(
      name, value,
      "the nearest value is " + std::string(nearest(value, choices)) + " (of " + join(choices) + ")");
}

// Sluice's own hints.
Result<> apply(const std::string& name, const std::string& value, Hints& hints) {
  if (name == "sluice_object_class") {
    hints.object_class = value;  // the service knows which classes the pool can hold
  } else if (name == "sluice_chunk_size") {
    const auto bytes = parse_bytes(value);
    if (!bytes || !valid_chunk(*bytes)) {
      const uint64_t near =
          std::clamp(bytes ? std::bit_floor(*bytes) : kMinChunkBytes, kMinChunkBytes, kMaxChunkBytes);
      return bad_value(name, value,
                       "use a power of two from 64k to 16m; the nearest below is " + std::to_string(near));
    }
    hints.chunk_bytes = *bytes;
  } else if (name == "sluice_lock_mode") {
    if (auto ok = check_choice(name, value, kLockModes); !ok) return ok;
    hints.lock_mode = value;
  } else if (name == "sluice_visibility") {
    return check_choice(name, value, kVisibilities);
  } else if (name == "sluice_drain") {
    return check_choice(name, value, kDrains);
  } else if (name == "sluice_lockahead_extents") {
    const auto extents = parse_bytes(value);
    if (!extents || *extents == 0 || *extents > kMaxLockaheadExtents)
      return bad_value(name, value, "use a number from 1 to " + std::to_string(kMaxLockaheadExtents));
    hints.lockahead_extents = static_cast<uint32_t>(*extents);
  }
  return {};
}

bool is_yes(const std::string& value) {
  return value == "1" || value == "true" || value == "enable";
}

// Hints of other libraries, whose values may be meant for something else.
void advise(const std::string& name, const std::string& value, Hints& hints) {
  if (name == "striping_unit" && hints.chunk_bytes == 0) {
    const auto bytes = parse_bytes(value);
    if (bytes && valid_chunk(*bytes)) hints.chunk_bytes = *bytes;
  } else if (name == "cray_cb_write_lock_mode" && hints.lock_mode.empty()) {
    if (value == "0") hints.lock_mode = "standard";
    if (value == "1") hints.lock_mode = "group";
    if (value == "2") hints.lock_mode = "lockahead";
  } else if (name == "romio_lustre_cb_lock_ahead_write" && hints.lock_mode.empty() && is_yes(value)) {
    hints.lock_mode = "lockahead";
  } else if ((name == "cray_cb_lock_ahead_num_extents" || name == "romio_lustre_cb_lock_ahead_num_extents") &&
             hints.lockahead_extents == 0) {
    const auto extents = parse_bytes(value);
    if (extents && *extents > 0)
      hints.lockahead_extents = static_cast<uint32_t>(std::min<uint64_t>(*extents, kMaxLockaheadExtents));
  }
}

bool matches(const std::string& pattern, const std::string& path) {
  const std::string last = path.substr(path.rfind('/') + 1);
  return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0 || ::fnmatch(pattern.c_str(), last.c_str(), 0) == 0;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace

std::optional<Error> find_unknown_hint(const HintList& hints) {
  for (const auto& [name, value] : hints) {
    if (name.starts_with("sluice_") && !contains(kNames, name)) {
      return Error(ErrorCode::kInvalidArgument,
                   "there is no hint " + name + "; the nearest is " + std::string(nearest(name, kNames)));
    }
  }
  return std::nullopt;
}

Result<Hints> parse_hints(const HintList& hints) {
  Hints parsed;
  for (const auto& [name, value] : hints) {
    if (auto ok = apply(name, value, parsed); !ok) return fail(ok.error());
  }
  for (const auto& [name, value] : hints) advise(name, value, parsed);
  return parsed;
}

Result<HintList> hints_for_path(std::string_view text, const std::string& path) {
  HintList found;
  if (text.empty()) return found;
  for (const auto& rule : split(text, ',')) {
    const auto words = split(rule, ':');
    if (words.size() < 2 || words[0].empty()) {
      return fail(ErrorCode::kInvalidArgument, "SLUICE_HINTS has the rule \"" + rule +
                                                   "\"; write pattern:key=value:key=value,pattern:...");
    }
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      if (equals == 0 || equals == std::string::npos) {
        return fail(ErrorCode::kInvalidArgument,
                    "SLUICE_HINTS has \"" + words[i] + "\" where key=value is wanted");
      }
      if (matches(words[0], path))
        found.emplace_back(words[i].substr(0, equals), words[i].substr(equals + 1));
    }
  }
  return found;
}

}  // namespace sluice::adio
