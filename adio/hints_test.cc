#include "adio/hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::adio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST(Hints, UnknownNameIsRefusedWithTheNearest) {
  const auto error = find_unknown_hint({{"cb_nodes", "4"}, {"sluice_chunksize", "1m"}});
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("sluice_chunksize"));
  EXPECT_THAT(error->message, HasSubstr("sluice_chunk_size"));
}

TEST(Hints, OtherLibrariesHintsAreNotJudged) {
  EXPECT_FALSE(find_unknown_hint({{"panfs_layout", "x"}, {"sluicegate", "open"}}));
  const auto hints = parse_hints({{"striping_unit", "many"}, {"cray_cb_write_lock_mode", "9"}});
  ASSERT_TRUE(hints);
  EXPECT_EQ(*hints, Hints{});
}

TEST(Hints, ChunkSizeTakesUnitsAndRefusesWhatIsNoPowerOfTwo) {
  EXPECT_EQ(parse_hints({{"sluice_chunk_size", "64k"}})->chunk_bytes, 65536u);
  EXPECT_EQ(parse_hints({{"sluice_chunk_size", "1048576"}})->chunk_bytes, 1u << 20);
  for (const char* bad : {"", "x", "100k", "32k", "32m", "99999999999999999999", "1q", "-1"}) {
    const auto hints = parse_hints({{"sluice_chunk_size", bad}});
    ASSERT_FALSE(hints) << bad;
    EXPECT_THAT(hints.error().message, HasSubstr("sluice_chunk_size"));
  }
  EXPECT_THAT(parse_hints({{"sluice_chunk_size", "1500k"}}).error().message, HasSubstr("1048576"));
}

TEST(Hints, StripingUnitIsTheChunkSizeUnlessThatIsGiven) {
  EXPECT_EQ(parse_hints({{"striping_unit", "131072"}})->chunk_bytes, 131072u);
  EXPECT_EQ(parse_hints({{"striping_unit", "131072"}, {"sluice_chunk_size", "65536"}})->chunk_bytes, 65536u);
  EXPECT_EQ(parse_hints({{"striping_unit", "1000"}})->chunk_bytes, 0u);
}

TEST(Hints, LaterEntriesWin) {
  EXPECT_EQ(parse_hints({{"sluice_object_class", "S1"}, {"sluice_object_class", "EC_4P2"}})->object_class,
            "EC_4P2");
}

TEST(Hints, ChoicesAreRefusedWithTheNearest) {
  EXPECT_EQ(parse_hints({{"sluice_lock_mode", "standard"}})->lock_mode, "standard");
  EXPECT_EQ(
      parse_hints({{"sluice_lock_mode", "lockahead"}, {"sluice_lockahead_extents", "32"}})->lockahead_extents,
      32u);
  EXPECT_EQ(parse_hints({{"cray_cb_write_lock_mode", "0"}})->lock_mode, "standard");
  EXPECT_EQ(parse_hints({{"cray_cb_write_lock_mode", "1"}})->lock_mode, "group");
  EXPECT_EQ(parse_hints({{"cray_cb_write_lock_mode", "2"}})->lock_mode, "lockahead");
  EXPECT_EQ(parse_hints({{"romio_lustre_cb_lock_ahead_write", "1"}})->lock_mode, "lockahead");
  EXPECT_EQ(parse_hints({{"romio_lustre_cb_lock_ahead_write", "0"}})->lock_mode, "");
  EXPECT_EQ(parse_hints({{"romio_lustre_cb_lock_ahead_num_extents", "1000000"}})->lockahead_extents, 4096u);
  EXPECT_EQ(parse_hints({{"sluice_lock_mode", "none"}, {"cray_cb_write_lock_mode", "2"}})->lock_mode, "none")
      << "Sluice's own word wins";
  EXPECT_THAT(parse_hints({{"sluice_lock_mode", "standart"}}).error().message, HasSubstr("standard"));
  EXPECT_THAT(parse_hints({{"sluice_visibility", "comit"}}).error().message, HasSubstr("commit"));
  EXPECT_THAT(parse_hints({{"sluice_drain", "onsync"}}).error().message, HasSubstr("on_sync"));
  EXPECT_FALSE(parse_hints({{"sluice_lockahead_extents", "0"}}));
}

TEST(Hints, EnvironmentRulesApplyByPattern) {
  const std::string text = "*.h5:sluice_chunk_size=1m:cb_nodes=2,/ckpt/*:sluice_object_class=S1";
  EXPECT_THAT(*hints_for_path(text, "/a/b.h5"),
              ElementsAre(Pair("sluice_chunk_size", "1m"), Pair("cb_nodes", "2")));
  EXPECT_THAT(*hints_for_path(text, "/ckpt/1"), ElementsAre(Pair("sluice_object_class", "S1")));
  EXPECT_THAT(*hints_for_path(text, "/other"), IsEmpty());
  EXPECT_THAT(*hints_for_path("", "/other"), IsEmpty());
}

TEST(Hints, MalformedEnvironmentIsNamed) {
  EXPECT_THAT(hints_for_path("justapattern", "/x").error().message, HasSubstr("justapattern"));
  EXPECT_THAT(hints_for_path("*:novalue", "/x").error().message, HasSubstr("novalue"));
  EXPECT_FALSE(hints_for_path("*:a=b,,", "/x"));
}

}  // namespace
}  // namespace sluice::adio
