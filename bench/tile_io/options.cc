#include "bench/tile_io/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace sluice::bench {
namespace {

constexpr const char* kDescription =
    "Each rank writes or reads one tile of a dense two-dimensional array: mpi-tile-io's layout and options, "
    "any "
    "MPI-IO path.";

constexpr const char* kFooter = R"(
The array is stored by rows, behind the header. There must be as many ranks as tiles. It writes with --write_file and
reads without. With --verify a read is compared with what --write_file writes, and a write is read back and compared.

MiB/s: the bytes of all tiles, over the time from the first rank's open to the last rank's close.

Exit code: 0 done and, where asked, verified; 1 an I/O error or bytes that differ; 2 options that make no sense.

Example:
  mpiexec -n 4 tile_io --nr_tiles_x 2 --nr_tiles_y 2 --sz_tile_x 1024 --sz_tile_y 1024 --sz_element 32 \
    --collective --write_file --verify --filename sluice:/tiles)";

void declare(CLI::App& app, TileOptions& options, std::vector<std::string>& hints) {
  const auto positive = CLI::Range(1, 1 << 30);
  const auto not_negative = CLI::Range(0, 1 << 30);
  app.add_option("--filename", options.filename, "The file")->required();
  app.add_option("--nr_tiles_x", options.nr_tiles_x, "Columns of tiles")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--nr_tiles_y", options.nr_tiles_y, "Rows of tiles")->check(positive)->capture_default_str();
  app.add_option("--sz_tile_x", options.sz_tile_x, "Elements of a tile's row")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--sz_tile_y", options.sz_tile_y, "Rows of a tile")->check(positive)->capture_default_str();
  app.add_option("--sz_element", options.sz_element, "Bytes of an element")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--overlap_x", options.overlap_x, "Columns that neighbours share")
      ->check(not_negative)
      ->capture_default_str();
  app.add_option("--overlap_y", options.overlap_y, "Rows that neighbours share")
      ->check(not_negative)
      ->capture_default_str();
  app.add_option("--header_bytes", options.header_bytes, "Bytes in front of the array")
      ->capture_default_str();
  app.add_flag("--collective", options.collective, "Collective calls");
  app.add_flag("--write_file", options.write_file, "Write instead of reading");
  app.add_flag("--verify", options.verify, "Compare the bytes");
  app.add_option("--repetitions", options.repetitions, "How often")->check(positive)->capture_default_str();
  app.add_option("--hint", hints, "MPI-IO hint; may be given several times")
      ->type_name("KEY=VALUE")
      ->take_all();
  app.add_option("--json", options.json_path, "Write the results to this file too")->type_name("FILE");
}

Error usage(const std::string& message) {
  return {ErrorCode::kInvalidArgument, message + "; see tile_io --help"};
}

Result<> check(const TileOptions& options) {
  if (options.overlap_x >= options.sz_tile_x || options.overlap_y >= options.sz_tile_y)
    return fail(usage("--overlap_x and --overlap_y must be smaller than the tile"));
  if (options.tile_bytes() >= int64_t{1} << 31)
    return fail(usage(
        fmt::format("a tile of {} bytes is too large for one call; at most 2 GiB", options.tile_bytes())));
  if (options.columns() >= int64_t{1} << 31 || options.rows() >= int64_t{1} << 31)
    return fail(usage(fmt::format("an array of {} by {} elements has a side of 2^31 or more",
                                  options.columns(), options.rows())));
  return {};
}

}  // namespace

Result<std::variant<TileOptions, TileHelp>> parse_tile_options(int argc, const char* const* argv) {
  TileOptions options;
  std::vector<std::string> hints;
  CLI::App app(kDescription, "tile_io");
  app.footer(kFooter);
  declare(app, options, hints);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return TileHelp{app.help()};
  } catch (const CLI::Error& error) {
    const std::string text = error.what();
    return fail(usage(text.substr(0, text.find('\n'))));
  }
  auto parsed = parse_hints(hints);
  if (!parsed) return fail(usage(parsed.error().message));
  options.hints = std::move(*parsed);
  if (auto ok = check(options); !ok) return fail(ok.error());
  return options;
}

}  // namespace sluice::bench
