#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/result.h"
#include "bench/job/hint.h"

// What the user asked for, in mpi-tile-io's spelling, and which elements of the array that means. Pure.
namespace sluice::bench {

struct TileOptions {
  std::string filename;
  int nr_tiles_x = 1;  // columns of tiles
  int nr_tiles_y = 1;  // rows of tiles
  int sz_tile_x = 1024;
  int sz_tile_y = 1024;
  int sz_element = 32;  // bytes
  int overlap_x = 0;    // elements that a tile shares with each neighbour
  int overlap_y = 0;
  uint64_t header_bytes = 0;  // in front of the array
  bool collective = false;
  bool write_file = false;  // otherwise it reads
  bool verify = false;
  int repetitions = 1;
  Hints hints;
  std::string json_path;

  // Of the whole array.
  int64_t columns() const { return int64_t{nr_tiles_x} * (sz_tile_x - overlap_x) + overlap_x; }
  int64_t rows() const { return int64_t{nr_tiles_y} * (sz_tile_y - overlap_y) + overlap_y; }
  int64_t tile_bytes() const { return int64_t{sz_tile_x} * sz_tile_y * sz_element; }
  uint64_t file_bytes() const {
    return header_bytes + static_cast<uint64_t>(rows() * columns()) * static_cast<uint64_t>(sz_element);
  }
  // The tile's first element. Ranks go along the rows of tiles.
  int64_t first_column(uint32_t rank) const {
    return int64_t{static_cast<int>(rank) % nr_tiles_x} * (sz_tile_x - overlap_x);
  }
  int64_t first_row(uint32_t rank) const {
    return int64_t{static_cast<int>(rank) / nr_tiles_x} * (sz_tile_y - overlap_y);
  }
};

struct TileHelp {
  std::string text;
};

// kInvalidArgument for anything that makes no sense, in one line.
Result<std::variant<TileOptions, TileHelp>> parse_tile_options(int argc, const char* const* argv);

// What byte `byte` of the element at (row, column) of the array holds: the same whichever tile wrote it.
constexpr uint8_t element_byte(int64_t row, int64_t column, int64_t byte) {
  uint64_t word =
      static_cast<uint64_t>(row) * 0x9E3779B97F4A7C15U ^ static_cast<uint64_t>(column) * 0xC2B2AE3D27D4EB4FU;
  word += static_cast<uint64_t>(byte / 8) * 0xD6E8FEB86659FD93U;
  word ^= word >> 32;
  return static_cast<uint8_t>(word >> (byte % 8 * 8));
}

}  // namespace sluice::bench
