#include "base/extent_map.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

namespace sluice {
namespace {

// A value that knows which byte of which write it stands for, so that cutting can be checked byte by byte.
struct Source {
  uint32_t write = 0;
  uint64_t at = 0;
  Source advanced(Length by) const { return {write, at + by.value}; }
  bool operator==(const Source&) const = default;
};

constexpr Extent ext(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}

TEST(ExtentMap, a_write_in_the_middle_splits_the_older_one) {
  ExtentMap<Source> map;
  map.assign(ext(0, 100), {1, 0});
  map.assign(ext(40, 60), {2, 0});
  const auto found = map.lookup(ext(0, 100));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].extent, ext(0, 40));
  EXPECT_EQ(found[1].value, (Source{2, 0}));
  EXPECT_EQ(found[2].extent, ext(60, 100));
  EXPECT_EQ(found[2].value, (Source{1, 60}));
}

TEST(ExtentMap, holes_are_what_lookup_leaves_out) {
  ExtentMap<Source> map;
  map.assign(ext(10, 20), {1, 0});
  map.assign(ext(30, 40), {2, 0});
  EXPECT_EQ(map.holes(ext(0, 50)), (std::vector<Extent>{ext(0, 10), ext(20, 30), ext(40, 50)}));
  EXPECT_EQ(map.holes(ext(12, 18)), std::vector<Extent>{});
}

constexpr size_t kModelBytes = 128;
using Model = std::array<std::optional<Source>, kModelBytes>;

// Every byte of the map agrees with a plain array that was written the same way.
void expect_same(const ExtentMap<Source>& map, const Model& model) {
  Model seen{};
  Offset last_end(0);
  map.for_each([&](Extent extent, const Source& value) {
    RC_ASSERT(!extent.empty());
    RC_ASSERT(last_end <= extent.begin);
    last_end = extent.end;
    for (uint64_t at = extent.begin.value; at < extent.end.value; ++at) {
      seen[at] = value.advanced(Length(at - extent.begin.value));
    }
  });
  RC_ASSERT(seen == model);
}

RC_GTEST_PROP(ExtentMapProperty, equals_a_naive_byte_array, ()) {
  ExtentMap<Source> map;
  Model model{};
  const auto steps = *rc::gen::inRange(0, 60);
  for (int step = 1; step <= steps; ++step) {
    const auto a = *rc::gen::inRange<uint64_t>(0, kModelBytes);
    const auto b = *rc::gen::inRange<uint64_t>(a, kModelBytes);
    if (*rc::gen::inRange(0, 4) == 0) {
      map.erase(ext(a, b));
      for (uint64_t at = a; at < b; ++at) model[at].reset();
    } else {
      map.assign(ext(a, b), {static_cast<uint32_t>(step), 0});
      for (uint64_t at = a; at < b; ++at) model[at] = Source{static_cast<uint32_t>(step), at - a};
    }
    expect_same(map, model);
  }
  const auto a = *rc::gen::inRange<uint64_t>(0, kModelBytes);
  const auto b = *rc::gen::inRange<uint64_t>(a, kModelBytes);
  uint64_t mapped = 0;
  for (const auto& entry : map.lookup(ext(a, b))) {
    for (uint64_t at = entry.extent.begin.value; at < entry.extent.end.value; ++at) {
      RC_ASSERT(model[at] == entry.value.advanced(Length(at - entry.extent.begin.value)));
    }
    mapped += entry.extent.length().value;
  }
  for (const auto& hole : map.holes(ext(a, b))) {
    for (uint64_t at = hole.begin.value; at < hole.end.value; ++at) RC_ASSERT(!model[at]);
    mapped += hole.length().value;
  }
  RC_ASSERT(mapped == b - a);
}

}  // namespace
}  // namespace sluice
