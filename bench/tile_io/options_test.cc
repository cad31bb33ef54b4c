#include "bench/tile_io/options.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::bench {
namespace {

Result<std::variant<TileOptions, TileHelp>> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tile_io");
  return parse_tile_options(static_cast<int>(arguments.size()), arguments.data());
}

TileOptions parsed(std::vector<const char*> arguments) {
  arguments.insert(arguments.end(), {"--filename", "x"});
  return std::get<TileOptions>(parse(std::move(arguments)).value());
}

TEST(TileOptions, TilesWithoutOverlapStandSideBySide) {
  const auto options = parsed({"--nr_tiles_x", "3", "--nr_tiles_y", "2", "--sz_tile_x", "10", "--sz_tile_y",
                               "20", "--sz_element", "8", "--header_bytes", "100"});
  EXPECT_EQ(options.columns(), 30);
  EXPECT_EQ(options.rows(), 40);
  EXPECT_EQ(options.file_bytes(), 100u + 30 * 40 * 8);
  EXPECT_EQ(options.first_column(4), 10);
  EXPECT_EQ(options.first_row(4), 20);
}

TEST(TileOptions, OverlappingTilesShareColumnsAndRows) {
  const auto options = parsed({"--nr_tiles_x", "3", "--nr_tiles_y", "2", "--sz_tile_x", "10", "--sz_tile_y",
                               "20", "--overlap_x", "2", "--overlap_y", "5"});
  EXPECT_EQ(options.columns(), 26);
  EXPECT_EQ(options.rows(), 35);
  EXPECT_EQ(options.first_column(5), 16);
  EXPECT_EQ(options.first_row(5), 15);
  EXPECT_EQ(options.first_column(5) + options.sz_tile_x, options.columns());
}

TEST(TileOptions, WhatMakesNoSenseIsRefusedByName) {
  EXPECT_NE(parse({}).error().message.find("--filename"), std::string::npos);
  EXPECT_NE(parse({"--filename", "x", "--nr_tiles_x", "0"}).error().message.find("--nr_tiles_x"),
            std::string::npos);
  EXPECT_NE(parse({"--filename", "x", "--overlap_x", "1024"}).error().message.find("--overlap_x"),
            std::string::npos);
  EXPECT_NE(parse({"--filename", "x", "--hint", "striping_unit"}).error().message.find("KEY=VALUE"),
            std::string::npos);
  EXPECT_NE(parse({"--filename", "x", "--sz_tile_x", "65536", "--sz_tile_y", "65536"})
                .error()
                .message.find("2 GiB"),
            std::string::npos);
  EXPECT_TRUE(std::holds_alternative<TileHelp>(parse({"--help"}).value()));
}

TEST(TileOptions, NeighbouringBytesDiffer) {
  EXPECT_NE(element_byte(0, 0, 0), element_byte(0, 1, 0));
  EXPECT_NE(element_byte(0, 0, 0), element_byte(1, 0, 0));
  EXPECT_NE(element_byte(3, 4, 0), element_byte(3, 4, 8));
}

}  // namespace
}  // namespace sluice::bench
