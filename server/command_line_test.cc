#include "server/command_line.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

Result<CommandLine> parse(std::vector<std::string> words) {
  words.insert(words.begin(), "sluiced");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return parse_command_line(static_cast<int>(words.size()), argv.data());
}

TEST(CommandLine, EveryOptionArrives) {
  auto line = parse({"--pool", "/p", "--targets=6", "--class", "EC_4P2", "--hot-dir", "/dev/shm",
                     "--hot-size", "67108864", "--listen", "127.0.0.1:4000", "--drain", "idle",
                     "--accept-lost-hot-tier", "--foreground", "--existing", "--private", "--ready-fd", "7"});
  ASSERT_TRUE(line) << line.error().message;
  EXPECT_EQ(line->pool, "/p");
  EXPECT_EQ(line->request.targets, 6u);
  EXPECT_EQ(line->request.object_class, "EC_4P2");
  EXPECT_EQ(line->request.hot_dir, "/dev/shm");
  EXPECT_EQ(line->request.hot_bytes, 67108864u);
  EXPECT_EQ(line->request.listen, "127.0.0.1:4000");
  EXPECT_EQ(line->request.drain, "idle");
  EXPECT_TRUE(line->accept_lost_hot_tier);
  EXPECT_TRUE(line->foreground);
  EXPECT_TRUE(line->existing);
  EXPECT_TRUE(line->private_service);
  EXPECT_EQ(line->ready_fd, 7);
}

TEST(CommandLine, WhatIsNotSaidIsNotSet) {
  auto line = parse({"--pool", "/p"});
  ASSERT_TRUE(line);
  EXPECT_FALSE(line->request.targets);
  EXPECT_FALSE(line->request.object_class);
  EXPECT_FALSE(line->request.hot_bytes);
  EXPECT_FALSE(line->foreground);
  EXPECT_EQ(line->ready_fd, -1);
}

TEST(CommandLine, ErrorsNameTheWord) {
  const struct {
    std::vector<std::string> words;
    std::string named;
  } cases[] = {
      {{}, "--pool"},
      {{"--pool"}, "--pool"},
      {{"--pool", "/p", "--nonsense"}, "--nonsense"},
      {{"--pool", "/p", "stray"}, "'stray'"},
      {{"--pool", "/p", "--targets", "many"}, "'many'"},
      {{"--pool", "/p", "--targets", "-3"}, "'-3'"},
      {{"--pool", "/p", "--hot-size", "12Q"}, "'12Q'"},
      {{"--pool", "/p", "--hot-size", "99999999999999999999999"}, "'99999999999999999999999'"},
  };
  for (const auto& wrong : cases) {
    auto line = parse(wrong.words);
    ASSERT_FALSE(line);
    EXPECT_EQ(line.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(line.error().message.find(wrong.named), std::string::npos) << line.error().message;
  }
}

}  // namespace
}  // namespace sluice::server
