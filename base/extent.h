#pragma once

#include <algorithm>
#include <optional>

#include "base/types.h"

namespace sluice {

// A half-open range of bytes [begin, end). Empty when begin == end.
struct Extent {
  Offset begin;
  Offset end;

  static constexpr Extent at(Offset begin, Length length) { return {begin, begin + length}; }

  constexpr Length length() const { return end - begin; }
  constexpr bool empty() const { return begin == end; }
  // True for what a hostile message may not contain: backwards, or beyond the largest file.
  constexpr bool valid() const { return begin <= end && end.value <= kMaxFileBytes; }
  constexpr bool contains(Offset at) const { return begin <= at && at < end; }
  constexpr bool contains(const Extent& o) const { return begin <= o.begin && o.end <= end; }
  constexpr bool overlaps(const Extent& o) const { return begin < o.end && o.begin < end; }

  constexpr std::optional<Extent> intersect(const Extent& o) const {
    const Extent both{std::max(begin, o.begin), std::min(end, o.end)};
    return both.begin < both.end ? std::optional(both) : std::nullopt;
  }

  constexpr auto operator<=>(const Extent&) const = default;
};

}  // namespace sluice
