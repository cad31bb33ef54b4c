#include "tools/settings.h"

#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/os.h"

namespace sluice::tools {
namespace {

using testing::HasSubstr;

const nlohmann::json kStatus = {{"servers", {{{"address", "tcp://127.0.0.1:4711"}}}},
                                {"settings",
                                 {{"targets", 3},
                                  {"class", "EC_2P1"},
                                  {"hot_dir", "/pool/hot"},
                                  {"hot_size", 33554432},
                                  {"listen", "tcp://127.0.0.1:0"},
                                  {"drain", "immediate"}}}};

TEST(AgreeWithRunning, TheSameValuesContradictNothing) {
  const std::vector<std::vector<std::string>> agreeing = {
      {},
      {"--targets", "3", "--class", "EC_2P1", "--hot-size", "33554432", "--hot-dir", "/pool/hot/", "--drain",
       "immediate"},
      {"--listen", "127.0.0.1:0"},
      {"--listen", "tcp://127.0.0.1:4711"},
      {"--accept-lost-hot-tier"},
  };
  for (const auto& words : agreeing)
    EXPECT_TRUE(agree_with_running("/pool", words, kStatus)) << testing::PrintToString(words);
}

TEST(AgreeWithRunning, AContradictionIsNamedWithBothValuesAndWhatToDo) {
  const std::vector<std::array<std::string, 4>> contradicting = {
      {"--targets", "5", "3", "another pool"},
      {"--class", "RP_2", "EC_2P1", "another pool"},
      {"--hot-size", "67108864", "33554432", "another pool"},
      {"--hot-dir", "/elsewhere", "/pool/hot", "another pool"},
      {"--listen", "127.0.0.1:4712", "tcp://127.0.0.1:0", "sluice down --pool /pool"},
      {"--listen", "10.0.0.1:0", "tcp://127.0.0.1:0", "sluice down --pool /pool"},
      {"--drain", "idle", "immediate", "sluice down --pool /pool"},
  };
  for (const auto& [option, asked, is, next] : contradicting) {
    const auto refused = agree_with_running("/pool", {"--accept-lost-hot-tier", option, asked}, kStatus);
    ASSERT_FALSE(refused) << option << " " << asked;
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    EXPECT_THAT(refused.error().message, HasSubstr(option + " " + asked));
    EXPECT_THAT(refused.error().message, HasSubstr(option + " " + is));
    EXPECT_THAT(refused.error().message, HasSubstr(next));
  }
}

TEST(AgreeWithRunning, AHotTierDirectoryMayBeNamedByAnotherPath) {
  auto scratch = TemporaryDirectory::create("sluice_settings_test");
  ASSERT_TRUE(scratch);
  const auto real = scratch->path() / "real", link = scratch->path() / "link";
  std::filesystem::create_directory(real);
  std::filesystem::create_directory_symlink(real, link);
  auto status = kStatus;
  status["settings"]["hot_dir"] = real.string();
  EXPECT_TRUE(agree_with_running("/pool", {"--hot-dir", link.string()}, status));
}

}  // namespace
}  // namespace sluice::tools
