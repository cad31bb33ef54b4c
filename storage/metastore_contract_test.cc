#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "base/os.h"
#include "storage/metastore.h"
#include "storage/sqlite.h"

// What every MetaStore promises, over every implementation.
namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Backend {
  std::string label;
  bool lasting;
  std::function<std::unique_ptr<MetaStore>(const std::filesystem::path& scratch)> open;
};

ContainerAttributes attributes(const std::string& path) {
  ContainerAttributes a;
  a.path = path;
  a.uid = 1000;
  a.gid = 100;
  a.mode = 0640;
  a.object_class = ObjectClass::parse("EC_4P2").value();
  a.chunk_size = Length(65536);
  return a;
}

class MetaStoreContract : public testing::TestWithParam<Backend> {
 protected:
  MetaStoreContract() : scratch_(TemporaryDirectory::create("sluice-meta").value()) { reopen(); }

  void reopen() {
    if (store_ != nullptr && !GetParam().lasting) return;
    store_.reset();
    store_ = GetParam().open(scratch_.path());
  }
  ContainerId make(const std::string& path) { return store_->create(attributes(path), 5).value().id; }
  std::vector<std::string> paths_below(const std::string& path) {
    std::vector<std::string> paths;
    const auto listed = store_->list(path).value();
    for (const ContainerInfo& info : listed) paths.push_back(info.attributes.path);
    return paths;
  }

  TemporaryDirectory scratch_;
  std::unique_ptr<MetaStore> store_;
};

TEST_P(MetaStoreContract, a_container_is_found_by_path_and_by_id) {
  const ContainerInfo made = store_->create(attributes("/a/b"), 1234).value();
  reopen();
  for (const auto& found : {store_->find("/a/b"), store_->find(made.id)}) {
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, made.id);
    EXPECT_EQ(found->attributes.path, "/a/b");
    EXPECT_EQ(found->attributes.uid, 1000u);
    EXPECT_EQ(found->attributes.gid, 100u);
    EXPECT_EQ(found->attributes.mode, 0640u);
    EXPECT_EQ(found->attributes.object_class.name(), "EC_4P2");
    EXPECT_EQ(found->attributes.chunk_size, Length(65536));
    EXPECT_EQ(found->published, Epoch(0));
    EXPECT_EQ(found->size, Length(0));
    EXPECT_EQ(found->created_s, 1234u);
    EXPECT_EQ(found->modified_s, 1234u);
  }
}

TEST_P(MetaStoreContract, a_container_is_shaped_until_it_is_published) {
  const ContainerId id = make("/shaped");
  EXPECT_EQ(store_->find(id)->attributes.chunk_reason, "");
  ASSERT_TRUE(store_->shape(id, Length(4 << 20), "blocks of 3 MiB"));
  reopen();
  EXPECT_EQ(store_->find("/shaped")->attributes.chunk_size, Length(4 << 20));
  EXPECT_EQ(store_->find(id)->attributes.chunk_reason, "blocks of 3 MiB");
  ASSERT_TRUE(store_->advance(id, Epoch(0), Epoch(1), Length(1), "x", 6));
  EXPECT_EQ(store_->shape(id, Length(65536), "later").error().code, ErrorCode::kConflict);
  EXPECT_EQ(store_->find(id)->attributes.chunk_size, Length(4 << 20));
  EXPECT_EQ(store_->shape(ContainerId(99), Length(65536), "").error().code, ErrorCode::kNotFound);
}

TEST_P(MetaStoreContract, a_path_is_taken_once) {
  make("/x");
  const auto again = store_->create(attributes("/x"), 6);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kExists);
  EXPECT_THAT(again.error().message, HasSubstr("/x"));
  EXPECT_THAT(paths_below("/"), ElementsAre("/x"));
}

TEST_P(MetaStoreContract, what_is_not_there_is_not_found) {
  EXPECT_EQ(store_->find("/x").error().code, ErrorCode::kNotFound);
  for (const uint64_t id : {uint64_t{1}, UINT64_MAX}) {
    EXPECT_EQ(store_->find(ContainerId(id)).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store_->remove(ContainerId(id)).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store_->steps(ContainerId(id)).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(store_->advance(ContainerId(id), Epoch(0), Epoch(1), Length(0), "d", 1).error().code,
              ErrorCode::kNotFound);
    EXPECT_EQ(store_->aggregate(ContainerId(id), Epoch(1), "m").error().code, ErrorCode::kNotFound);
  }
}

TEST_P(MetaStoreContract, list_answers_what_is_at_or_below_a_path) {
  for (const char* path :
       {"/a", "/a/b", "/a/b/c", "/ab", "/a-b", "/a.b", "/a0", "/b", "/A/b", "/a/%", "/a/_"})
    make(path);
  EXPECT_THAT(paths_below("/a"), ElementsAre("/a", "/a/%", "/a/_", "/a/b", "/a/b/c"));
  EXPECT_THAT(paths_below("/a/b"), ElementsAre("/a/b", "/a/b/c"));
  EXPECT_THAT(paths_below("/a/"), IsEmpty());
  EXPECT_THAT(paths_below("/nothing"), IsEmpty());
  EXPECT_EQ(paths_below("/").size(), 11u);
}

TEST_P(MetaStoreContract, removing_frees_the_path_and_never_the_id) {
  const ContainerId first = make("/x");
  ASSERT_TRUE(store_->advance(first, Epoch(0), Epoch(1), Length(1), "step", 6));
  ASSERT_TRUE(store_->remove(first));
  reopen();
  EXPECT_EQ(store_->find(first).error().code, ErrorCode::kNotFound);
  const ContainerId second = make("/x");
  EXPECT_NE(first, second);
  EXPECT_THAT(*store_->steps(second), IsEmpty());
}

TEST_P(MetaStoreContract, allotted_numbers_are_never_handed_out_twice) {
  EXPECT_EQ(*store_->allot("stripe", 10), 1u);
  EXPECT_EQ(*store_->allot("stripe", 1), 11u);
  EXPECT_EQ(*store_->allot("txn", 3), 1u);
  reopen();
  EXPECT_EQ(*store_->allot("stripe", 1), 12u);
  EXPECT_FALSE(store_->allot("stripe", 0));
  EXPECT_EQ(store_->allot("stripe", UINT64_MAX).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(*store_->allot("stripe", 1), 13u);
}

TEST_P(MetaStoreContract, advance_appends_a_step_and_moves_the_root) {
  const ContainerId id = make("/x");
  const std::string binary("a\0b\xff", 4);
  ASSERT_TRUE(store_->advance(id, Epoch(0), Epoch(3), Length(100), "first", 7));
  ASSERT_TRUE(store_->advance(id, Epoch(3), Epoch(4), Length(50), binary, 8));
  ASSERT_TRUE(store_->advance(id, Epoch(4), Epoch(10), Length(60), "", 9));
  reopen();
  const ContainerInfo info = store_->find(id).value();
  EXPECT_EQ(info.published, Epoch(10));
  EXPECT_EQ(info.size, Length(60));
  EXPECT_EQ(info.created_s, 5u);
  EXPECT_EQ(info.modified_s, 9u);
  EXPECT_THAT(*store_->steps(id), ElementsAre("first", binary, ""));
}

TEST_P(MetaStoreContract, advance_from_another_version_is_a_conflict_and_changes_nothing) {
  const ContainerId id = make("/x");
  ASSERT_TRUE(store_->advance(id, Epoch(0), Epoch(3), Length(100), "first", 7));
  const auto lost = store_->advance(id, Epoch(2), Epoch(5), Length(1), "second", 8);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kConflict);
  EXPECT_THAT(lost.error().message, HasSubstr("is 3, not 2"));
  EXPECT_EQ(store_->advance(id, Epoch(3), Epoch(3), Length(1), "x", 8).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(store_->advance(id, Epoch(3), Epoch(2), Length(1), "x", 8).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(store_->find(id)->published, Epoch(3));
  EXPECT_THAT(*store_->steps(id), ElementsAre("first"));
}

TEST_P(MetaStoreContract, aggregation_replaces_older_steps_only) {
  const ContainerId id = make("/x");
  const ContainerId other = make("/y");
  ASSERT_TRUE(store_->advance(other, Epoch(0), Epoch(1), Length(1), "other", 7));
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    ASSERT_TRUE(store_->advance(id, Epoch(epoch), Epoch(epoch + 1), Length(epoch),
                                "s" + std::to_string(epoch + 1), 7));
  }
  ASSERT_TRUE(store_->aggregate(id, Epoch(3), "merged"));
  reopen();
  EXPECT_THAT(*store_->steps(id), ElementsAre("merged", "s4", "s5"));
  EXPECT_THAT(*store_->steps(other), ElementsAre("other"));
  EXPECT_EQ(store_->find(id)->published, Epoch(5));
  EXPECT_EQ(store_->aggregate(id, Epoch(2), "m").error().code, ErrorCode::kConflict);
  EXPECT_EQ(store_->aggregate(id, Epoch(6), "m").error().code, ErrorCode::kConflict);
  EXPECT_THAT(*store_->steps(id), ElementsAre("merged", "s4", "s5"));
}

TEST_P(MetaStoreContract, facts_are_kept) {
  EXPECT_EQ(*store_->get("k"), std::nullopt);
  const std::string binary("\0x\0", 3);
  ASSERT_TRUE(store_->put("k", "old"));
  ASSERT_TRUE(store_->put("k", binary));
  ASSERT_TRUE(store_->put("empty", ""));
  reopen();
  EXPECT_EQ(*store_->get("k"), binary);
  EXPECT_EQ(*store_->get("empty"), "");
}

TEST_P(MetaStoreContract, many_threads_one_winner) {
  const ContainerId id = make("/x");
  std::atomic<int> won = 0;
  std::mutex mutex;
  std::set<uint64_t> numbers;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (uint64_t epoch = 0; epoch < 10; ++epoch) {
        if (store_->advance(id, Epoch(epoch), Epoch(epoch + 1), Length(0), "s", 1)) ++won;
        const uint64_t number = store_->allot("n", 1).value();
        std::lock_guard lock(mutex);
        EXPECT_TRUE(numbers.insert(number).second);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->find(id)->published.value, static_cast<uint64_t>(won));
  EXPECT_EQ(store_->steps(id)->size(), static_cast<size_t>(won));
}

INSTANTIATE_TEST_SUITE_P(MetaStores, MetaStoreContract,
                         testing::Values(Backend{"sqlite", true,
                                                 [](const std::filesystem::path& scratch) {
                                                   return open_sqlite_metastore(scratch / "meta.db").value();
                                                 }},
                                         Backend{"memory", false,
                                                 [](const std::filesystem::path&) {
                                                   return make_memory_metastore();
                                                 }}),
                         [](const auto& param_info) { return param_info.param.label; });

class SqliteMetaStoreTest : public testing::Test {
 protected:
  SqliteMetaStoreTest()
      : scratch_(TemporaryDirectory::create("sluice-sqlite").value()), path_(scratch_.path() / "meta.db") {}

  TemporaryDirectory scratch_;
  std::filesystem::path path_;
};

TEST_F(SqliteMetaStoreTest, a_pool_in_use_names_its_holder) {
  const auto first = open_sqlite_metastore(path_).value();
  const auto second = open_sqlite_metastore(path_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_THAT(second.error().message, HasSubstr(scratch_.path().string()));
  EXPECT_THAT(second.error().message, HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_TRUE(first->put("k", "v")) << "the holder is not disturbed";
}

TEST_F(SqliteMetaStoreTest, a_killed_process_leaves_the_pool_free_and_what_it_reported_done) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = open_sqlite_metastore(path_).value();
    for (uint64_t number = 1;; ++number) {
      if (!store->put("last", std::to_string(number))) ::_exit(1);
      if (::write(told[1], &number, sizeof number) != sizeof number) ::_exit(1);
    }
  }
  uint64_t number = 0;
  while (number < 20) ASSERT_EQ(::read(told[0], &number, sizeof number), static_cast<ssize_t>(sizeof number));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(told[1]);
  while (::read(told[0], &number, sizeof number) == sizeof number) {
  }
  ::close(told[0]);
  const auto store = open_sqlite_metastore(path_);
  ASSERT_TRUE(store) << store.error().message;
  const uint64_t kept = std::stoull((*store)->get("last")->value());
  EXPECT_GE(kept, number);
  EXPECT_LE(kept, number + 1);
}

TEST_F(SqliteMetaStoreTest, a_database_of_version_1_is_upgraded) {
  {
    const auto store = open_sqlite_metastore(path_).value();
    ASSERT_TRUE(store->create(attributes("/old"), 7));
  }
  {
    auto database = Database::open(path_.string()).value();
    ASSERT_TRUE(database.run("ALTER TABLE containers DROP COLUMN chunk_reason; PRAGMA user_version = 1;"));
  }
  for (int opening = 0; opening < 2; ++opening) {
    const auto store = open_sqlite_metastore(path_);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ((*store)->find("/old")->attributes.chunk_size, Length(65536));
    EXPECT_EQ((*store)->find("/old")->attributes.chunk_reason, opening == 0 ? "" : "shaped");
    ASSERT_TRUE((*store)->shape((*store)->find("/old")->id, Length(65536), "shaped"));
  }
}

TEST_F(SqliteMetaStoreTest, a_damaged_file_is_told_in_one_sentence) {
  { const auto made = open_sqlite_metastore(path_).value(); }
  std::filesystem::remove(path_.string() + "-wal");
  std::ofstream(path_, std::ios::binary) << std::string(8192, 'x');
  const auto opened = open_sqlite_metastore(path_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(opened.error().message, HasSubstr(path_.string()));
  EXPECT_THAT(opened.error().message, HasSubstr("sluice fsck"));
}

TEST_F(SqliteMetaStoreTest, a_directory_that_is_not_there_is_an_error) {
  const auto opened = open_sqlite_metastore(scratch_.path() / "none" / "meta.db");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
}

TEST_F(SqliteMetaStoreTest, the_file_is_private_to_the_owner) {
  const auto store = open_sqlite_metastore(path_).value();
  ASSERT_TRUE(store->put("k", "v"));
  for (const char* suffix : {"", "-wal", ".lock"}) {
    struct stat status {};
    ASSERT_EQ(::stat((path_.string() + suffix).c_str(), &status), 0) << suffix;
    EXPECT_EQ(status.st_mode & 0777, 0600u) << suffix;
  }
}

}  // namespace
}  // namespace sluice::storage
