#include "tools/sizes.h"

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

TEST(ParseBytes, TakesNumbersWithAndWithoutUnits) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"1", 1},
      {"1048577", 1048577},
      {"18446744073709551615", UINT64_MAX},
      {"7B", 7},
      {"64K", 64 << 10},
      {"64k", 64 << 10},
      {"64KB", 64 << 10},
      {"64KiB", 64 << 10},
      {"1.5G", 3ull << 29},
      {"2T", 2ull << 40},
      {"0.5M", 512 << 10},
  };
  for (const auto& [text, bytes] : cases) {
    auto parsed = parse_bytes(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseBytes, RefusesEverythingElse) {
  for (const char* text : {"", "K", "-1", "1.5", "1e3", "0x10", "12Q", "12KK", "1 K", "nan", "inf", "99E",
                           "18446744073709551616"}) {
    auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find(std::string("'") + text + "'"), std::string::npos);
  }
}

TEST(PrintBytes, UsesTheLargestUnitThatLeavesAWholeDigit) {
  const std::pair<uint64_t, const char*> cases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.0 KiB"},
      {1536, "1.5 KiB"},
      {1048575, "1.0 MiB"},
      {256ull << 20, "256.0 MiB"},
      {UINT64_MAX, "16.0 EiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(print_bytes(bytes), text);
}

}  // namespace
}  // namespace sluice::tools
