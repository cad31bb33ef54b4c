#include "server/pool_file.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

const PoolPaths kPaths{"/some/pool"};

PoolConfig sample() {
  PoolConfig config;
  config.pool_id = 0x0123456789abcdef;
  config.object_class = *storage::ObjectClass::parse("EC_2P1");
  config.targets = {"/some/pool/targets/t0", "/some/pool/targets/t1", "/disk \"2\"/x"};
  config.hot_file = "/some/pool/hot/hot.pool";
  config.hot_bytes = kDefaultHotBytes;
  config.listen = "tcp://127.0.0.1:0";
  config.drain = "immediate";
  return config;
}

// The text with one line replaced: the line that begins with `key`.
std::string with(const std::string& key, const std::string& line) {
  std::string text = print_pool_file(sample(), kPaths);
  const size_t begin = text.find("\n" + key) + 1;
  EXPECT_NE(begin, 0u) << key << " is not in\n" << text;
  return text.replace(begin, text.find('\n', begin) - begin, line);
}

TEST(PoolFile, ReadsWhatItWrote) {
  auto config = parse_pool_file(print_pool_file(sample(), kPaths), kPaths);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->pool_id, sample().pool_id);
  EXPECT_EQ(config->object_class, sample().object_class);
  EXPECT_EQ(config->targets, sample().targets);
  EXPECT_EQ(config->hot_file, sample().hot_file);
  EXPECT_EQ(config->hot_bytes, sample().hot_bytes);
  EXPECT_EQ(config->listen, sample().listen);
  EXPECT_EQ(config->drain, sample().drain);
}

TEST(PoolFile, AMovedPoolFindsItsOwnPartsAtTheNewPlace) {
  auto config = parse_pool_file(print_pool_file(sample(), kPaths), PoolPaths("/elsewhere"));
  ASSERT_TRUE(config);
  EXPECT_EQ(config->targets[0], "/elsewhere/targets/t0");
  EXPECT_EQ(config->targets[2], "/disk \"2\"/x");
  EXPECT_EQ(config->hot_file, "/elsewhere/hot/hot.pool");
}

TEST(PoolFile, DamageIsNamed) {
  const struct {
    std::string text;
    std::string named;
  } cases[] = {
      {"", "'format'"},
      {"format = 1\npool_id = [", "line 2"},
      {with("pool_id", "pool_id = \"xyz\""), "'pool_id'"},
      {with("pool_id", "pool_id = 12"), "'pool_id'"},
      {with("class", "class = \"EC_9P9\""), "'class'"},
      {with("class", "class = \"EC_8P2\""), "class EC_8P2 needs 10"},
      {with("targets", "targets = []"), "'targets'"},
      {with("targets", "targets = [\"a\", \"b\", \"./a\"]"), "twice"},
      {with("targets", "targets = [1, 2, 3]"), "'targets'"},
      {with("bytes", "bytes = -1"), "'hot.bytes'"},
      {with("file", "file = \"\""), "'hot.file'"},
  };
  for (const auto& damage : cases) {
    auto config = parse_pool_file(damage.text, kPaths);
    ASSERT_FALSE(config) << damage.text;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(config.error().message.find(damage.named), std::string::npos) << config.error().message;
  }
}

TEST(PoolFile, HintsOfThePoolAreReadInTheirOrderAndWrittenAgain) {
  const std::string text =
      print_pool_file(sample(), kPaths) +
      "[hints]\n\"/z/*\" = { sluice_lockahead_extents = 8, sluice_lock_mode = 'group' }\n"
      "\"*.h5\" = { striping_unit = 65536 }\n";
  auto config = parse_pool_file(text, kPaths);
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->hints.size(), 2u);
  EXPECT_EQ(print_rules(config->hints),
            "/z/*:sluice_lock_mode=group:sluice_lockahead_extents=8,*.h5:striping_unit=65536");
  auto again = parse_pool_file(print_pool_file(*config, kPaths), kPaths);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(print_rules(again->hints), print_rules(config->hints));
}

TEST(PoolFile, HintsThatMakeNoSenseAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"\"*\" = { sluice_chunksize = '1m' }", "sluice_chunk_size"},
      {"\"*\" = { sluice_chunk_size = '100k' }", "'hints.\"*\".sluice_chunk_size'"},
      {"\"*\" = { striping_unit = 1000 }", "means nothing"},
      {"\"*\" = { cb_nodes = '4m' }", "cannot be a pool's"},
      {"\"*\" = { panfs_concurrent_write = 1 }", "no hint that Sluice knows"},
      {"\"*\" = { sluice_object_class = 'EC_8P2' }", "needs 10 targets"},
      {"\"*\" = { sluice_object_class = 'EC_2P1,S1' }", "comma"},
      {"\"*\" = { sluice_object_class = [] }", "no text"},
      {"\"a:b\" = { sluice_lock_mode = 'none' }", "no pattern"},
      {"\"*\" = {}", "no table"},
      {"\"*\" = 'sluice_lock_mode=none'", "no table"},
  };
  for (const auto& [line, named] : cases) {
    auto config = parse_pool_file(print_pool_file(sample(), kPaths) + "[hints]\n" + line + "\n", kPaths);
    ASSERT_FALSE(config) << line;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(config.error().message.find(named), std::string::npos) << config.error().message;
  }
}

TEST(PoolFile, ANewerFormatIsRefusedAsThat) {
  auto config = parse_pool_file(with("format", "format = 2"), kPaths);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(config.error().message.find("format 2"), std::string::npos);
}

}  // namespace
}  // namespace sluice::server
