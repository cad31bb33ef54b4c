// A client and a service over real sockets, a real PMDK pool, SQLite and files, in one process.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <thread>

#include "base/os.h"
#include "base/rng.h"
#include "client/service.h"
#include "tests/support/file_access.h"
#include "tests/support/mini_service.h"

namespace sluice {
namespace {

using client::AccessMode;
using client::Client;
using client::File;
using client::OpenOptions;
using testing::get;
using testing::MiniService;
using testing::pattern;
using testing::put;

constexpr uint64_t kMiB = 1024 * 1024;

OpenOptions creating() {
  OpenOptions options;
  options.access = AccessMode::kReadWrite;
  options.create = true;
  return options;
}

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = service_.start();
    ASSERT_TRUE(started) << started.error().message;
    client_ = connect();
  }
  std::shared_ptr<Client> connect(const std::string& lock_mode = "auto") {
    auto client = service_.connect(lock_mode);
    EXPECT_TRUE(client) << client.error().message;
    return client ? *client : nullptr;
  }
  std::unique_ptr<File> open(const std::string& path, const OpenOptions& options) {
    auto file = client_->open(path, options);
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : nullptr;
  }

  // The slabs of a published epoch are given back just after its publication.
  bool hot_tier_forgets(const std::string& path) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < deadline) {
      const auto info = client_->stat(path);
      if (info && info->hot_bytes == 0) return true;
    }
    return false;
  }

  static server::PoolRequest request() {
    server::PoolRequest request;
    request.targets = 3;
    request.hot_bytes = 32 * kMiB;
    return request;
  }
  MiniService service_{request()};
  std::shared_ptr<Client> client_;
};

TEST_F(ServiceTest, what_was_written_is_read_before_and_after_sync_and_drain) {
  const auto data = pattern(10 * kMiB + 12345, 1);
  auto file = open("/a/b", creating());
  ASSERT_EQ(put(*file, 777, data).value(), data.size());
  EXPECT_EQ(get(*file, 777, data.size()), data);
  ASSERT_TRUE(file->sync());
  EXPECT_EQ(get(*file, 777, data.size()), data);
  ASSERT_TRUE(client_->wait_drained("/", 20'000));
  EXPECT_EQ(get(*file, 777, data.size()), data);
  EXPECT_EQ(get(*file, 0, 777), std::vector<std::byte>(777, std::byte{0})) << "a hole reads as zeros";
  EXPECT_EQ(file->size().value(), 777 + data.size());
  ASSERT_TRUE(file->close(true));
  const auto info = client_->stat("/a/b");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->size_bytes, 777 + data.size());
  EXPECT_EQ(info->committed_epoch, info->persisted_epoch);
  EXPECT_TRUE(hot_tier_forgets("/a/b"));
}

TEST_F(ServiceTest, others_see_a_transaction_whole_after_its_sync_and_not_before) {
  auto writer = open("/f", creating());
  auto reader_client = connect();
  OpenOptions reading;
  auto reader = reader_client->open("/f", reading);
  ASSERT_TRUE(reader);
  const auto data = pattern(100'000, 2);
  ASSERT_TRUE(put(*writer, 0, data));
  EXPECT_EQ(writer->size().value(), data.size());
  EXPECT_EQ((*reader)->size().value(), 0u);
  EXPECT_TRUE(get(**reader, 0, data.size()).empty());
  ASSERT_TRUE(writer->sync());
  EXPECT_EQ(get(**reader, 0, data.size()), data);
  ASSERT_TRUE(put(*writer, 0, pattern(100'000, 3)));
  EXPECT_EQ(get(**reader, 0, data.size()), data);
  ASSERT_TRUE(writer->close(false));
  EXPECT_EQ(get(**reader, 0, data.size()), data) << "what was not committed is dropped";
}

TEST_F(ServiceTest, one_read_of_many_requests_does_not_mix_versions) {
  constexpr size_t kBytes = 10 << 20;
  constexpr int kVersions = 25;
  auto writer = open("/f", creating());
  ASSERT_TRUE(put(*writer, 0, std::vector<std::byte>(kBytes)));
  ASSERT_TRUE(writer->sync());
  auto reader_client = connect();
  auto reader = reader_client->open("/f", OpenOptions{});
  ASSERT_TRUE(reader);
  std::atomic<bool> over{false};
  std::thread writing([&] {
    for (int version = 1; version < kVersions; ++version) {
      ASSERT_TRUE(put(*writer, 0, std::vector<std::byte>(kBytes, static_cast<std::byte>(version))));
      ASSERT_TRUE(writer->sync());
    }
    over = true;
  });
  std::byte last{0};
  while (!over) {
    const auto seen = get(**reader, 0, kBytes);
    ASSERT_EQ(seen.size(), kBytes);
    EXPECT_EQ(std::ranges::count(seen, seen[0]), static_cast<ptrdiff_t>(kBytes))
        << "begins with version " << static_cast<int>(seen[0]);
    EXPECT_GE(seen[0], last);
    last = seen[0];
  }
  writing.join();
}

TEST_F(ServiceTest, strided_lists_meet_scattered_memory_in_order) {
  auto file = open("/strided", creating());
  std::vector<Extent> extents;
  std::vector<client::ConstPiece> pieces;
  const auto data = pattern(3000 * 24, 4);
  for (size_t i = 0; i < 3000; ++i) extents.push_back(Extent::at(Offset(i * 100), Length(24)));
  for (size_t i = 0; i < data.size(); i += 36) pieces.push_back({data.data() + i, 36});
  ASSERT_EQ(file->write(extents, pieces).value(), data.size());
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(client_->wait_drained("/strided", 20'000));
  std::vector<std::byte> back(data.size());
  const client::Piece into{back.data(), back.size()};
  ASSERT_EQ(file->read(extents, {&into, 1}).value(), data.size());
  EXPECT_EQ(back, data);
  EXPECT_EQ(get(*file, 24, 76), std::vector<std::byte>(76, std::byte{0}));
}

TEST_F(ServiceTest, a_read_past_the_end_counts_what_is_there_and_leaves_the_rest_of_memory) {
  auto file = open("/short", creating());
  ASSERT_TRUE(put(*file, 0, pattern(5, 5)));
  std::vector<std::byte> memory(10, std::byte{0xaa});
  const Extent extent = Extent::at(Offset(0), Length(10));
  const client::Piece piece{memory.data(), memory.size()};
  EXPECT_EQ(file->read({&extent, 1}, {&piece, 1}).value(), 5u);
  EXPECT_EQ(std::vector<std::byte>(memory.begin() + 5, memory.end()),
            std::vector<std::byte>(5, std::byte{0xaa}));
  const Extent beyond = Extent::at(Offset(100), Length(10));
  EXPECT_EQ(file->read({&beyond, 1}, {&piece, 1}).value(), 0u);
}

TEST_F(ServiceTest, resize_cuts_and_extends_with_zeros_also_over_drained_bytes) {
  auto file = open("/r", creating());
  ASSERT_TRUE(put(*file, 0, pattern(1000, 6)));
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(client_->wait_drained("/r", 20'000));
  ASSERT_TRUE(file->resize(100));
  EXPECT_EQ(file->size().value(), 100u);
  ASSERT_TRUE(file->resize(500));
  EXPECT_EQ(get(*file, 100, 400), std::vector<std::byte>(400, std::byte{0}));
  ASSERT_TRUE(file->preallocate(200));
  EXPECT_EQ(file->size().value(), 500u) << "preallocate never shrinks";
  ASSERT_TRUE(file->close(true));
  ASSERT_TRUE(client_->wait_drained("/r", 20'000));
  auto again = open("/r", {});
  EXPECT_EQ(again->size().value(), 500u);
  EXPECT_EQ(get(*again, 100, 400), std::vector<std::byte>(400, std::byte{0}));
}

TEST_F(ServiceTest, sharers_write_into_one_transaction) {
  auto owner = open("/shared", creating());
  auto other_client = connect();
  auto sharer = other_client->attach(owner->share());
  ASSERT_TRUE(sharer) << sharer.error().message;
  const auto one = pattern(70'000, 7);
  const auto two = pattern(70'000, 8);
  ASSERT_TRUE(put(*owner, 0, one));
  ASSERT_TRUE(put(**sharer, one.size(), two));
  EXPECT_EQ(get(*owner, one.size(), two.size()), two);
  EXPECT_EQ(get(**sharer, 0, one.size()), one);
  ASSERT_TRUE((*sharer)->flush());
  ASSERT_TRUE(owner->sync());
  ASSERT_TRUE((*sharer)->close(false));
  ASSERT_TRUE(owner->close(true));
  auto reader = open("/shared", {});
  EXPECT_EQ(get(*reader, one.size(), two.size()), two);
}

TEST_F(ServiceTest, any_sharer_may_sync_and_each_sync_commits) {
  auto owner = open("/turns", creating());
  auto other_client = connect();
  auto sharer = other_client->attach(owner->share());
  ASSERT_TRUE(sharer);
  auto reader_client = connect();
  auto reader = reader_client->open("/turns", {});
  ASSERT_TRUE(reader);
  uint64_t last_epoch = 0;
  for (uint64_t turn = 0; turn < 4; ++turn) {
    File& writer = turn % 2 == 0 ? *owner : **sharer;
    const auto data = pattern(5000, 100 + turn);
    ASSERT_TRUE(put(writer, turn * data.size(), data));
    ASSERT_TRUE(writer.flush());
    const auto epoch = writer.sync();
    ASSERT_TRUE(epoch) << epoch.error().message;
    EXPECT_GT(*epoch, last_epoch);
    last_epoch = *epoch;
    EXPECT_EQ(get(**reader, turn * data.size(), data.size()), data) << turn;
  }
}

TEST_F(ServiceTest, a_sync_takes_in_the_writes_of_other_threads_that_were_under_way) {
  auto file = open("/threads", creating());
  constexpr uint64_t kWrites = 30;
  std::thread writer([&] {
    for (uint64_t i = 0; i < kWrites; ++i) {
      auto written = put(*file, i * 200'000, pattern(200'000, i));
      ASSERT_TRUE(written) << i << ": " << written.error().message;
    }
  });
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(file->sync());
  writer.join();
  ASSERT_TRUE(file->close(true));
  auto reader = open("/threads", {});
  for (uint64_t i = 0; i < kWrites; ++i)
    EXPECT_EQ(get(*reader, i * 200'000, 200'000), pattern(200'000, i)) << i;
}

TEST_F(ServiceTest, after_a_failed_write_nothing_is_committed_and_the_last_sync_stands) {
  const auto good = pattern(3 * kMiB, 1);
  auto file = open("/torn", creating());
  ASSERT_TRUE(put(*file, 0, good));
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(client_->wait_drained("/", 20'000));
  auto other_client = connect();
  auto sharer = other_client->attach(file->share());
  ASSERT_TRUE(sharer);
  const auto targets = service_.pool() / "targets";
  const auto away = service_.pool() / "targets.away";
  std::filesystem::rename(targets, away);
  Result<uint64_t> written = uint64_t{0};
  for (uint64_t i = 0; i < 40 && written; ++i) written = put(**sharer, i * kMiB, pattern(kMiB, 50 + i));
  ASSERT_FALSE(written) << "40 MiB went through a hot tier of 32 MiB that could not drain";
  EXPECT_EQ(written.error().code, ErrorCode::kNoSpace) << written.error().message;
  std::filesystem::rename(away, targets);
  EXPECT_EQ((*sharer)->flush().error().code, ErrorCode::kAborted);
  EXPECT_EQ((*sharer)->sync().error().code, ErrorCode::kAborted);
  EXPECT_EQ((*sharer)->close(true).error().code, ErrorCode::kAborted);
  ASSERT_TRUE(file->close(false));
  auto reader = open("/torn", {});
  EXPECT_EQ(reader->size().value(), good.size());
  EXPECT_EQ(get(*reader, 0, good.size()), good);
}

TEST_F(ServiceTest, an_owner_whose_write_failed_does_not_commit_by_closing) {
  const auto good = pattern(100'000, 1);
  auto file = open("/owner", creating());
  ASSERT_TRUE(put(*file, 0, good));
  ASSERT_TRUE(file->sync());
  const auto targets = service_.pool() / "targets";
  const auto away = service_.pool() / "targets.away";
  std::filesystem::rename(targets, away);
  Result<uint64_t> written = uint64_t{0};
  for (uint64_t i = 0; i < 40 && written; ++i) written = put(*file, i * kMiB, pattern(kMiB, 50 + i));
  ASSERT_FALSE(written);
  std::filesystem::rename(away, targets);
  EXPECT_EQ(file->close(true).error().code, ErrorCode::kAborted);
  auto reader = open("/owner", {});
  EXPECT_EQ(get(*reader, 0, 2 * good.size()), good);
}

class LazyDrainTest : public ServiceTest {
 protected:
  LazyDrainTest() {
    auto lazy = request();
    lazy.drain = "watermark";
    service_.ask(lazy);
  }
};

TEST_F(LazyDrainTest, waiting_for_the_drain_makes_it_drain_under_every_policy) {
  auto file = open("/lazy", creating());
  ASSERT_TRUE(put(*file, 0, pattern(100'000, 1)));
  ASSERT_TRUE(file->close(true));
  EXPECT_GT(client_->stat("/lazy")->hot_bytes, 0u);
  ASSERT_TRUE(client_->wait_drained("/lazy", 20'000));
  EXPECT_TRUE(hot_tier_forgets("/lazy"));
}

TEST_F(ServiceTest, a_transaction_larger_than_the_hot_tier_commits_whole) {
  auto file = open("/large", creating());
  const auto data = pattern(2 * kMiB, 9);
  constexpr uint64_t kPieces = 40;  // 80 MiB through 32 MiB
  for (uint64_t i = 0; i < kPieces; ++i) {
    auto written = put(*file, i * data.size(), data);
    ASSERT_TRUE(written) << i << ": " << written.error().message;
  }
  EXPECT_EQ(client_->stat("/large")->size_bytes, 0u);
  EXPECT_EQ(get(*file, 3 * data.size(), data.size()), data)
      << "placed, not committed, read by its own handle";
  ASSERT_TRUE(file->close(true));
  auto reader = open("/large", {});
  for (uint64_t i = 0; i < kPieces; i += 7) EXPECT_EQ(get(*reader, i * data.size(), data.size()), data) << i;
}

TEST_F(ServiceTest, a_transaction_of_more_pieces_than_the_log_holds_commits_whole_and_fails_nobody) {
  auto file = open("/pieces", creating());
  auto other = open("/other", creating());
  constexpr uint64_t kPieces = 1024;
  constexpr uint64_t kCalls = 200;  // 4.9 MB of records through a log of 1.3 MiB
  const auto data = pattern(kPieces, 11);
  const client::ConstPiece from{data.data(), data.size()};
  for (uint64_t call = 0; call < kCalls; ++call) {
    std::vector<Extent> extents;
    for (uint64_t i = 0; i < kPieces; ++i)
      extents.push_back(Extent::at(Offset((call * kPieces + i) * 3), Length(1)));
    const auto written = file->write(extents, {&from, 1});
    ASSERT_TRUE(written) << call << ": " << written.error().message;
    const auto also = put(*other, call, pattern(1, call));
    ASSERT_TRUE(also) << call << ": " << also.error().message;
  }
  ASSERT_TRUE(file->close(true));
  ASSERT_TRUE(other->close(true));
  auto reader = open("/pieces", {});
  const auto back = get(*reader, 0, kCalls * kPieces * 3 - 2);
  ASSERT_EQ(back.size(), kCalls * kPieces * 3 - 2);
  size_t wrong = 0;
  for (size_t i = 0; i < back.size(); ++i)
    wrong += back[i] != (i % 3 == 0 ? data[i / 3 % kPieces] : std::byte{0});
  EXPECT_EQ(wrong, 0u);
}

TEST_F(ServiceTest, a_lost_target_costs_nothing_but_time) {
  const auto data = pattern(5 * kMiB, 10);
  auto file = open("/degraded", creating());
  ASSERT_TRUE(put(*file, 0, data));
  ASSERT_TRUE(file->close(true));
  ASSERT_TRUE(client_->wait_drained("/", 20'000));
  std::filesystem::remove_all(service_.target(1));
  auto reader = open("/degraded", {});
  EXPECT_EQ(get(*reader, 0, data.size()), data);
}

TEST_F(ServiceTest, a_target_that_was_away_while_a_file_was_written_gets_its_shards_when_it_returns) {
  namespace fs = std::filesystem;
  const auto away = service_.pool() / "away";
  fs::rename(service_.target(1), away);
  const auto data = pattern(3 * kMiB, 16);
  auto file = open("/a", creating());
  ASSERT_TRUE(put(*file, 0, data));
  ASSERT_TRUE(file->close(true));
  ASSERT_TRUE(client_->wait_drained("/a", 20'000));
  fs::rename(away, service_.target(1));
  const auto shards = [this](unsigned target) {
    size_t whole = 0;
    for (const auto& entry : fs::directory_iterator(service_.target(target) / "shards"))
      if (entry.path().filename().string().front() != '.') ++whole;
    return whole;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (shards(1) < shards(0) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(shards(1), shards(0));
  fs::rename(service_.target(0), away);
  auto reading = open("/a", OpenOptions{});
  EXPECT_EQ(get(*reading, 0, data.size()), data);
}

TEST_F(ServiceTest, an_open_file_goes_on_over_a_restart_of_the_service) {
  const auto one = pattern(300'000, 11);
  const auto two = pattern(300'000, 12);
  auto file = open("/restart", creating());
  ASSERT_TRUE(put(*file, 0, one));
  service_.stop();
  std::thread later([this] { ASSERT_TRUE(service_.start()); });
  auto written = put(*file, one.size(), two);
  later.join();
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(get(*file, 0, one.size()), one) << "accepted before the restart, not synced";
  ASSERT_TRUE(file->close(true));
  auto reader = open("/restart", {});
  EXPECT_EQ(get(*reader, one.size(), two.size()), two);
}

TEST_F(ServiceTest, errors_name_cause_and_object) {
  OpenOptions reading;
  auto missing = client_->open("/nothing", reading);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("/nothing"), std::string::npos);

  auto file = open("/x", creating());
  ASSERT_TRUE(put(*file, 0, pattern(10, 13)));
  ASSERT_TRUE(file->close(true));
  EXPECT_EQ(file->close(true).error().code, ErrorCode::kInvalidArgument) << "closed twice";
  EXPECT_EQ(put(*file, 0, pattern(10, 13)).error().code, ErrorCode::kInvalidArgument);

  auto exclusive = creating();
  exclusive.exclusive = true;
  EXPECT_EQ(client_->open("/x", exclusive).error().code, ErrorCode::kExists);

  auto reader = open("/x", reading);
  EXPECT_EQ(put(*reader, 0, pattern(10, 14)).error().code, ErrorCode::kAccess);
  EXPECT_EQ(get(*reader, 0, 10), pattern(10, 13));

  auto misfit = creating();
  misfit.object_class = "EC_8P2";
  auto refused = client_->open("/misfit", misfit);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("nearest class that fits"), std::string::npos)
      << refused.error().message;

  EXPECT_EQ(client_->open("/a/../b", creating()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client_->open("/", creating()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client_->remove("/nothing").error().code, ErrorCode::kNotFound);
}

TEST_F(ServiceTest, a_removed_file_is_gone_and_its_writers_are_told) {
  auto file = open("/gone", creating());
  ASSERT_TRUE(put(*file, 0, pattern(100, 15)));
  ASSERT_TRUE(client_->remove("/gone"));
  EXPECT_EQ(file->sync().error().code, ErrorCode::kNotFound);
  (void)file->close(false);
  EXPECT_EQ(client_->stat("/gone").error().code, ErrorCode::kNotFound);
  auto fresh = open("/gone", creating());
  EXPECT_EQ(fresh->size().value(), 0u);
}

TEST_F(ServiceTest, the_shared_counter_gives_each_caller_a_slot_of_its_own) {
  auto owner = open("/counter", creating());
  auto other_client = connect();
  auto sharer = other_client->attach(owner->share());
  ASSERT_TRUE(sharer);
  std::vector<int64_t> slots;
  for (int i = 0; i < 10; ++i) {
    slots.push_back(owner->fetch_and_add(8).value());
    slots.push_back((*sharer)->fetch_and_add(8).value());
  }
  std::sort(slots.begin(), slots.end());
  for (size_t i = 0; i < slots.size(); ++i) EXPECT_EQ(slots[i], static_cast<int64_t>(i) * 8);
  EXPECT_EQ(owner->exchange_counter(5).value(), 160);
  EXPECT_EQ((*sharer)->fetch_and_add(1).value(), 5);
}

TEST_F(ServiceTest, an_empty_file_takes_another_chunk_size_once) {
  constexpr uint64_t kChunk = 4 << 20;
  auto file = open("/shaped", creating());
  EXPECT_EQ(file->shape(kChunk, "records of 3 MiB").value(), kChunk);
  EXPECT_EQ(file->shape(2 * kChunk, "again").value(), kChunk);
  EXPECT_EQ(client_->stat("/shaped")->chunk_bytes, kChunk);
  EXPECT_NE(client_->explain("/shaped")->find("4194304 bytes (records of 3 MiB)"), std::string::npos)
      << *client_->explain("/shaped");
  // What is drained into the larger stripes reads back.
  const auto bytes = pattern(9 << 20, 40);
  ASSERT_TRUE(put(*file, 0, bytes));
  ASSERT_TRUE(file->close(true));
  ASSERT_TRUE(client_->wait_drained("/shaped", 30'000));
  EXPECT_EQ(get(*open("/shaped", {}), 0, bytes.size()), bytes);

  // Not with bytes of a transaction, nor committed ones, nor when the size was asked for.
  auto written = open("/written", creating());
  ASSERT_TRUE(put(*written, 0, pattern(10, 41)));
  EXPECT_EQ(written->shape(kChunk, "late").value(), 1u << 20);
  ASSERT_TRUE(written->sync());
  EXPECT_EQ(written->shape(kChunk, "late").value(), 1u << 20);
  auto asked = creating();
  asked.chunk_bytes = 1 << 20;
  EXPECT_EQ(open("/asked", asked)->shape(kChunk, "late").value(), 1u << 20);
  EXPECT_EQ(open("/shaped", {})->shape(kChunk, "no").error().code, ErrorCode::kAccess);
}

TEST_F(ServiceTest, a_list_longer_than_a_page_comes_whole) {
  for (int i = 0; i < 130; ++i) {
    auto file = open("/many/" + std::to_string(1000 + i), creating());
    ASSERT_TRUE(file->close(true));
  }
  const auto files = client_->list("/many");
  ASSERT_TRUE(files);
  ASSERT_EQ(files->size(), 130u);
  EXPECT_EQ(files->front().path, "/many/1000");
  EXPECT_EQ(files->back().path, "/many/1129");
}

TEST_F(ServiceTest, exclusive_locks_take_turns) {
  auto owner = open("/lock", creating());
  auto other_client = connect();
  auto sharer = other_client->attach(owner->share());
  ASSERT_TRUE(sharer);
  const Extent extent = Extent::at(Offset(0), Length(8));
  // Guarded by the lock alone: reading and writing it are two steps.
  std::atomic<int64_t> count{0};
  const auto add = [&](File& file) {
    for (int i = 0; i < 50; ++i) {
      auto lock = file.lock(extent, true);
      ASSERT_TRUE(lock) << lock.error().message;
      count = count.load() + 1;
      ASSERT_TRUE(file.unlock(*lock));
    }
  };
  std::thread one([&] { add(*owner); });
  std::thread two([&] { add(**sharer); });
  one.join();
  two.join();
  EXPECT_EQ(count, 100);
}

TEST_F(ServiceTest, standard_mode_writers_of_one_range_take_turns_and_lose_nothing) {
  auto client_a = connect("standard");
  auto client_b = connect("standard");
  auto options = creating();
  auto a = client_a->open("/standard", options);
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_EQ((*a)->lock_mode(), "standard");
  auto b = client_b->attach((*a)->share());
  ASSERT_TRUE(b) << b.error().message;
  const auto work = [](File& file, int parity) {
    for (int i = parity; i < 40; i += 2) {
      auto written = put(file, static_cast<uint64_t>(i) * 4096, pattern(4096, static_cast<uint64_t>(i)));
      ASSERT_TRUE(written) << written.error().message;
    }
  };
  std::thread one([&] { work(**a, 0); });
  std::thread two([&] { work(**b, 1); });
  one.join();
  two.join();
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(get(**a, static_cast<uint64_t>(i) * 4096, 4096), pattern(4096, static_cast<uint64_t>(i))) << i;
  }
}

bool tells_of_removal(const Error& error, const std::string& path) {
  return error.code == ErrorCode::kNotFound && error.message.find(path + " was removed") != std::string::npos;
}

TEST_F(ServiceTest, whoever_uses_a_file_that_another_removed_is_told_that) {
  auto writer = open("/taken", creating());
  ASSERT_TRUE(put(*writer, 0, pattern(1000, 1)));
  ASSERT_TRUE(writer->sync());
  ASSERT_TRUE(put(*writer, 0, pattern(1000, 2)));
  auto reader = open("/taken", {});
  auto sharer_client = connect();
  const auto handle = writer->share();
  ASSERT_TRUE(connect()->remove("/taken"));
  std::vector<std::byte> data(1000);
  const Extent extent = Extent::at(Offset(0), Length(1000));
  const client::Piece piece{data.data(), data.size()};
  for (File* file : {writer.get(), reader.get()}) {
    const auto read = file->read({&extent, 1}, {&piece, 1});
    ASSERT_FALSE(read);
    EXPECT_TRUE(tells_of_removal(read.error(), "/taken")) << read.error().message;
    const auto size = file->size();
    ASSERT_FALSE(size);
    EXPECT_TRUE(tells_of_removal(size.error(), "/taken")) << size.error().message;
  }
  const auto attached = sharer_client->attach(handle);
  ASSERT_TRUE(attached);
  const auto shared_size = (*attached)->size();
  ASSERT_FALSE(shared_size);
  EXPECT_TRUE(tells_of_removal(shared_size.error(), "/taken")) << shared_size.error().message;
  const auto resized = writer->resize(10);
  ASSERT_FALSE(resized);
  EXPECT_TRUE(tells_of_removal(resized.error(), "/taken")) << resized.error().message;
  const auto written = put(*writer, 0, pattern(1000, 3));
  ASSERT_FALSE(written);
  EXPECT_TRUE(tells_of_removal(written.error(), "/taken")) << written.error().message;
}

TEST_F(ServiceTest, a_removal_in_the_middle_of_writes_and_reads_is_told_as_one) {
  for (int turn = 0; turn < 25; ++turn) {
    const std::string path = "/raced" + std::to_string(turn);
    auto file = open(path, creating());
    ASSERT_TRUE(put(*file, 0, pattern(100'000, 1)));
    std::atomic<bool> going{false};
    std::thread user([&] {
      std::vector<std::byte> data(100'000);
      const Extent extent = Extent::at(Offset(0), Length(data.size()));
      const client::Piece piece{data.data(), data.size()};
      while (true) {
        auto done = turn % 2 == 0 ? put(*file, 0, data) : file->read({&extent, 1}, {&piece, 1});
        going = true;
        if (done) continue;
        EXPECT_TRUE(tells_of_removal(done.error(), path)) << done.error().message;
        return;
      }
    });
    while (!going) std::this_thread::yield();
    ASSERT_TRUE(client_->remove(path));
    user.join();
  }
}

// A pool with services of their own processes, started and stopped by the `sluice` of this build.
class RealPool {
 public:
  RealPool() : directory_(*TemporaryDirectory::create("sluice-real")) {}
  ~RealPool() { (void)sluice("down --no-drain"); }

  std::filesystem::path path() const { return directory_.path() / "pool"; }
  // The exit code of `sluice WORDS --pool POOL`; what it prints is in `output`.
  int sluice(const std::string& words) {
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    const auto command = self.parent_path().parent_path() / "bin" / "sluice";
    const auto out = directory_.path() / "out";
    const int status = std::system((command.string() + " " + words + " --pool '" + path().string() + "' > '" +
                                    out.string() + "' 2>&1 < /dev/null")
                                       .c_str());
    output = read_file(out, 1 << 20).value_or("");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  Result<std::shared_ptr<Client>> connect() const {
    client::Options options;
    options.pool = path().string();
    return Client::connect(options);
  }
  // Ends it as a crash would; on return its lock is free.
  void kill_service() {
    const auto holder = client::pool_holder(path());
    ASSERT_TRUE(holder && *holder && **holder > 1);
    ASSERT_EQ(::kill(**holder, SIGKILL), 0);
    while (client::pool_holder(path()).value()) std::this_thread::yield();
  }

  std::string output;

 private:
  TemporaryDirectory directory_;
};

TEST(StartingAService, a_dead_servers_file_whose_pid_another_process_has_does_not_pass_for_a_service) {
  RealPool pool;
  ASSERT_EQ(pool.sluice("up --hot-size 32M"), 0) << pool.output;
  pool.kill_service();
  const std::string stale =
      R"({"version": "0", "pid": )" + std::to_string(::getpid()) +
      R"(, "boot": "00", "addresses": ["tcp://127.0.0.1:1"], "control": "control.sock"})";
  ASSERT_TRUE(replace_file(pool.path() / "service.json", stale));
  EXPECT_EQ(client::find_service(pool.path().string()).error().code, ErrorCode::kUnavailable);
  const auto before = std::chrono::steady_clock::now();
  auto connected = pool.connect();
  ASSERT_TRUE(connected) << connected.error().message;
  EXPECT_TRUE((*connected)->list("/"));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(25));
}

// What this process and its children write to stderr while it lives.
class CapturedStderr {
 public:
  CapturedStderr() : file_(::memfd_create("stderr", MFD_CLOEXEC)), before_(::dup(STDERR_FILENO)) {
    ::dup2(file_.get(), STDERR_FILENO);
  }
  ~CapturedStderr() { ::dup2(before_.get(), STDERR_FILENO); }
  std::string text() const {
    std::string text(static_cast<size_t>(::lseek(file_.get(), 0, SEEK_END)), '\0');
    EXPECT_TRUE(pread_all(file_.get(), std::as_writable_bytes(std::span(text)), 0, "stderr"));
    return text;
  }

 private:
  UniqueFd file_, before_;
};

TEST(StartingAService, a_pool_that_was_made_for_the_purpose_is_told_of_once) {
  RealPool pool;
  std::string told;
  {
    CapturedStderr captured;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        auto connected = pool.connect();
        EXPECT_TRUE(connected) << connected.error().message;
      });
    for (auto& thread : threads) thread.join();
    pool.kill_service();
    EXPECT_TRUE(pool.connect()) << "a service on a pool that is there already";
    told = captured.text();
  }
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_NE(told.find("made a new pool in " + pool.path().string() + " (class EC_2P1)"), std::string::npos)
      << told;
}

TEST(StartingAService, a_slash_behind_the_pool_names_the_same_pool) {
  RealPool pool;
  const auto started = client::start_service((pool.path() / "").string());
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_TRUE(pool.connect());
}

TEST(StartingAService, a_mistyped_pool_is_refused_and_nothing_is_made) {
  auto scratch = TemporaryDirectory::create("sluice-slip");
  ASSERT_TRUE(scratch);
  client::Options options;
  options.pool = (scratch->path() / "hoem" / "pool").string();
  const auto refused = Client::connect(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  for (const std::string& named :
       {options.pool, std::string("SLUICE_POOL"), std::string("sluice up --pool ")})
    EXPECT_NE(refused.error().message.find(named), std::string::npos) << refused.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(scratch->path()));
}

TEST(StartingAService, a_dead_servers_file_does_not_hide_the_one_that_runs) {
  RealPool pool;
  ASSERT_EQ(pool.sluice("up --hot-size 32M"), 0) << pool.output;
  const auto running = client::find_service(pool.path().string());
  ASSERT_TRUE(running) << running.error().message;
  const std::string stale =
      R"({"version": "0", "pid": )" + std::to_string(::getpid()) +
      R"(, "boot": "00", "addresses": ["tcp://127.0.0.1:1"], "control": "control.sock"})";
  ASSERT_TRUE(replace_file(pool.path() / "service.json", stale));
  const auto found = client::find_service(pool.path().string());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->pid, running->pid);
  EXPECT_EQ(found->address.text, running->address.text);
}

}  // namespace
}  // namespace sluice
