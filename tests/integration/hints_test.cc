// Hints of files over a real service: the pool's own, and what is told of those in effect.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/hints.h"
#include "base/os.h"
#include "tests/support/mini_service.h"

namespace sluice {
namespace {

using client::File;
using client::OpenOptions;
using ::testing::HasSubstr;

class FileHints : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(service_.start(/*targets=*/6, /*hot_bytes=*/16 << 20)); }
  // As the pool's owner does: while no service runs.
  Result<> restart_with(const std::string& hints) {
    service_.stop();
    std::ofstream(service_.pool() / "pool.toml", std::ios::app) << "\n[hints]\n" << hints << "\n";
    return service_.start();
  }
  std::unique_ptr<File> open(const std::string& path, OpenOptions options = {},
                             const std::string& lock_mode = "") {
    options.access = client::AccessMode::kReadWrite;
    options.create = true;
    auto client = service_.connect(lock_mode);
    EXPECT_TRUE(client) << client.error().message;
    auto file = (*client)->open(path, options);
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : nullptr;
  }
  static std::string told(const File& file, std::string_view name) {
    for (const auto& [hint, value] : file.effective_hints()) {
      if (hint == name) return value;
    }
    return "not told";
  }

  testing::MiniService service_;
};

TEST_F(FileHints, every_hint_of_the_table_that_is_not_romios_is_told) {
  OpenOptions seven;
  seven.striping_factor = 7;
  const auto file = open("/f", seven);
  ASSERT_TRUE(file);
  for (const HintRow& row : hint_table()) {
    const std::string value = told(*file, row.name);
    const bool told_by_the_driver = row.name.starts_with("sluice_collective");
    if (row.owner == HintOwner::kRomio || told_by_the_driver) continue;
    EXPECT_NE(value, "not told") << row.name;
    EXPECT_NE(value, "") << row.name;
    // What is told may be given back.
    const HintList one = {{std::string(row.name), value}};
    EXPECT_TRUE(resolve_hints({&one, 1})) << row.name << "=" << value;
  }
  EXPECT_EQ(told(*file, "sluice_object_class"), "EC_4P2");
  EXPECT_EQ(told(*file, "striping_factor"), "6") << "7 was not taken";
  EXPECT_EQ(told(*open("/f"), "striping_factor"), "not told") << "nobody asked";
  EXPECT_EQ(told(*file, "striping_unit"), "1048576");
  EXPECT_EQ(told(*file, "sluice_drain"), "immediate");
}

TEST_F(FileHints, the_chunk_that_a_file_got_while_it_was_empty_is_told_of) {
  const auto file = open("/f");
  ASSERT_TRUE(file);
  EXPECT_EQ(told(*file, "sluice_chunk_size"), "1048576");
  const auto shaped = file->shape(131072, "a test asked");
  ASSERT_TRUE(shaped) << shaped.error().message;
  EXPECT_EQ(*shaped, 131072u);
  EXPECT_EQ(told(*file, "sluice_chunk_size"), "131072");
  EXPECT_EQ(told(*file, "striping_unit"), "131072");
  EXPECT_EQ(file->opened().chunk_bytes, 1048576u) << "as it was at open";
  EXPECT_EQ(*file->shape(65536, "again"), 131072u);
  EXPECT_EQ(told(*file, "sluice_chunk_size"), "131072");
}

TEST_F(FileHints, asking_for_a_chunk_counts_as_a_message_and_a_wait) {
  const auto stats = service_.pool() / "stats";
  ::setenv("SLUICE_STATS", stats.c_str(), 1);
  const auto with_questions = [&](const std::string& path, int questions) {
    const auto file = open(path);
    for (int i = 0; i < questions; ++i) EXPECT_TRUE(file->shape(131072, "a test asked"));
    EXPECT_TRUE(file->close(true));
    const auto text = read_file(stats, 65536);
    EXPECT_TRUE(text);
    return nlohmann::json::parse(text->substr(text->rfind('\n', text->size() - 2) + 1));
  };
  const auto without = with_questions("/without", 0);
  const auto with = with_questions("/with", 3);
  ::unsetenv("SLUICE_STATS");
  EXPECT_EQ(with["messages"].get<int>(), without["messages"].get<int>() + 3);
  const auto waits = [](const nlohmann::json& told) { return told["waited"]["answers"]["count"].get<int>(); };
  EXPECT_EQ(waits(with), waits(without) + 3);
}

TEST_F(FileHints, a_striping_factor_is_taken_where_a_protected_class_of_the_pool_has_it) {
  const auto with_factor = [&](uint32_t factor) {
    OpenOptions options;
    options.striping_factor = factor;
    const auto file = open("/factor" + std::to_string(factor), options);
    return file ? told(*file, "sluice_object_class") + " " + told(*file, "striping_factor") : "";
  };
  EXPECT_EQ(with_factor(3), "EC_2P1 3");
  EXPECT_EQ(with_factor(5), "EC_4P1 5");
  EXPECT_EQ(with_factor(4), "EC_4P2 6") << "only S4 has four, which protects nothing";
  EXPECT_EQ(with_factor(10), "EC_4P2 6") << "more than the pool has";
  OpenOptions both;
  both.striping_factor = 5;
  both.object_class = "RP_2";
  EXPECT_EQ(told(*open("/both", both), "sluice_object_class"), "RP_2");
}

TEST_F(FileHints, a_pools_hints_count_where_nobody_else_says_anything) {
  ASSERT_TRUE(restart_with(R"("*.h5" = { sluice_chunk_size = "128k", cray_cb_write_lock_mode = 1 }
"/ckpt/*" = { striping_factor = 3, sluice_lockahead_extents = 7, sluice_lock_mode = "standard" })"));
  const auto checkpoint = open("/ckpt/1");
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(told(*checkpoint, "sluice_object_class"), "EC_2P1");
  EXPECT_EQ(told(*checkpoint, "sluice_lock_mode"), "standard");
  EXPECT_EQ(told(*checkpoint, "sluice_lockahead_extents"), "7");
  EXPECT_EQ(told(*checkpoint, "sluice_chunk_size"), "1048576");
  const auto both = open("/ckpt/a.h5");
  ASSERT_TRUE(both);
  EXPECT_EQ(told(*both, "sluice_chunk_size"), "131072");
  EXPECT_EQ(told(*both, "sluice_lock_mode"), "standard") << "of two rules the later one";
  EXPECT_EQ(told(*open("/b.h5"), "sluice_lock_mode"), "group");
  EXPECT_EQ(told(*open("/b.h5", {}, "lockahead"), "sluice_lock_mode"), "lockahead") << "the variable's";
  OpenOptions own;
  own.object_class = "RP_2";
  own.chunk_bytes = 65536;
  own.lock_mode = "none";
  const auto said = open("/ckpt/own.h5", own);
  ASSERT_TRUE(said);
  EXPECT_EQ(told(*said, "sluice_object_class"), "RP_2");
  EXPECT_EQ(told(*said, "sluice_chunk_size"), "65536");
  EXPECT_EQ(told(*said, "sluice_lock_mode"), "none");
}

TEST_F(FileHints, a_service_does_not_start_over_a_hint_that_makes_no_sense) {
  const auto started = restart_with(R"("*" = { sluice_chunksize = "1m" })");
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("pool.toml"));
  EXPECT_THAT(started.error().message, HasSubstr("sluice_chunk_size"));
}

}  // namespace
}  // namespace sluice
