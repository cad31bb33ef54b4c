#include "base/nearest.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(nearest("kitten", {"sitting", "mitten", "kit"}), "mitten");
  EXPECT_EQ(nearest("", {"abc", "a"}), "a");
}

}  // namespace
}  // namespace sluice
