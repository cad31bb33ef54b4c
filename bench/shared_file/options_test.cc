#include "bench/shared_file/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace sluice::bench {
namespace {

using testing::HasSubstr;

Result<std::variant<SharedFileOptions, SharedFileHelp>> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "shared_file");
  return parse_shared_file_options(static_cast<int>(words.size()), words.data());
}

SharedFileOptions parsed(const std::vector<const char*>& words) {
  const auto got = parse(words);
  EXPECT_TRUE(got) << got.error().message;
  return std::get<SharedFileOptions>(*got);
}

TEST(SharedFileOptions, without_a_phase_it_writes_and_reads) {
  const auto options = parsed({"-c", "-t", "64k", "-b", "1M", "-s", "3"});
  EXPECT_TRUE(options.write && options.read && options.collective);
  EXPECT_EQ(options.transfer_bytes, 65536U);
  EXPECT_EQ(options.block_bytes, 1048576U);
  EXPECT_EQ(options.transfers_of_a_rank(), 48U);
  EXPECT_FALSE(parsed({"-w"}).read);
  EXPECT_FALSE(parsed({"-r"}).write);
  EXPECT_TRUE(parsed({"-R"}).read);
}

TEST(SharedFileOptions, every_byte_of_the_file_belongs_to_one_transfer_of_one_rank) {
  const auto options = parsed({"-t", "8", "-b", "24", "-s", "5"});
  std::set<uint64_t> begins;
  constexpr uint32_t kRanks = 4;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (uint64_t t = 0; t < options.transfers_of_a_rank(); ++t)
      EXPECT_TRUE(begins.insert(options.offset_of(t, rank, kRanks)).second);
  }
  EXPECT_EQ(begins.size(), 5U * 3 * kRanks);
  EXPECT_EQ(*begins.rbegin(), 5U * 24 * kRanks - 8);
  EXPECT_EQ(options.offset_of(3, 1, kRanks), 24U * (kRanks + 1)) << "the second segment";
}

TEST(SharedFileOptions, own_files_are_numbered_as_iors) {
  const auto options = parsed({"-F", "-o", "ufs:/x", "-t", "8", "-b", "16", "-s", "2"});
  EXPECT_EQ(options.path_of(12), "ufs:/x.00000012");
  EXPECT_EQ(options.offset_of(2, 12, 100), 16U);
}

TEST(SharedFileOptions, what_makes_no_sense_is_refused_by_its_option) {
  EXPECT_THAT(parse({"-t", "3m", "-b", "4m"}).error().message, HasSubstr("-b: a block of 4194304"));
  EXPECT_THAT(parse({"-t", "1q"}).error().message, HasSubstr("'1q' is not a size"));
  EXPECT_THAT(parse({"-a", "HDF5"}).error().message, HasSubstr("-a: 'HDF5'"));
  EXPECT_THAT(parse({"-a", "POSIX", "-c"}).error().message, HasSubstr("-c:"));
  EXPECT_THAT(parse({"-s", "0"}).error().message, HasSubstr("-s:"));
  EXPECT_FALSE(parse_size("99999999999g"));
}

TEST(SharedFileOptions, pattern_words_differ_between_ranks_places_and_repetitions) {
  std::set<uint64_t> words;
  for (uint32_t rank = 0; rank < 8; ++rank) {
    for (uint64_t byte = 0; byte < 8192; byte += 8) {
      for (uint64_t repetition = 0; repetition < 3; ++repetition)
        EXPECT_TRUE(words.insert(pattern_word(rank, byte, repetition)).second);
    }
  }
}

}  // namespace
}  // namespace sluice::bench
