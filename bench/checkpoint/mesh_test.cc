#include "bench/checkpoint/mesh.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace sluice::bench {
namespace {

std::vector<Cell> all_cells(const Mesh& mesh) {
  return mesh.cells({CellIndex(0), CellIndex(mesh.cell_count())});
}

// Level of the leaf over each finest cell, row by row; -1 where no leaf is. Fails on a second leaf over the
// same place.
std::vector<int> paint(const Mesh& mesh) {
  const int64_t fine = int64_t{1} << mesh.spec().levels;
  const int64_t width = mesh.spec().size * fine;
  std::vector<int> levels(static_cast<size_t>(width * width), -1);
  for (const Cell& cell : all_cells(mesh)) {
    const int64_t side = fine >> cell.level;
    for (int64_t y = cell.j * side; y < (cell.j + 1) * side; ++y) {
      for (int64_t x = cell.i * side; x < (cell.i + 1) * side; ++x) {
        int& level = levels.at(static_cast<size_t>(y * width + x));
        EXPECT_EQ(level, -1) << "two leaves over finest cell " << x << "," << y;
        level = cell.level;
      }
    }
  }
  return levels;
}

// The square of finest cells (x, y) to (x+1, y+1): touching leaves, corners included.
bool balanced_at(const std::vector<int>& levels, size_t width, size_t x, size_t y) {
  const auto [low, high] = std::minmax({levels[y * width + x], levels[y * width + x + 1],
                                        levels[(y + 1) * width + x], levels[(y + 1) * width + x + 1]});
  return high - low <= 1;
}

class MeshShape : public testing::TestWithParam<MeshSpec> {};

TEST_P(MeshShape, covers_the_domain_exactly_once_and_is_two_to_one_balanced) {
  const Mesh mesh(GetParam());
  const std::vector<int> levels = paint(mesh);
  EXPECT_EQ(std::ranges::count(levels, -1), 0);
  const size_t width = size_t{mesh.spec().size} << mesh.spec().levels;
  size_t unbalanced = 0;
  for (size_t y = 0; y + 1 < width; ++y) {
    for (size_t x = 0; x + 1 < width; ++x) unbalanced += balanced_at(levels, width, x, y) ? 0 : 1;
  }
  EXPECT_EQ(unbalanced, 0U);
  EXPECT_EQ(*std::ranges::max_element(levels), static_cast<int>(mesh.spec().levels))
      << "nothing is fully refined";
  EXPECT_EQ(*std::ranges::min_element(levels), 0) << "everything is refined";
}

INSTANTIATE_TEST_SUITE_P(Steps, MeshShape,
                         testing::Values(MeshSpec{128, 1, 0}, MeshSpec{128, 2, 7}, MeshSpec{128, 2, 31},
                                         MeshSpec{128, 2, 32}, MeshSpec{128, 3, 13}, MeshSpec{256, 2, 50},
                                         MeshSpec{128, 4, 20}, MeshSpec{128, 2, UINT64_MAX}));

TEST(Mesh, writer_shares_put_together_are_the_mesh_for_every_rank_count) {
  const Mesh mesh({128, 2, 9});
  const std::vector<Cell> whole = all_cells(mesh);
  ASSERT_EQ(whole.size(), mesh.cell_count());
  for (const uint32_t ranks : {1U, 2U, 3U, 4U, 7U, 64U}) {
    std::vector<Cell> joined;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const CellRange share = mesh.writer_share(rank, ranks);
      EXPECT_EQ(share.begin.value, joined.size());
      const std::vector<Cell> part = mesh.cells(share);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole) << ranks << " ranks";
  }
}

TEST(Mesh, more_ranks_than_coarse_cells_leave_some_ranks_empty_and_lose_nothing) {
  const Mesh mesh({128, 1, 3});
  const uint32_t ranks = 128 * 128 + 5;
  EXPECT_EQ(mesh.writer_share(0, ranks).begin, CellIndex(0));
  EXPECT_EQ(mesh.writer_share(ranks - 1, ranks).end, CellIndex(mesh.cell_count()));
  int empty = 0;
  for (uint32_t rank = 0; rank + 1 < ranks; rank += rank % 1000 < 50 ? 1 : 50) {
    const CellRange share = mesh.writer_share(rank, ranks);
    EXPECT_EQ(mesh.writer_share(rank + 1, ranks).begin, share.end);
    EXPECT_LE(share.count(), 4U) << "more than the leaves of one coarse cell";
    empty += share.count() == 0 ? 1 : 0;
  }
  EXPECT_GT(empty, 0);
}

RC_GTEST_PROP(MeshProperty, any_range_is_that_slice_of_the_whole, ()) {
  const Mesh mesh({128, *rc::gen::inRange(1U, 4U), *rc::gen::inRange<uint64_t>(0, 100)});
  const uint64_t end = *rc::gen::inRange<uint64_t>(0, mesh.cell_count() + 1);
  const uint64_t begin = *rc::gen::inRange<uint64_t>(0, end + 1);
  const std::vector<Cell> whole = all_cells(mesh);
  const std::vector<Cell> slice = mesh.cells({CellIndex(begin), CellIndex(end)});
  RC_ASSERT(std::equal(slice.begin(), slice.end(), whole.begin() + static_cast<ptrdiff_t>(begin),
                       whole.begin() + static_cast<ptrdiff_t>(end)));
}

RC_GTEST_PROP(MeshProperty, reader_shares_are_a_partition_even_to_within_one, ()) {
  const Mesh mesh({128, 2, *rc::gen::inRange<uint64_t>(0, 100)});
  const uint32_t ranks = *rc::gen::inRange(1U, 300U);
  uint64_t next = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const CellRange share = mesh.reader_share(rank, ranks);
    RC_ASSERT(share.begin.value == next);
    RC_ASSERT(share.count() == mesh.cell_count() / ranks || share.count() == mesh.cell_count() / ranks + 1);
    next = share.end.value;
  }
  RC_ASSERT(next == mesh.cell_count());
}

TEST(Mesh, writers_have_uneven_shares) {
  const Mesh mesh({128, 2, 5});
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    least = std::min(least, mesh.writer_share(rank, 4).count());
    most = std::max(most, mesh.writer_share(rank, 4).count());
  }
  EXPECT_GT(most, least + least / 10);
}

TEST(Mesh, the_number_of_cells_changes_at_every_step) {
  for (const uint32_t levels : {1U, 2U, 3U}) {
    uint64_t before = 0;
    for (uint64_t step = 0; step < 130; ++step) {
      const uint64_t cells = Mesh({128, levels, step}).cell_count();
      EXPECT_NE(cells, before) << "levels " << levels << " step " << step;
      before = cells;
    }
  }
}

TEST(Mesh, sizes_follow_the_problem_size) {
  for (uint32_t size = kMinMeshSize; size <= kMaxMeshSize; size *= 2) {
    const uint64_t coarse_cells = uint64_t{size} * size;
    const Mesh mesh({size, 2, 10});
    EXPECT_GT(mesh.cell_count(), coarse_cells);
    EXPECT_LT(mesh.cell_count(), 2 * coarse_cells);
  }
}

TEST(Mesh, sizes_outside_the_limits_are_not_valid) {
  EXPECT_FALSE((MeshSpec{64, 2, 0}.valid()));
  EXPECT_FALSE((MeshSpec{4096, 2, 0}.valid()));
  EXPECT_FALSE((MeshSpec{192, 2, 0}.valid()));
  EXPECT_FALSE((MeshSpec{128, 0, 0}.valid()));
  EXPECT_FALSE((MeshSpec{128, 5, 0}.valid()));
  EXPECT_TRUE((MeshSpec{2048, 4, 0}.valid()));
}

}  // namespace
}  // namespace sluice::bench
