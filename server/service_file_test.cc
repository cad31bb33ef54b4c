#include "server/service_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/os.h"

namespace sluice::server {
namespace {

TEST(ServiceFile, HoldsWhatClientsLookFor) {
  auto scratch = TemporaryDirectory::create("sluice_service_file_test");
  ASSERT_TRUE(scratch);
  const auto path = scratch->path() / "service.json";
  ASSERT_TRUE(write_service_file(path, {"1.2.3", 4711, 0xab, {"tcp://127.0.0.1:4000"}, "control.sock"}));
  auto text = read_file(path, 4096);
  ASSERT_TRUE(text);
  const auto file = nlohmann::json::parse(*text);
  EXPECT_EQ(file["version"], "1.2.3");
  EXPECT_EQ(file["pid"], 4711);
  EXPECT_EQ(file["boot"], "00000000000000ab");
  EXPECT_EQ(file["addresses"], nlohmann::json::array({"tcp://127.0.0.1:4000"}));
  EXPECT_EQ(file["control"], "control.sock");
  EXPECT_TRUE(service_file_is(path, {"1.2.3", 4711, 0xab, {"tcp://127.0.0.1:4000"}, "control.sock"}));
}

TEST(ServiceFile, WhatIsDamagedOrGoneOrAnotherOnesIsNotTheFile) {
  auto scratch = TemporaryDirectory::create("sluice_service_file_test");
  ASSERT_TRUE(scratch);
  const auto path = scratch->path() / "service.json";
  const ServiceFile ours{"1.2.3", 4711, 0xab, {"tcp://127.0.0.1:4000"}, "control.sock"};
  EXPECT_FALSE(service_file_is(path, ours));
  ServiceFile others = ours;
  others.boot = 0xac;
  ASSERT_TRUE(write_service_file(path, others));
  EXPECT_FALSE(service_file_is(path, ours));
  const std::string text = print_service_file(ours);
  for (const std::string& damaged : {text.substr(0, text.size() / 2), text + "x", std::string()}) {
    ASSERT_TRUE(replace_file(path, damaged));
    EXPECT_FALSE(service_file_is(path, ours)) << damaged;
  }
}

}  // namespace
}  // namespace sluice::server
