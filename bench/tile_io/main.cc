// tile_io: tiles of a dense array, as mpi-tile-io accesses them, over any MPI-IO path. See --help.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/job/job.h"
#include "bench/tile_io/options.h"

namespace sluice::bench {
namespace {

struct Times {
  const char* access = "";
  Spans spans;
};

void fill(const TileOptions& options, const Job& job, std::vector<uint8_t>& tile) {
  size_t at = 0;
  for (int64_t row = 0; row < options.sz_tile_y; ++row) {
    for (int64_t column = 0; column < options.sz_tile_x; ++column) {
      for (int64_t byte = 0; byte < options.sz_element; ++byte)
        tile[at++] =
            element_byte(options.first_row(job.rank) + row, options.first_column(job.rank) + column, byte);
    }
  }
}

class Tile {
 public:
  Tile(const TileOptions& options, const Job& job) : options_(options), job_(job) {
    MPI_Type_contiguous(options.sz_element, MPI_BYTE, &element_);
    MPI_Type_commit(&element_);
    const std::array<int, 2> sizes = {static_cast<int>(options.rows()), static_cast<int>(options.columns())};
    const std::array<int, 2> parts = {options.sz_tile_y, options.sz_tile_x};
    const std::array<int, 2> starts = {static_cast<int>(options.first_row(job.rank)),
                                       static_cast<int>(options.first_column(job.rank))};
    MPI_Type_create_subarray(2, sizes.data(), parts.data(), starts.data(), MPI_ORDER_C, element_, &tile_);
    MPI_Type_commit(&tile_);
  }
  ~Tile() {
    MPI_Type_free(&tile_);
    MPI_Type_free(&element_);
  }
  Tile(const Tile&) = delete;
  Tile& operator=(const Tile&) = delete;

  Times transfer(bool writes, std::vector<uint8_t>& bytes) {
    MPI_Barrier(MPI_COMM_WORLD);
    Stamps stamps;
    stamps.open = MPI_Wtime();
    MPI_File file = open(writes);
    stamps.opened = MPI_Wtime();
    move(file, writes, bytes);
    stamps.moved = MPI_Wtime();
    check_mpi(MPI_File_close(&file), "close " + options_.filename);
    stamps.closed = MPI_Wtime();
    return {writes ? "write" : "read", spans_of_all(stamps)};
  }

 private:
  MPI_File open(bool writes) {
    MPI_Info info = make_info(options_.hints);
    // Data sieving of independent writes reads too.
    const int mode =
        writes ? MPI_MODE_CREATE | (options_.collective ? MPI_MODE_WRONLY : MPI_MODE_RDWR) : MPI_MODE_RDONLY;
    MPI_File file;
    check_mpi(MPI_File_open(MPI_COMM_WORLD, options_.filename.c_str(), mode, info, &file),
              "open " + options_.filename);
    check_mpi(MPI_File_set_view(file, static_cast<MPI_Offset>(options_.header_bytes), element_, tile_,
                                "native", info),
              "set the view of " + options_.filename);
    if (info != MPI_INFO_NULL) MPI_Info_free(&info);
    return file;
  }

  void move(MPI_File file, bool writes, std::vector<uint8_t>& bytes) {
    const int count = options_.sz_tile_x * options_.sz_tile_y;
    MPI_Status status;
    int code;
    if (writes) {
      code = (options_.collective ? MPI_File_write_all : MPI_File_write)(file, bytes.data(), count, element_,
                                                                         &status);
    } else {
      code = (options_.collective ? MPI_File_read_all : MPI_File_read)(file, bytes.data(), count, element_,
                                                                       &status);
    }
    const std::string what = (writes ? "write " : "read ") + options_.filename;
    check_mpi(code, what);
    int moved = 0;
    MPI_Get_count(&status, element_, &moved);
    if (moved != count) give_up(what, fmt::format("{} of {} elements were moved", moved, count));
  }

  const TileOptions& options_;
  const Job& job_;
  MPI_Datatype element_ = MPI_DATATYPE_NULL;
  MPI_Datatype tile_ = MPI_DATATYPE_NULL;
};

double mib_per_s(const TileOptions& options, const Job& job, const Times& times) {
  return static_cast<double>(options.tile_bytes()) * job.ranks / (1024.0 * 1024.0) / times.spans.total_s;
}

uint64_t wrong_bytes(const std::vector<uint8_t>& got, const std::vector<uint8_t>& expected) {
  unsigned long long mine = 0;
  for (size_t i = 0; i < got.size(); ++i) mine += got[i] != expected[i];
  unsigned long long all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

nlohmann::json report_of(const TileOptions& options, const Job& job, const std::vector<Times>& all) {
  nlohmann::json results = nlohmann::json::array();
  for (const Times& times : all) {
    results.push_back({{"access", times.access},
                       {"mib_per_s", mib_per_s(options, job, times)},
                       {"seconds", to_json(times.spans)}});
  }
  return {{"benchmark", "tile_io"},
          {"path", options.filename},
          {"ranks", job.ranks},
          {"nr_tiles_x", options.nr_tiles_x},
          {"nr_tiles_y", options.nr_tiles_y},
          {"sz_tile_x", options.sz_tile_x},
          {"sz_tile_y", options.sz_tile_y},
          {"sz_element", options.sz_element},
          {"overlap_x", options.overlap_x},
          {"overlap_y", options.overlap_y},
          {"header_bytes", options.header_bytes},
          {"collective", options.collective},
          {"results", results}};
}

// Answers the bytes that were wrong.
uint64_t repeat(const TileOptions& options, const Job& job, std::vector<Times>& all) {
  Tile tile(options, job);
  std::vector<uint8_t> bytes(static_cast<size_t>(options.tile_bytes()));
  if (options.write_file) fill(options, job, bytes);
  all.push_back(tile.transfer(options.write_file, bytes));
  if (job.rank == 0) {
    fmt::print("{:<6} {:>10.2f} MiB/s  open {:.6f} s  transfer {:.6f} s  close {:.6f} s\n", all.back().access,
               mib_per_s(options, job, all.back()), all.back().spans.open_s, all.back().spans.transfer_s,
               all.back().spans.close_s);
    std::fflush(stdout);
  }
  if (!options.verify) return 0;
  if (options.write_file) tile.transfer(false, bytes);
  std::vector<uint8_t> expected(bytes.size());
  fill(options, job, expected);
  return wrong_bytes(bytes, expected);
}

int run(const Job& job, int argc, char** argv) {
  const auto parsed = parse_tile_options(argc, argv);
  if (!parsed) {
    if (job.rank == 0) std::fprintf(stderr, "tile_io: %s\n", parsed.error().message.c_str());
    return 2;
  }
  if (const auto* help = std::get_if<TileHelp>(&*parsed)) {
    if (job.rank == 0) std::puts(help->text.c_str());
    return 0;
  }
  const auto& options = std::get<TileOptions>(*parsed);
  if (static_cast<int>(job.ranks) != options.nr_tiles_x * options.nr_tiles_y) {
    if (job.rank == 0)
      std::fprintf(stderr, "tile_io: %d by %d tiles need %d ranks, not %u; see mpiexec -n\n",
                   options.nr_tiles_x, options.nr_tiles_y, options.nr_tiles_x * options.nr_tiles_y,
                   job.ranks);
    return 2;
  }
  std::vector<Times> all;
  uint64_t wrong = 0;
  for (int i = 0; i < options.repetitions; ++i) wrong += repeat(options, job, all);
  if (wrong > 0 && job.rank == 0)
    std::fprintf(stderr, "tile_io: %llu bytes differ\n", static_cast<unsigned long long>(wrong));
  const bool saved = save_report(job, options.json_path, report_of(options, job, all));
  return wrong > 0 || !saved ? 1 : 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::run_as_job(argc, argv, sluice::bench::run);
}
