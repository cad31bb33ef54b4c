#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

// The adaptive mesh of the checkpoint benchmark: a pure function of (size, levels, step). No I/O, no MPI, no
// state.
//
// The domain is a square of size x size coarse cells. A circular front runs out of an off-centre point and
// back; cells near the front are split in four, up to `levels` times. A cell of level l is (size << l)-th of
// a side long, and is named by its level and its column i and row j at that level.
//
// Promised, and tested: leaves cover the domain exactly once; cells that touch, corners included, are at most
// one level apart; the cell count differs from one step to the next. All geometry is in whole numbers, so
// every machine agrees.
namespace sluice::bench {

// A leaf's place in the order all ranks agree on: coarse cells in Z-order, the children of a cell in its
// place.
using CellIndex = Strong<struct CellIndexTag, uint64_t>;

// Half-open.
struct CellRange {
  CellIndex begin;
  CellIndex end;

  uint64_t count() const { return end.value - begin.value; }
  bool operator==(const CellRange&) const = default;
};

struct Cell {
  int32_t i = 0;
  int32_t j = 0;
  int32_t level = 0;

  auto operator<=>(const Cell&) const = default;
};

inline constexpr uint32_t kMinMeshSize = 128;
inline constexpr uint32_t kMaxMeshSize = 2048;
inline constexpr uint32_t kMinLevels = 1;
inline constexpr uint32_t kMaxLevels = 4;

struct MeshSpec {
  uint32_t size = kMinMeshSize;  // coarse cells along a side; a power of two
  uint32_t levels = 2;           // how often a cell may be split
  uint64_t step = 0;

  bool valid() const;
};

// Where the front is, in finest cells.
struct Front {
  int64_t center_x = 0;
  int64_t center_y = 0;
  int64_t radius = 0;
};

// Thread rule: const after construction; any number of threads. Constructing costs a walk along the front.
class Mesh {
 public:
  explicit Mesh(const MeshSpec& spec);

  const MeshSpec& spec() const { return spec_; }
  const Front& front() const { return front_; }
  uint64_t cell_count() const { return cell_count_; }

  // A writer's share: the leaves in the rank's equal share of the *coarse* cells, so shares differ by as much
  // as the front has refined them. Over all ranks the shares are a partition.
  CellRange writer_share(uint32_t rank, uint32_t ranks) const;
  // A reader's share: equal numbers of leaves, to within one.
  CellRange reader_share(uint32_t rank, uint32_t ranks) const;

  // The leaves of `range`, in order. range.end <= cell_count().
  std::vector<Cell> cells(CellRange range) const;

 private:
  // A square of the quadtree, in finest cells.
  struct Square {
    int64_t x, y, side;
    Square child(int quadrant) const;
  };

  Square root() const;
  uint32_t level_of(const Square& square) const;
  bool front_within(const Square& square, int64_t distance) const;
  bool split(const Square& square) const;
  uint64_t leaves_in(const Square& square) const;
  uint64_t leaves_before_coarse(uint64_t coarse_index) const;
  void collect(const Square& square, uint64_t first_index, CellRange range, std::vector<Cell>& out) const;
  void collect_all(const Square& square, std::vector<Cell>& out) const;

  MeshSpec spec_;
  int64_t coarse_side_;
  Front front_;
  uint64_t cell_count_;
};

}  // namespace sluice::bench
