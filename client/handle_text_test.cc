#include "client/handle_text.h"

#include <gtest/gtest.h>

#include "client/lock_mode.h"

namespace sluice::client {
namespace {

HandleText whole() {
  HandleText handle;
  handle.handle = 1;
  handle.secret = ~uint64_t{0};
  handle.container = 3;
  handle.access = AccessMode::kReadWrite;
  handle.lock_mode = settle_lock_mode("lockahead", 7, AccessMode::kReadWrite, 2)->print();
  handle.pool = " a pool\nof two lines 12 ";
  handle.drain = "on_sync";
  handle.unavailable_after_ms = 30'000;
  handle.info = {"/a path 7 \n", 1, 2, 0644, 5, "EC_2P1", 1 << 20, 3, 9, 8, 10, 11, 12, 13};
  return handle;
}

TEST(HandleText, what_is_printed_is_read_whatever_the_paths_hold) {
  const HandleText one = whole();
  const auto two = HandleText::parse(one.print());
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(two->print(), one.print());
  EXPECT_EQ(two->pool, one.pool);
  EXPECT_EQ(two->drain, one.drain);
  EXPECT_EQ(two->lock_mode, one.lock_mode);
  EXPECT_EQ(two->info.path, one.info.path);
  EXPECT_EQ(two->info.mode, one.info.mode);
  EXPECT_EQ(two->info.size_bytes, one.info.size_bytes);
  EXPECT_EQ(two->info.object_class, one.info.object_class);
  EXPECT_EQ(two->info.targets, one.info.targets);
  EXPECT_EQ(two->info.modified_s, one.info.modified_s);
}

TEST(HandleText, the_longest_paths_fit) {
  HandleText handle = whole();
  handle.handle = handle.container = handle.info.size_bytes = handle.info.chunk_bytes = ~uint64_t{0};
  handle.info.committed_epoch = handle.info.persisted_epoch = handle.info.hot_bytes = ~uint64_t{0};
  handle.info.drained_bytes = handle.info.created_s = handle.info.modified_s = ~uint64_t{0};
  handle.unavailable_after_ms = ~uint64_t{0};
  handle.info.path.assign(protocol::kMaxPathBytes, 'p');
  handle.pool.assign(4095, 'q');  // PATH_MAX without its end
  const auto read = HandleText::parse(handle.print());
  ASSERT_TRUE(read) << handle.print().size();
  EXPECT_EQ(read->pool, handle.pool);
}

TEST(HandleText, what_was_cut_or_made_up_is_no_handle) {
  const std::string text = whole().print();
  for (size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_FALSE(HandleText::parse(text.substr(0, bytes))) << bytes;
  EXPECT_FALSE(HandleText::parse(std::string(2 * kMaxHandleBytes, '9')));
  EXPECT_FALSE(HandleText::parse("sluice-handle 1" + text.substr(15)));
}

}  // namespace
}  // namespace sluice::client
