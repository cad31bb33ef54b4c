#include "bench/checkpoint/mesh.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/assert.h"

namespace sluice::bench {
namespace {

// A cell of side h is split when the front is nearer than kReach * h. 2:1 balance needs kReach >= sqrt(2):
// let a leaf A of side h touch a cell of side h/4. Its parent P, of side h/2, was split, so the front is
// nearer than kReach * h/2 to P, hence nearer than kReach * h/2 + sqrt(2) * h/2 <= kReach * h to A: A would
// have been split too.
constexpr int64_t kReach = 2;

// The radius runs from size/16 to size/16 + 3 * size/8 coarse cells in size/4 steps, and back: one and a half
// coarse cells a step, turning exactly on the ends, so no two consecutive steps have the same radius.
Front front_at(const MeshSpec& spec) {
  const auto size = static_cast<int64_t>(spec.size);
  const int64_t fine = int64_t{1} << spec.levels;
  const int64_t half_period = size / 4;
  const auto phase = static_cast<int64_t>(spec.step % static_cast<uint64_t>(2 * half_period));
  const int64_t moved = std::min(phase, 2 * half_period - phase);
  // Off centre, or four writers would get four equal quadrants.
  return {size * fine * 3 / 8, size * fine * 7 / 16, size * fine / 16 + moved * 3 * fine / 2};
}

}  // namespace

bool MeshSpec::valid() const {
  return std::has_single_bit(size) && size >= kMinMeshSize && size <= kMaxMeshSize && levels >= kMinLevels &&
         levels <= kMaxLevels;
}

Mesh::Mesh(const MeshSpec& spec) : spec_(spec), coarse_side_(int64_t{1} << spec.levels) {
  SLUICE_ASSERT(spec.valid());
  front_ = front_at(spec);
  cell_count_ = leaves_in(root());
}

Mesh::Square Mesh::Square::child(int quadrant) const {
  const int64_t half = side / 2;
  return {x + (quadrant & 1) * half, y + (quadrant >> 1) * half, half};
}

Mesh::Square Mesh::root() const {
  return {0, 0, static_cast<int64_t>(spec_.size) * coarse_side_};
}

uint32_t Mesh::level_of(const Square& square) const {
  return static_cast<uint32_t>(std::countr_zero(static_cast<uint64_t>(coarse_side_)) -
                               std::countr_zero(static_cast<uint64_t>(square.side)));
}

// True when some point of the closed square is nearer than `distance` to the circle.
bool Mesh::front_within(const Square& square, int64_t distance) const {
  const auto nearest = [](int64_t begin, int64_t end, int64_t c) {
    return std::max({begin - c, c - end, int64_t{0}});
  };
  const auto farthest = [](int64_t begin, int64_t end, int64_t c) {
    return std::max(std::abs(begin - c), std::abs(end - c));
  };
  const int64_t near_x = nearest(square.x, square.x + square.side, front_.center_x);
  const int64_t near_y = nearest(square.y, square.y + square.side, front_.center_y);
  const int64_t far_x = farthest(square.x, square.x + square.side, front_.center_x);
  const int64_t far_y = farthest(square.y, square.y + square.side, front_.center_y);
  const int64_t outer = front_.radius + distance;
  const int64_t inner = front_.radius - distance;
  const bool reaches_in = near_x * near_x + near_y * near_y < outer * outer;
  const bool reaches_out = inner < 0 || far_x * far_x + far_y * far_y > inner * inner;
  return reaches_in && reaches_out;
}

bool Mesh::split(const Square& square) const {
  if (square.side > coarse_side_) return true;
  return level_of(square) < spec_.levels && front_within(square, kReach * square.side);
}

uint64_t Mesh::leaves_in(const Square& square) const {
  if (square.side > coarse_side_ && !front_within(square, kReach * coarse_side_)) {
    const auto coarse_cells = static_cast<uint64_t>(square.side / coarse_side_);
    return coarse_cells * coarse_cells;
  }
  if (!split(square)) return 1;
  uint64_t leaves = 0;
  for (int quadrant = 0; quadrant < 4; ++quadrant) leaves += leaves_in(square.child(quadrant));
  return leaves;
}

uint64_t Mesh::leaves_before_coarse(uint64_t coarse_index) const {
  const uint64_t coarse_cells = uint64_t{spec_.size} * spec_.size;
  SLUICE_ASSERT(coarse_index <= coarse_cells);
  if (coarse_index == coarse_cells) return cell_count_;
  uint64_t leaves = 0;
  uint64_t cells_in_child = coarse_cells / 4;
  for (Square square = root(); square.side > coarse_side_; cells_in_child /= 4) {
    const int quadrant = static_cast<int>(coarse_index / cells_in_child % 4);
    for (int earlier = 0; earlier < quadrant; ++earlier) leaves += leaves_in(square.child(earlier));
    square = square.child(quadrant);
  }
  return leaves;
}

CellRange Mesh::writer_share(uint32_t rank, uint32_t ranks) const {
  SLUICE_ASSERT(rank < ranks);
  const uint64_t coarse_cells = uint64_t{spec_.size} * spec_.size;
  return {CellIndex(leaves_before_coarse(coarse_cells * rank / ranks)),
          CellIndex(leaves_before_coarse(coarse_cells * (rank + uint64_t{1}) / ranks))};
}

CellRange Mesh::reader_share(uint32_t rank, uint32_t ranks) const {
  SLUICE_ASSERT(rank < ranks);
  return {CellIndex(cell_count_ * rank / ranks), CellIndex(cell_count_ * (rank + uint64_t{1}) / ranks)};
}

std::vector<Cell> Mesh::cells(CellRange range) const {
  SLUICE_ASSERT(range.begin <= range.end && range.end.value <= cell_count_);
  std::vector<Cell> out;
  out.reserve(range.count());
  collect(root(), 0, range, out);
  SLUICE_ASSERT(out.size() == range.count());
  return out;
}

void Mesh::collect(const Square& square, uint64_t first_index, CellRange range,
                   std::vector<Cell>& out) const {
  const uint64_t end_index = first_index + leaves_in(square);
  if (end_index <= range.begin.value || first_index >= range.end.value) return;
  if (first_index >= range.begin.value && end_index <= range.end.value) return collect_all(square, out);
  // Only a square of several leaves can lie partly inside.
  for (int quadrant = 0; quadrant < 4; ++quadrant) {
    const Square child = square.child(quadrant);
    collect(child, first_index, range, out);
    first_index += leaves_in(child);
  }
}

void Mesh::collect_all(const Square& square, std::vector<Cell>& out) const {
  if (split(square)) {
    for (int quadrant = 0; quadrant < 4; ++quadrant) collect_all(square.child(quadrant), out);
    return;
  }
  out.push_back({static_cast<int32_t>(square.x / square.side), static_cast<int32_t>(square.y / square.side),
                 static_cast<int32_t>(level_of(square))});
}

}  // namespace sluice::bench
