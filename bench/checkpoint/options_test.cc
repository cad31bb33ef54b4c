#include "bench/checkpoint/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

Result<std::variant<Options, HelpText>> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "checkpoint");
  return parse_options(static_cast<int>(words.size()), words.data());
}

Options parsed(const std::vector<const char*>& words) {
  const auto got = parse(words);
  EXPECT_TRUE(got) << got.error().message;
  return std::get<Options>(*got);
}

TEST(Options, defaults) {
  const Options options = parsed({"--path", "/x/%d"});
  EXPECT_EQ(options.size, 128U);
  EXPECT_EQ(options.steps, 4U);
  EXPECT_EQ(options.flush, FlushPolicy::kGroup);
  EXPECT_EQ(options.chunk_cells, 0U);
  EXPECT_FALSE(options.verify);
}

TEST(Options, step_placeholders_anywhere_in_any_path) {
  EXPECT_EQ(parsed({"--path", "sluice:/a/{step}/c.%d.h5"}).path_at(12), "sluice:/a/12/c.12.h5");
  EXPECT_EQ(parsed({"--path", "ufs:/a/%d"}).path_at(0), "ufs:/a/0");
  EXPECT_EQ(parsed({"--path", "/wrf_00:00:00", "--steps", "1"}).path_at(7), "/wrf_00:00:00");
  EXPECT_EQ(parsed({"--path", "/100%{step}%"}).path_at(3), "/100%3%");
}

TEST(Options, fault_points_and_hints) {
  const Options killed = parsed({"--path", "/%d", "--steps", "3", "--kill-self", "2:H:1", "--hint",
                                 "cb_nodes=2", "--hint", "a=b=c", "--flush", "variable"});
  EXPECT_EQ(killed.kill_self->at.step, 2U);
  EXPECT_EQ(killed.kill_self->at.variable, VariableIndex(3));
  EXPECT_EQ(killed.kill_self->rank, 1U);
  ASSERT_EQ(killed.hints.size(), 2U);
  EXPECT_EQ(killed.hints[1], (std::pair<std::string, std::string>("a", "b=c")));
  EXPECT_EQ(killed.flush, FlushPolicy::kVariable);
  EXPECT_TRUE(check_ranks(killed, 2));
  EXPECT_FALSE(check_ranks(killed, 1));
  const Options paused = parsed({"--path", "/%d", "--pause-at", "0:V", "--pause-fifo", "/fifo"});
  EXPECT_EQ(paused.pause_at->at.variable, VariableIndex(5));
  EXPECT_EQ(paused.pause_at->fifo, "/fifo");
}

TEST(Options, synced_variables) {
  EXPECT_EQ(parsed({"--path", "/%d", "--verify", "--synced-variables", "3"}).synced->variables, 3U);
  EXPECT_EQ(parsed({"--path", "/%d", "--verify", "--synced-variables", "any"}).synced->variables,
            std::nullopt);
}

TEST(Options, help_has_examples) {
  const auto got = parse({"--help"});
  ASSERT_TRUE(got);
  EXPECT_THAT(std::get<HelpText>(*got).text, HasSubstr("mpiexec -n 4 checkpoint --path"));
}

struct Refusal {
  std::vector<const char*> words;
  const char* says;
};

class RefusedOptions : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedOptions, are_refused_in_one_line_that_names_the_option) {
  const auto got = parse(GetParam().words);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(got.error().message, HasSubstr(GetParam().says));
  EXPECT_THAT(got.error().message, Not(HasSubstr("\n")));
  EXPECT_THAT(got.error().message, HasSubstr("--help"));
}

INSTANTIATE_TEST_SUITE_P(
    Words, RefusedOptions,
    testing::Values(Refusal{{}, "--path"}, Refusal{{"--path", "/%d", "--size", "100"}, "--size: 100"},
                    Refusal{{"--path", "/%d", "--size", "4096"}, "--size: 4096"},
                    Refusal{{"--path", "/%d", "--size", "-128"}, "--size"},
                    Refusal{{"--path", "/%d", "--levels", "5"}, "--levels: 5"},
                    Refusal{{"--path", "/%d", "--steps", "0"}, "--steps: 0"},
                    Refusal{{"--path", "/one"}, "would share one file"},
                    Refusal{{"--path", "/%d", "--flush", "often"}, "--flush"},
                    Refusal{{"--path", "/%d", "--chunk", "99999999999"}, "--chunk"},
                    Refusal{{"--path", "/%d", "--hint", "cb_nodes"}, "--hint: 'cb_nodes'"},
                    Refusal{{"--path", "/%d", "--kill-self", "9:H:0"}, "step '9'"},
                    Refusal{{"--path", "/%d", "--kill-self", "1:h:0"}, "variable 'h'"},
                    Refusal{{"--path", "/%d", "--kill-self", "1:H"}, "STEP:VARIABLE:RANK"},
                    Refusal{{"--path", "/%d", "--kill-self", "1:H:x"}, "not a rank"},
                    Refusal{{"--path", "/%d", "--pause-at", "1:H"}, "--pause-fifo"},
                    Refusal{{"--path", "/%d", "--synced-variables", "1"}, "--verify"},
                    Refusal{{"--path", "/%d", "--verify", "--synced-variables", "7"}, "'7'"},
                    Refusal{{"--path", "/%d", "--verify", "--kill-self", "1:H:0"}, "for writing"},
                    Refusal{{"--path", "/%d", "--no-such"}, "--no-such"}));

}  // namespace
}  // namespace sluice::bench
