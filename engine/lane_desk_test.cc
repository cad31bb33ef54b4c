#include "engine/lane_desk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/assert.h"
#include "engine/testing/local_transport.h"
#include "storage/testing/store_rig.h"

namespace sluice::engine {
namespace {

using burst_buffer::HotTier;
using burst_buffer::Slab;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A process that waits to be killed.
class Child {
 public:
  // Another program: a copy of this one would share the pool's lock through its mappings.
  Child() {
    std::array<int, 2> ends{};
    SLUICE_ASSERT(::pipe2(ends.data(), O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
      ::execlp("sleep", "sleep", "1000", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(ends[1]);
    char none = 0;
    SLUICE_ASSERT(::read(ends[0], &none, 1) == 0);  // the exec closed the other end
    ::close(ends[0]);
  }
  ~Child() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

class LaneDeskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::create("sluice-lane");
    ASSERT_TRUE(directory);
    directory_.emplace(std::move(*directory));
    ASSERT_TRUE(rig_.reopen());
    start();
  }
  void TearDown() override { stop(); }

  // As a server does, also after its predecessor was killed.
  void start() {
    HotTier::Options options;
    options.path = (directory_->path() / "hot").string();
    options.size_bytes = 32 * kMiB;
    auto hot = HotTier::open(std::move(options), nullptr);
    ASSERT_TRUE(hot) << hot.error().message;
    hot_ = std::move(*hot);
    auto file = LaneFile::open(directory_->path() / "lane", ++boot_);
    ASSERT_TRUE(file) << file.error().message;
    file_ = std::move(*file);
    context_ = std::make_unique<Context>(
        Options{}, Parts{transport_, workers_, *hot_, rig_.store(), rig_.metastore(), file_.get()});
    desk_ = std::make_unique<LaneDesk>(*context_, file_.get(), boot_ * 1000);
  }
  void stop() {
    desk_.reset();
    context_.reset();
    file_.reset();
    hot_.reset();
  }

  SessionId session(uint64_t number, pid_t process) {
    const transport::PeerId peer(number);
    transport_.processes[peer] = process;
    context_->sessions.add(SessionId(number), 1, peer, 0);
    return SessionId(number);
  }
  wire::LeasedT lease(SessionId id, uint64_t need = 1 * kMiB) {
    wire::LeaseT ask;
    ask.need = ask.want = need;
    auto leased = desk_->lease(id, ask);
    EXPECT_TRUE(leased) << leased.error().message;
    return leased.value_or(wire::LeasedT());
  }
  ErrorCode take_error(SessionId id, uint64_t grant, uint64_t offset, uint64_t length) {
    auto taken = desk_->take(id, wire::Slab(grant, offset), Length(length));
    return taken ? ErrorCode::kInternal : taken.error().code;
  }
  uint64_t used() { return hot_->usage().bytes_used; }
  static std::vector<uint64_t> only(uint64_t grant) { return {grant}; }

  std::optional<TemporaryDirectory> directory_;
  storage::StoreRig rig_{1};
  LocalTransport transport_;
  InlineWorkers workers_;
  uint64_t boot_ = 0;
  std::unique_ptr<HotTier> hot_;
  std::unique_ptr<LaneFile> file_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<LaneDesk> desk_;
};

TEST_F(LaneDeskTest, a_write_names_only_what_its_session_was_granted_and_only_once) {
  const SessionId a = session(1, ::getpid());
  const SessionId b = session(2, ::getpid());
  const auto mine = lease(a);
  const auto theirs = lease(b);
  EXPECT_EQ(take_error(b, mine.grant, mine.offset, 512), ErrorCode::kFenced) << "another session's grant";
  EXPECT_EQ(take_error(a, mine.grant + 2, mine.offset, 512), ErrorCode::kFenced) << "no grant at all";
  EXPECT_EQ(take_error(a, mine.grant, theirs.offset, 512), ErrorCode::kFenced) << "outside of the grant";
  EXPECT_EQ(take_error(a, mine.grant, mine.offset + 1, 512), ErrorCode::kFenced) << "off a granule";
  EXPECT_EQ(take_error(a, mine.grant, mine.offset, mine.length + 1), ErrorCode::kFenced) << "too long";
  EXPECT_EQ(take_error(a, mine.grant, UINT64_MAX / 512 * 512, 512), ErrorCode::kFenced) << "wraps around";
  EXPECT_EQ(take_error(a, mine.grant, mine.offset + mine.length - 512, 1024), ErrorCode::kFenced);
  EXPECT_TRUE(desk_->take(a, wire::Slab(mine.grant, mine.offset + 512), Length(700)));
  EXPECT_EQ(take_error(a, mine.grant, mine.offset + 1024, 512), ErrorCode::kExists) << "named before";
  EXPECT_EQ(take_error(a, mine.grant, mine.offset, 1024), ErrorCode::kExists) << "in part named before";
  EXPECT_TRUE(desk_->take(a, wire::Slab(mine.grant, mine.offset), Length(512)));
  EXPECT_TRUE(desk_->take(a, wire::Slab(mine.grant, mine.offset + 1536), Length(mine.length - 1536)));
}

TEST_F(LaneDeskTest, what_a_grant_has_left_is_given_back_and_what_was_named_is_not) {
  const uint64_t before = used();
  const SessionId a = session(1, ::getpid());
  const auto grant = lease(a);
  EXPECT_EQ(used(), before + grant.length);
  ASSERT_TRUE(desk_->take(a, wire::Slab(grant.grant, grant.offset), Length(4096)));
  wire::GiveBackT back;
  back.grants = only(grant.grant);
  desk_->give_back({session(2, ::getpid()), 1}, back);
  EXPECT_EQ(used(), before + grant.length) << "not by another session";
  desk_->give_back({a, 1}, back);
  EXPECT_EQ(used(), before + 4096);
  EXPECT_EQ(take_error(a, grant.grant, grant.offset + 8192, 512), ErrorCode::kFenced);
  EXPECT_TRUE(file_->entries().empty());
}

TEST_F(LaneDeskTest, a_process_on_another_host_is_granted_nothing) {
  const SessionId far = session(1, 0);
  transport_.processes.clear();
  wire::LeaseT ask;
  ask.need = ask.want = kMiB;
  EXPECT_EQ(desk_->lease(far, ask).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(desk_->terms(transport::PeerId(1)), nullptr);
}

TEST_F(LaneDeskTest, where_little_is_free_a_grant_is_what_is_needed_and_idle_ones_are_recalled) {
  const SessionId a = session(1, ::getpid());
  std::vector<wire::LeasedT> all;
  wire::LeaseT ask;
  ask.need = 64 * 1024;
  ask.want = 64 * kMiB;
  auto leased = desk_->lease(a, ask);
  ASSERT_TRUE(leased);
  EXPECT_LT(leased->length, 32 * kMiB / 2) << "others find room too";
  size_t grants = 1;
  while ((leased = desk_->lease(a, ask))) ++grants;
  EXPECT_EQ(leased.error().code, ErrorCode::kNoSpace);
  EXPECT_GT(grants, 8u);
  EXPECT_TRUE(desk_->recall());
  EXPECT_EQ(transport_.recalls[transport::PeerId(1)], 1u);
}

TEST_F(LaneDeskTest, an_evicted_sessions_slabs_go_to_nobody_while_its_process_may_still_write_to_them) {
  const uint64_t before = used();
  Child child;
  const SessionId stalled = session(1, child.pid());
  const auto grant = lease(stalled);
  desk_->session_gone(stalled, /*evicted=*/true);
  context_->sessions.remove(stalled);
  desk_->tick();
  EXPECT_EQ(used(), before + grant.length) << "kept aside";
  EXPECT_EQ(take_error(stalled, grant.grant, grant.offset, 512), ErrorCode::kFenced) << "its late write";
  child.kill();
  desk_->tick();
  EXPECT_EQ(used(), before);
  EXPECT_TRUE(file_->entries().empty());
}

TEST_F(LaneDeskTest, an_evicted_process_that_lives_gives_its_slabs_back_when_it_is_done_with_them) {
  const uint64_t before = used();
  const SessionId stalled = session(1, ::getpid());
  const auto grant = lease(stalled);
  desk_->session_gone(stalled, /*evicted=*/true);
  desk_->tick();
  EXPECT_EQ(used(), before + grant.length);
  wire::GiveBackT back;
  back.grants = only(grant.grant);
  desk_->give_back({session(2, ::getpid()), 1}, back);
  EXPECT_EQ(used(), before);
}

TEST_F(LaneDeskTest, a_goodbye_gives_everything_back_at_once) {
  const uint64_t before = used();
  const SessionId a = session(1, ::getpid());
  lease(a);
  desk_->session_gone(a, /*evicted=*/false);
  EXPECT_EQ(used(), before);
}

TEST_F(LaneDeskTest, after_a_restart_grants_wait_for_their_owner_and_hold_what_it_wrote) {
  const SessionId a = session(1, ::getpid());
  const auto grant = lease(a);
  const std::vector<std::byte> bytes(4096, std::byte{0x5A});
  std::ranges::copy(bytes, hot_->bytes(Slab{grant.offset, Length(bytes.size())}).begin());
  stop();
  start();
  const uint64_t with_grant = used();
  EXPECT_GE(with_grant, grant.length) << "nobody else gets it";
  const SessionId again = session(7, ::getpid());
  EXPECT_EQ(take_error(again, grant.grant, grant.offset, 4096), ErrorCode::kFenced) << "not before it asked";
  wire::ReclaimT ask;
  ask.grants = only(grant.grant);
  desk_->reclaim({again, 1}, ask);
  const auto slab = desk_->take(again, wire::Slab(grant.grant, grant.offset), Length(4096));
  ASSERT_TRUE(slab) << slab.error().message;
  EXPECT_TRUE(std::ranges::equal(hot_->bytes(*slab), bytes));
  desk_->end_recovery();
  EXPECT_EQ(used(), with_grant) << "it has an owner";
}

TEST_F(LaneDeskTest, after_the_recovery_window_grants_of_dead_processes_are_free) {
  const uint64_t before = used();
  Child dead;
  Child stalled;
  lease(session(1, dead.pid()));
  const auto kept = lease(session(2, stalled.pid()));
  dead.kill();
  stop();
  start();
  desk_->end_recovery();
  EXPECT_EQ(used(), before + kept.length) << "one may still be written to";
  stalled.kill();
  desk_->tick();
  EXPECT_EQ(used(), before);
}

TEST_F(LaneDeskTest, after_a_restart_processes_with_grants_are_awaited_until_they_said_all_or_are_gone) {
  Child dead;
  Child lives;
  Child silent;
  lease(session(1, dead.pid()));
  const auto grant = lease(session(2, lives.pid()));
  lease(session(3, silent.pid()));
  dead.kill();
  stop();
  start();
  const SessionId stranger = session(8, ::getpid());
  const SessionId again = session(9, lives.pid());
  EXPECT_TRUE(desk_->awaits_any());
  wire::ReclaimT ask;
  ask.grants = only(grant.grant);
  desk_->reclaim({again, 1}, ask);
  EXPECT_TRUE(desk_->awaits(again)) << "it is back, and has not said all";
  EXPECT_FALSE(desk_->awaits(stranger));
  desk_->said_all(again);
  EXPECT_FALSE(desk_->awaits(again));
  EXPECT_TRUE(desk_->awaits_any()) << "the silent one";
  silent.kill();
  desk_->tick();
  EXPECT_FALSE(desk_->awaits_any());
  stop();
  start();
  EXPECT_TRUE(desk_->awaits_any());
  desk_->end_recovery();
  EXPECT_FALSE(desk_->awaits_any());
  stop();
  start();
  EXPECT_TRUE(desk_->awaits_any());
  wire::GiveBackT back;
  back.grants = only(grant.grant);
  desk_->give_back({session(10, lives.pid()), 1}, back);
  EXPECT_FALSE(desk_->awaits_any());
}

TEST_F(LaneDeskTest, a_damaged_lane_file_grants_nothing_and_harms_nothing) {
  lease(session(1, ::getpid()));
  stop();
  auto text = read_file(directory_->path() / "lane", 1 << 20);
  ASSERT_TRUE(text);
  for (size_t at = sizeof(LaneHeader); at < text->size(); at += sizeof(LaneEntry)) (*text)[at + 9] ^= 0x40;
  ASSERT_TRUE(replace_file(directory_->path() / "lane", *text));
  start();
  EXPECT_EQ(used(), 0u);
  stop();
  ASSERT_TRUE(replace_file(directory_->path() / "lane", std::string(777, 'x')));
  start();
  EXPECT_EQ(used(), 0u);
  lease(session(2, ::getpid()));
}

}  // namespace
}  // namespace sluice::engine
