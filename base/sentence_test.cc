#include "base/sentence.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(FitSentence, one_that_fits_stays_as_it_is) {
  const std::string sentence = "the hot tier is full; make it larger, or write less at a time";
  EXPECT_EQ(fit_sentence(sentence, sentence.size()), sentence);
}

TEST(FitSentence, the_cause_loses_whole_words_and_the_next_step_is_kept) {
  const std::string sentence = "the hot tier of the pool is full because of much; too much; make it larger";
  const std::string fitted = fit_sentence(sentence, sentence.size() - 1);
  EXPECT_EQ(fitted, "the hot tier of the pool is full because of much; too...; make it larger");
  EXPECT_EQ(fit_sentence(sentence, 60), "the hot tier of the pool is full because...; make it larger");
}

TEST(FitSentence, a_next_step_that_leaves_no_room_for_a_cause_is_cut_itself_at_a_word) {
  const std::string sentence = "it is full; free space on all of the targets or make a pool that is larger";
  EXPECT_EQ(fit_sentence(sentence, 45), "it is full; free space on all of the...");
}

TEST(FitSentence, a_long_name_is_cut_between_characters) {
  std::string name;
  for (int i = 0; i < 60; ++i) name += "\xC3\xA4";
  for (size_t bytes = 50; bytes < 60; ++bytes) {
    const std::string fitted = fit_sentence("no " + name + "; look again", bytes);
    EXPECT_LE(fitted.size(), bytes);
    EXPECT_GE(fitted.size() + 2, bytes);
    const size_t dots = fitted.find("...; look again");
    ASSERT_NE(dots, std::string::npos) << fitted;
    EXPECT_EQ(fitted[dots - 1], '\xA4') << "a character in two";
  }
}

}  // namespace
}  // namespace sluice
