#include "base/hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;

Result<HintList> resolve(const HintList& list) {
  return resolve_hints({&list, 1});
}
HintSettings settings(const HintList& list) {
  return settings_of(resolve(list).value());
}

TEST(HintTable, names_are_there_once_and_each_row_says_what_it_takes) {
  std::set<std::string_view> names;
  for (const HintRow& row : hint_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const HintAlias& alias : row.aliases) EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
    EXPECT_FALSE(hint_values(row).empty()) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    EXPECT_FALSE(row.default_value.empty()) << row.name;
    EXPECT_EQ(row.owner == HintOwner::kSluice, row.name.starts_with("sluice_")) << row.name;
    EXPECT_EQ(find_hint(row.name), &row);
    for (const HintAlias& alias : row.aliases) {
      EXPECT_EQ(find_aliased_hint(alias.name).row, &row);
      for (const auto& [theirs, ours] : alias.values) EXPECT_THAT(row.choices, Contains(ours)) << theirs;
    }
  }
}

TEST(Hints, unknown_name_is_refused_with_the_nearest) {
  const auto error = find_unknown_hint({{"cb_nodes", "4"}, {"sluice_chunksize", "1m"}});
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, AllOf(HasSubstr("sluice_chunksize"), HasSubstr("sluice_chunk_size")));
}

TEST(Hints, other_libraries_hints_are_not_judged_and_passed_on) {
  EXPECT_FALSE(find_unknown_hint({{"panfs_layout", "x"}, {"sluicegate", "open"}}));
  EXPECT_EQ(settings({{"striping_unit", "many"}, {"cray_cb_write_lock_mode", "9"}, {"striping_factor", "1"}}),
            HintSettings{});
  EXPECT_THAT(*resolve({{"panfs_layout", "x"}, {"cb_nodes", "2"}}),
              ElementsAre(Pair("panfs_layout", "x"), Pair("cb_nodes", "2")));
}

TEST(Hints, a_wrong_value_of_romios_hints_gives_their_default) {
  const HintList wrong = {{"romio_cb_write", "bogus"},      {"cb_buffer_size", "xx"},
                          {"cb_buffer_size", "4m"},         {"cb_nodes", "-2"},
                          {"romio_no_indep_rw", "perhaps"}, {"romio_cb_read", ""}};
  EXPECT_THAT(*resolve(wrong), IsEmpty());
  const HintList right = {
      {"romio_cb_write", "ENABLE"}, {"cb_buffer_size", "4194304"}, {"cb_config_list", "*:1"}};
  EXPECT_EQ(*resolve(right), right);
}

TEST(Hints, advice_that_is_passed_over_is_told_with_the_values_that_there_are) {
  const auto told = unusable_advice({{"romio_cb_write", "bogus"},
                                     {"cb_buffer_size", "xx"},
                                     {"striping_unit", "3000"},
                                     {"striping_factor", "x"},
                                     {"cray_cb_write_lock_mode", "7"}});
  EXPECT_THAT(
      told,
      ElementsAre("the hint romio_cb_write=bogus is passed over; it takes enable, disable, automatic",
                  "the hint cb_buffer_size=xx is passed over; it takes 64 KiB to 64 MiB",
                  "the hint striping_unit=3000 is passed over; it takes a power of two, 64 KiB to 16 MiB",
                  "the hint striping_factor=x is passed over; it takes 2 to 64",
                  "the hint cray_cb_write_lock_mode=7 is passed over; it takes 0 (standard), 1 (group), "
                  "2 (lockahead)"));
  EXPECT_THAT(
      unusable_advice({{"panfs_layout", "x"}, {"romio_lustre_cb_lock_ahead_write", "0"}, {"cb_nodes", "2"}}),
      IsEmpty());
}

TEST(Hints, chunk_size_takes_units_and_refuses_what_is_no_power_of_two) {
  EXPECT_EQ(settings({{"sluice_chunk_size", "64k"}}).chunk_bytes, 65536u);
  EXPECT_EQ(settings({{"sluice_chunk_size", "1048576"}}).chunk_bytes, 1u << 20);
  for (const char* bad : {"", "x", "100k", "32k", "32m", "99999999999999999999", "1q", "-1"}) {
    const auto hints = resolve({{"sluice_chunk_size", bad}});
    ASSERT_FALSE(hints) << bad;
    EXPECT_THAT(hints.error().message, HasSubstr("sluice_chunk_size"));
  }
  EXPECT_THAT(resolve({{"sluice_chunk_size", "1500k"}}).error().message, HasSubstr("1048576"));
}

TEST(Hints, a_hints_own_name_wins_over_its_aliases) {
  EXPECT_EQ(settings({{"striping_unit", "131072"}}).chunk_bytes, 131072u);
  EXPECT_EQ(settings({{"sluice_chunk_size", "65536"}, {"striping_unit", "131072"}}).chunk_bytes, 65536u);
  EXPECT_EQ(settings({{"striping_unit", "1000"}}).chunk_bytes, 0u);
  EXPECT_EQ(settings({{"sluice_lock_mode", "none"}, {"cray_cb_write_lock_mode", "2"}}).lock_mode, "none");
}

TEST(Hints, later_entries_win) {
  EXPECT_EQ(settings({{"sluice_object_class", "S1"}, {"sluice_object_class", "EC_4P2"}}).object_class,
            "EC_4P2");
}

TEST(Hints, lock_hints_of_others_are_taken) {
  const auto mode = [](const char* name, const char* value) { return settings({{name, value}}).lock_mode; };
  EXPECT_EQ(mode("cray_cb_write_lock_mode", "0"), "standard");
  EXPECT_EQ(mode("cray_cb_write_lock_mode", "1"), "group");
  EXPECT_EQ(mode("cray_cb_write_lock_mode", "2"), "lockahead");
  EXPECT_EQ(mode("romio_lustre_cb_lock_ahead_write", "1"), "lockahead");
  EXPECT_EQ(mode("romio_lustre_cb_lock_ahead_write", "0"), "");
  EXPECT_EQ(settings({{"romio_lustre_cb_lock_ahead_num_extents", "1000000"}}).lockahead_extents, 4096u);
  EXPECT_EQ(settings({{"cray_cb_lock_ahead_num_extents", "0"}}).lockahead_extents, 0u);
}

TEST(Hints, values_are_refused_with_the_nearest) {
  EXPECT_THAT(resolve({{"sluice_lock_mode", "standart"}}).error().message, HasSubstr("standard"));
  EXPECT_THAT(resolve({{"sluice_visibility", "comit"}}).error().message, HasSubstr("commit"));
  EXPECT_THAT(resolve({{"sluice_drain", "onsync"}}).error().message, HasSubstr("on_sync"));
  EXPECT_FALSE(resolve({{"sluice_lockahead_extents", "0"}}));
  EXPECT_EQ(settings({{"sluice_lockahead_extents", "32"}}).lockahead_extents, 32u);
}

TEST(Hints, what_was_told_may_be_given_back) {
  EXPECT_THAT(*resolve({{"sluice_lock_reason", "because"}}), IsEmpty());
}

TEST(Hints, a_later_list_wins_by_whatever_name_it_uses) {
  const std::vector<HintList> lists = {
      {{"sluice_lock_mode", "none"}, {"sluice_chunk_size", "64k"}, {"cb_nodes", "1"}, {"other", "x"}},
      {{"cray_cb_write_lock_mode", "2"}, {"striping_unit", "128k"}, {"cb_nodes", "3"}}};
  const auto resolved = resolve_hints(lists);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(settings_of(*resolved).lock_mode, "lockahead");
  EXPECT_EQ(settings_of(*resolved).chunk_bytes, 131072u);
  EXPECT_THAT(*resolved, AllOf(Contains(Pair("cb_nodes", "3")), Contains(Pair("other", "x"))));
  const std::vector<HintList> again = {*resolved, lists[1]};
  EXPECT_EQ(*resolve_hints(again), *resolved);
}

TEST(Hints, effective_hints_are_told_by_their_other_names_too) {
  EXPECT_THAT(with_aliases({{"sluice_chunk_size", "65536"}, {"sluice_lock_mode", "group"}}),
              ElementsAre(Pair("sluice_chunk_size", "65536"), Pair("striping_unit", "65536"),
                          Pair("sluice_lock_mode", "group"), Pair("cray_cb_write_lock_mode", "1")));
  EXPECT_THAT(with_aliases({{"sluice_lock_mode", "none"}}), Not(Contains(Key("cray_cb_write_lock_mode"))));
}

TEST(Hints, rules_apply_by_pattern) {
  const std::string text = "*.h5:sluice_chunk_size=1m:cb_nodes=2,/ckpt/*:sluice_object_class=S1";
  EXPECT_THAT(*hints_for_path("SLUICE_HINTS", text, "/a/b.h5"),
              ElementsAre(Pair("sluice_chunk_size", "1m"), Pair("cb_nodes", "2")));
  EXPECT_THAT(*hints_for_path("SLUICE_HINTS", text, "/ckpt/1"),
              ElementsAre(Pair("sluice_object_class", "S1")));
  EXPECT_THAT(*hints_for_path("SLUICE_HINTS", text, "/other"), IsEmpty());
  EXPECT_THAT(*hints_for_path("SLUICE_HINTS", "", "/other"), IsEmpty());
}

TEST(Hints, a_value_may_hold_colons) {
  EXPECT_THAT(*hints_for_path("SLUICE_HINTS", "*:cb_config_list=*:4:cb_nodes=2", "/f"),
              ElementsAre(Pair("cb_config_list", "*:4"), Pair("cb_nodes", "2")));
}

TEST(Hints, rules_that_were_printed_are_read) {
  const std::vector<HintRule> rules = {{"*.h5", {{"a", "1:2"}, {"b", ""}}}, {"/x/*", {{"c", "3"}}}};
  EXPECT_THAT(*hints_for_path("", print_rules(rules), "/x/f.h5"),
              ElementsAre(Pair("a", "1:2"), Pair("b", ""), Pair("c", "3")));
  EXPECT_THAT(*hints_for_path("", print_rules(rules), "/f.h5"), ElementsAre(Pair("a", "1:2"), Pair("b", "")));
}

TEST(Hints, malformed_rules_are_named) {
  const auto said = [](const char* rules) {
    return hints_for_path("SOME_HINTS", rules, "/x").error().message;
  };
  EXPECT_THAT(said("justapattern"), AllOf(HasSubstr("SOME_HINTS"), HasSubstr("justapattern")));
  EXPECT_THAT(said("*:novalue"), AllOf(HasSubstr("SOME_HINTS"), HasSubstr("novalue")));
  EXPECT_THAT(said("*:a=b:"), HasSubstr("key=value"));
  EXPECT_FALSE(hints_for_path("SOME_HINTS", "*:a=b,,", "/x"));
}

}  // namespace
}  // namespace sluice
