#include "base/printable.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace sluice {
namespace {

TEST(Printable, OrdinaryTextStaysAsItIs) {
  for (const char* text : {"", "ckpt.0001", "a b~!", "Grüße", "日本語", "\U0001f600"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_name(text), text);
  }
}

TEST(Printable, WhatBreaksLinesOrSteersTerminalsIsEscaped) {
  EXPECT_EQ(printable("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(printable("\x1b[31m\x7f"), "\\x1b[31m\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m") << "one of U+0080 to U+009F";
  EXPECT_EQ(printable("\u202ecod"), "\\xe2\\x80\\xaecod") << "writes from right to left";
  EXPECT_EQ(printable("\u2028"), "\\xe2\\x80\\xa8");
}

TEST(Printable, WhatIsNoUtf8IsEscapedByteByByte) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut off";
  EXPECT_EQ(printable("\xc0\x8a"), "\\xc0\\x8a") << "a line feed in two bytes";
  EXPECT_EQ(printable("\xe0\x80\x8a"), "\\xe0\\x80\\x8a");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(printable("\xe2\x82\x41"),
            "\\xe2\\x82"
            "A");
}

TEST(Printable, BackslashesAreDoubledInNamesOnly) {
  EXPECT_EQ(printable("a\\nb"), "a\\nb");
  EXPECT_EQ(printable_name("a\\nb"), "a\\\\nb");
  EXPECT_EQ(printable_name("a\nb"), "a\\nb");
}

RC_GTEST_PROP(Printable, different_names_never_look_alike,
              (const std::string& one, const std::string& other)) {
  RC_ASSERT((printable_name(one) == printable_name(other)) == (one == other));
}

RC_GTEST_PROP(Printable, no_control_byte_is_left, (const std::string& text)) {
  for (char c : printable(text)) RC_ASSERT(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
}

}  // namespace
}  // namespace sluice
