#include "storage/object_class.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace sluice::storage {
namespace {

using testing::HasSubstr;

ObjectClass named(const std::string& name) {
  return ObjectClass::parse(name).value();
}

TEST(ObjectClass, names_and_shapes_agree) {
  const std::map<std::string, std::pair<uint32_t, uint32_t>> shapes = {
      {"S1", {1, 0}},     {"S2", {2, 0}},     {"S64", {64, 0}},   {"RP_2", {1, 1}},  {"RP_3", {1, 2}},
      {"EC_2P1", {2, 1}}, {"EC_4P1", {4, 1}}, {"EC_4P2", {4, 2}}, {"EC_8P2", {8, 2}}};
  for (const auto& [name, shape] : shapes) {
    const auto parsed = ObjectClass::parse(name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(parsed->k(), shape.first) << name;
    EXPECT_EQ(parsed->m(), shape.second) << name;
    EXPECT_EQ(parsed->width(), shape.first + shape.second) << name;
    EXPECT_EQ(parsed->name(), name);
  }
}

TEST(ObjectClass, what_is_no_class_is_refused_with_the_nearest) {
  const std::map<std::string, std::string> nearest = {
      {"ec_4p2", "EC_4P2"}, {"EC_8P3", "EC_8P2"}, {"RP2", "RP_2"},   {"EC2P1", "EC_2P1"},
      {"sx", "SX"},         {"RP_4", "RP_2"},     {"EC_9", "EC_2P1"}};
  for (const auto& [given, suggested] : nearest) {
    const auto parsed = ObjectClass::parse(given);
    ASSERT_FALSE(parsed) << given;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, HasSubstr("the nearest is " + suggested)) << given;
  }
  for (const char* bad : {"", "S", "S0", "S01", "S-1", "S1 ", "S99999999999999", "default", "EC_", "RP_1"}) {
    EXPECT_FALSE(ObjectClass::parse(bad)) << bad;
  }
  EXPECT_THAT(ObjectClass::parse("S65").error().message, HasSubstr("at most 64"));
  EXPECT_FALSE(ObjectClass::parse(std::string(100000, 'S')));
}

TEST(ObjectClass, the_default_follows_the_number_of_targets) {
  const std::map<size_t, std::string> defaults = {{1, "S1"},     {2, "RP_2"},    {3, "EC_2P1"},
                                                  {4, "EC_2P1"}, {5, "EC_4P1"},  {6, "EC_4P2"},
                                                  {9, "EC_4P2"}, {10, "EC_8P2"}, {500, "EC_8P2"}};
  for (const auto& [targets, name] : defaults) {
    EXPECT_EQ(ObjectClass::default_for(targets).name(), name);
    EXPECT_TRUE(ObjectClass::default_for(targets).fits(targets));
    EXPECT_EQ(ObjectClass().resolve(targets)->name(), name);
  }
  EXPECT_FALSE(ObjectClass().resolve(0));
}

TEST(ObjectClass, a_class_that_does_not_fit_is_refused_with_the_nearest_that_does) {
  struct Case {
    std::string given;
    size_t targets;
    std::string nearest;
  };
  for (const Case& c :
       {Case{"EC_8P2", 7, "EC_4P2"}, Case{"EC_8P2", 4, "EC_2P1"}, Case{"EC_4P2", 3, "EC_2P1"},
        Case{"EC_4P2", 2, "RP_2"}, Case{"EC_4P1", 4, "EC_2P1"}, Case{"RP_3", 1, "S1"}, Case{"S8", 5, "S5"}}) {
    EXPECT_FALSE(named(c.given).fits(c.targets));
    const auto resolved = named(c.given).resolve(c.targets);
    ASSERT_FALSE(resolved) << c.given;
    EXPECT_THAT(resolved.error().message, HasSubstr("the nearest class that fits is " + c.nearest))
        << c.given;
    EXPECT_TRUE(named(c.nearest).fits(c.targets));
  }
}

TEST(ObjectClass, a_number_of_targets_names_a_class_that_protects) {
  const std::map<size_t, std::string> named = {
      {2, "RP_2"}, {3, "EC_2P1"}, {5, "EC_4P1"}, {6, "EC_4P2"}, {10, "EC_8P2"}};
  for (size_t targets = 0; targets < 70; ++targets) {
    const auto of_width = ObjectClass::protected_of_width(targets);
    const auto there = named.find(targets);
    EXPECT_EQ(of_width.name(), there == named.end() ? "default" : there->second) << targets;
  }
}

TEST(ObjectClass, sx_spans_the_pool) {
  const ObjectClass spanning = named("SX");
  EXPECT_TRUE(spanning.specified());
  EXPECT_EQ(spanning.name(), "SX");
  EXPECT_EQ(spanning.resolve(7)->name(), "S7");
  EXPECT_EQ(spanning.resolve(1)->name(), "S1");
  EXPECT_EQ(spanning.resolve(1000)->name(), "S64");
}

}  // namespace
}  // namespace sluice::storage
