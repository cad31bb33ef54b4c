#include "bench/checkpoint/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace sluice::bench {
namespace {

CellRange whole(const Mesh& mesh) {
  return {CellIndex(0), CellIndex(mesh.cell_count())};
}

std::vector<double> reals(const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Format, a_value_depends_on_its_cell_not_on_who_computes_it) {
  const Mesh mesh({128, 2, 4});
  const std::vector<Cell> cells = mesh.cells(whole(mesh));
  for (uint32_t n = 0; n < kVariables.size(); ++n) {
    const std::vector<std::byte> all = variable_bytes(mesh, 1, cells, VariableIndex(n));
    std::vector<std::byte> joined;
    for (uint32_t rank = 0; rank < 5; ++rank) {
      const std::vector<Cell> part = mesh.cells(mesh.reader_share(rank, 5));
      const std::vector<std::byte> bytes = variable_bytes(mesh, 1, part, VariableIndex(n));
      joined.insert(joined.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(joined, all) << kVariables[n].name;
  }
}

TEST(Format, state_values_are_finite_and_no_two_cells_share_one) {
  const Mesh mesh({128, 2, 4});
  const std::vector<Cell> cells = mesh.cells(whole(mesh));
  for (const uint32_t n : {3U, 4U, 5U}) {
    const std::vector<double> values = reals(variable_bytes(mesh, 1, cells, VariableIndex(n)));
    EXPECT_TRUE(std::ranges::all_of(values, [](double v) { return std::isfinite(v) && v != 0; }));
    EXPECT_EQ(std::set<double>(values.begin(), values.end()).size(), values.size()) << kVariables[n].name;
  }
}

TEST(Format, seed_and_step_change_every_state_value) {
  const Mesh mesh({128, 2, 4});
  const std::vector<Cell> cells = mesh.cells({CellIndex(0), CellIndex(1000)});
  const std::vector<double> one = reals(variable_bytes(mesh, 1, cells, VariableIndex(3)));
  const std::vector<double> two = reals(variable_bytes(mesh, 2, cells, VariableIndex(3)));
  const std::vector<double> later = reals(variable_bytes(Mesh({128, 2, 5}), 1, cells, VariableIndex(3)));
  for (size_t n = 0; n < one.size(); ++n) {
    EXPECT_NE(one[n], two[n]);
    EXPECT_NE(one[n], later[n]);
  }
}

TEST(Format, the_wave_is_highest_on_the_front) {
  const Mesh mesh({128, 2, 20});
  const std::vector<Cell> cells = mesh.cells(whole(mesh));
  const std::vector<double> heights = reals(variable_bytes(mesh, 1, cells, VariableIndex(3)));
  const auto highest = static_cast<size_t>(std::ranges::max_element(heights) - heights.begin());
  EXPECT_EQ(cells[highest].level, 2);
}

TEST(Format, flush_points_and_what_they_leave_synced) {
  const auto synced = [](FlushPolicy policy) {
    std::vector<uint32_t> counts;
    for (uint32_t n = 0; n < kVariables.size(); ++n)
      counts.push_back(synced_variables_during(policy, VariableIndex(n)));
    return counts;
  };
  EXPECT_EQ(synced(FlushPolicy::kNone), (std::vector<uint32_t>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(synced(FlushPolicy::kGroup), (std::vector<uint32_t>{0, 0, 0, 3, 3, 3}));
  EXPECT_EQ(synced(FlushPolicy::kVariable), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(flushes_after(FlushPolicy::kGroup, VariableIndex(5)));
  EXPECT_FALSE(flushes_after(FlushPolicy::kGroup, VariableIndex(4)));
}

TEST(Format, names_find_their_variables) {
  for (uint32_t n = 0; n < kVariables.size(); ++n)
    EXPECT_EQ(variable_named(kVariables[n].name), VariableIndex(n));
  EXPECT_EQ(variable_named("h"), std::nullopt);
  EXPECT_EQ(kCellBytes, 36U);
}

}  // namespace
}  // namespace sluice::bench
