#include "tools/copy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/os.h"
#include "tools/testing/memory_client.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::MemoryClient;

std::string noise(size_t bytes) {
  std::mt19937_64 rng(bytes);
  std::string text(bytes + sizeof(uint64_t), '\0');
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = rng();
    std::memcpy(text.data() + at, &word, sizeof word);
  }
  text.resize(bytes);
  return text;
}

class CopyTest : public ::testing::Test {
 protected:
  fs::path put(const std::string& name, const std::string& bytes) {
    std::ofstream(scratch_.path() / name, std::ios::binary) << bytes;
    return scratch_.path() / name;
  }
  std::string get(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files_in_scratch() {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(scratch_.path()), fs::directory_iterator()));
  }
  uint64_t allocated(const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }

  TemporaryDirectory scratch_ = *TemporaryDirectory::create("sluice_copy_test");
  MemoryClient pool_;
};

TEST_F(CopyTest, BytesArriveInBothDirections) {
  for (size_t size : {size_t{0}, size_t{1}, size_t{65536}, size_t{65537}, (size_t{9} << 20) + 3}) {
    const std::string bytes = noise(size);
    const fs::path local = put("in", bytes);
    CopyOptions force;
    force.force = true;
    auto in = copy_in(pool_, local, "/x", force);
    ASSERT_TRUE(in) << in.error().message;
    EXPECT_EQ(in->bytes, size);
    EXPECT_TRUE(in->verified);
    EXPECT_EQ(pool_.files["/x"].bytes, bytes);
    auto out = copy_out(pool_, "/x", scratch_.path() / "out", force);
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_TRUE(out->verified);
    EXPECT_EQ(get(scratch_.path() / "out"), bytes);
    auto within = copy_within(pool_, "/x", "/y", force);
    ASSERT_TRUE(within) << within.error().message;
    EXPECT_EQ(pool_.files["/y"].bytes, bytes);
  }
}

TEST_F(CopyTest, HolesStayHoles) {
  constexpr uint64_t kSize = 64 << 20;
  const fs::path local = scratch_.path() / "sparse";
  {
    std::ofstream out(local, std::ios::binary);
    out.seekp(5 << 20);
    out << noise(1000);
  }
  fs::resize_file(local, kSize);
  auto in = copy_in(pool_, local, "/x", {});
  ASSERT_TRUE(in) << in.error().message;
  EXPECT_EQ(in->bytes, kSize);
  EXPECT_LE(in->data_bytes, 256u << 10);
  EXPECT_EQ(pool_.files["/x"].bytes.size(), kSize);
  auto out = copy_out(pool_, "/x", scratch_.path() / "out", {});
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(get(scratch_.path() / "out"), get(local));
  EXPECT_LE(allocated(scratch_.path() / "out"), 1u << 20);
}

TEST_F(CopyTest, NothingIsReplacedUnlessForced) {
  const fs::path local = put("in", "new");
  const fs::path other = put("other", "old");
  pool_.files["/x"] = {"old", 1};
  auto in = copy_in(pool_, local, "/x", {});
  ASSERT_FALSE(in);
  EXPECT_EQ(in.error().code, ErrorCode::kExists);
  EXPECT_THAT(in.error().message, HasSubstr("--force"));
  EXPECT_EQ(pool_.files["/x"].bytes, "old");
  auto out = copy_out(pool_, "/x", other, {});
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kExists);
  EXPECT_EQ(get(other), "old");
}

TEST_F(CopyTest, AFailedCopyLeavesNothing) {
  const fs::path local = put("in", noise(10 << 20));
  pool_.fail_write_at = 9 << 20;
  auto in = copy_in(pool_, local, "/x", {});
  ASSERT_FALSE(in);
  EXPECT_EQ(in.error().code, ErrorCode::kNoSpace);
  EXPECT_FALSE(pool_.files.contains("/x"));
}

TEST_F(CopyTest, AFailedReplacementLeavesTheOldFile) {
  const fs::path local = put("in", noise(10 << 20));
  pool_.files["/x"] = {"old", 1};
  pool_.fail_write_at = 9 << 20;
  CopyOptions force;
  force.force = true;
  ASSERT_FALSE(copy_in(pool_, local, "/x", force));
  EXPECT_EQ(pool_.files["/x"].bytes, "old");
}

TEST_F(CopyTest, ABadByteInTheCopyIsFoundAndTheCopyGivenUp) {
  const fs::path local = put("in", noise(10 << 20));
  pool_.flip_on_write = true;
  auto in = copy_in(pool_, local, "/x", {});
  ASSERT_FALSE(in);
  EXPECT_EQ(in.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(in.error().message, HasSubstr("sluice:/x"));
  EXPECT_FALSE(pool_.files.contains("/x"));
}

TEST_F(CopyTest, ASourceThatChangesMeanwhileIsNoGoodCopy) {
  const fs::path local = put("in", noise(10 << 20));
  bool changed = false;
  pool_.on_read = [&](uint64_t) {  // while the copy is read back
    if (!changed) std::ofstream(local, std::ios::app) << "more";
    changed = true;
  };
  auto in = copy_in(pool_, local, "/x", {});
  ASSERT_FALSE(in);
  EXPECT_EQ(in.error().code, ErrorCode::kConflict);
  EXPECT_FALSE(pool_.files.contains("/x"));

  pool_.files["/y"] = {noise(1 << 20), 1};
  pool_.on_read = [&](uint64_t) { pool_.files["/y"].epoch += 1; };
  const size_t before = files_in_scratch();
  auto out = copy_out(pool_, "/y", scratch_.path() / "out", {});
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kConflict);
  EXPECT_EQ(files_in_scratch(), before);  // no scratch file either
}

TEST_F(CopyTest, MissingSourcesAndDirectoriesAreNamed) {
  auto in = copy_in(pool_, scratch_.path() / "nothing", "/x", {});
  ASSERT_FALSE(in);
  EXPECT_EQ(in.error().code, ErrorCode::kNotFound);
  auto directory = copy_in(pool_, scratch_.path(), "/x", {});
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message, HasSubstr("is a directory"));
  auto out = copy_out(pool_, "/nothing", scratch_.path() / "out", {});
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(pool_.files.empty());
  EXPECT_FALSE(fs::exists(scratch_.path() / "out"));
}

TEST_F(CopyTest, AFullDeviceIsTold) {
  pool_.files["/x"] = {noise(100), 1};
  auto out = copy_out(pool_, "/x", "/dev/full", {});
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kNoSpace);
  auto null = copy_out(pool_, "/x", "/dev/null", {});
  ASSERT_TRUE(null) << null.error().message;
  EXPECT_FALSE(null->verified);
}

TEST_F(CopyTest, AStreamGetsHolesAsZeros) {
  pool_.files["/x"] = {std::string(200000, '\0') + "end" + std::string(100000, '\0'), 1};
  const fs::path fifo = scratch_.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  UniqueFd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_EQ(::fcntl(reader.get(), F_SETPIPE_SZ, 1 << 20), 1 << 20);
  auto out = copy_out(pool_, "/x", fifo, {});
  ASSERT_TRUE(out) << out.error().message;
  std::string got(1 << 20, '\1');
  const ssize_t count = ::read(reader.get(), got.data(), got.size());
  ASSERT_GT(count, 0);
  got.resize(static_cast<size_t>(count));
  EXPECT_EQ(got, pool_.files["/x"].bytes);
}

TEST_F(CopyTest, ProgressReachesTheEndAndNeverGoesBack) {
  const fs::path local = put("in", noise(10 << 20));
  CopyOptions options;
  uint64_t last = 0;
  options.on_progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 10u << 20);
    EXPECT_GE(done, last);
    last = done;
  };
  ASSERT_TRUE(copy_in(pool_, local, "/x", options));
  EXPECT_EQ(last, 10u << 20);
}

TEST_F(CopyTest, ASignalEndsACopyAndLeavesBothSidesAsTheyWere) {
  const std::string bytes = noise(9 << 20);
  const fs::path local = put("in", bytes);
  pool_.files["/x"].bytes = bytes;
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    auto interruption = Interruption::begin();
    ASSERT_TRUE(interruption);
    CopyOptions options;
    options.interruption = interruption->get();
    options.on_progress = [&](uint64_t, uint64_t) {
      if (options.interruption->signal() != 0) return;  // a second one would end the process
      ::kill(::getpid(), number);
      while (options.interruption->signal() == 0) ::sched_yield();
    };
    auto out = copy_out(pool_, "/x", scratch_.path() / "out", options);
    ASSERT_FALSE(out);
    EXPECT_EQ(out.error().code, ErrorCode::kAborted);
    EXPECT_THAT(out.error().message, HasSubstr("interrupted"));
    EXPECT_EQ((*interruption)->signal(), number);
    EXPECT_EQ(files_in_scratch(), 1u);
    auto in = copy_in(pool_, local, "/y", options);
    ASSERT_FALSE(in);
    EXPECT_EQ(in.error().code, ErrorCode::kAborted);
    EXPECT_EQ(pool_.files.size(), 1u);
  }
}

TEST_F(CopyTest, ASignalEndsACopyThatIsStuckAndLeavesNoFile) {
  pool_.files["/x"].bytes = noise(1 << 20);
  const pid_t child = ::fork();
  if (child == 0) {
    auto interruption = Interruption::begin(/*grace_ms=*/50);
    if (!interruption) ::_exit(1);
    pool_.on_read = [&](uint64_t) {
      std::ofstream(scratch_.path() / "stuck");
      while (true) ::pause();
    };
    CopyOptions options;
    options.interruption = interruption->get();
    auto out = copy_out(pool_, "/x", scratch_.path() / "out", options);
    ::_exit(out ? 2 : 3);
  }
  while (!fs::exists(scratch_.path() / "stuck")) ::sched_yield();
  EXPECT_EQ(files_in_scratch(), 2u) << "the bytes lie in a file of their own";
  ASSERT_EQ(::kill(child, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_EQ(files_in_scratch(), 1u);
}

TEST(Interruption, SignalsThatAreIgnoredStaySo) {
  ::signal(SIGHUP, SIG_IGN);
  {
    auto interruption = Interruption::begin();
    ASSERT_TRUE(interruption);
    ASSERT_EQ(::kill(::getpid(), SIGHUP), 0);
    ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);
    while ((*interruption)->signal() == 0) ::sched_yield();
    EXPECT_EQ((*interruption)->signal(), SIGTERM);
  }
  ::signal(SIGHUP, SIG_DFL);
}

}  // namespace
}  // namespace sluice::tools
