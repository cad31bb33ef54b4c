#include "burst_buffer/pmem/pmem_domain.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpmemobj.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <fstream>

#include "base/os.h"

namespace sluice::burst_buffer {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class PmemDomainTest : public ::testing::Test {
 protected:
  fs::path pool() const { return directory_->path() / "hot.pool"; }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(directory_->path()), fs::directory_iterator()));
  }

  Result<TemporaryDirectory> directory_ = TemporaryDirectory::create("sluice-pmem");
};

TEST_F(PmemDomainTest, a_new_pool_is_zeros_and_keeps_what_is_stored) {
  size_t bytes = 0;
  {
    const auto domain = open_pmem_domain(pool(), kMinPmemPoolBytes);
    ASSERT_TRUE(domain) << domain.error().message;
    EXPECT_FALSE((*domain)->existed());
    const auto memory = (*domain)->memory();
    bytes = memory.size();
    EXPECT_GT(bytes, kMinPmemPoolBytes * 7 / 10);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0u);
    for (const std::byte b : memory.first(64 * 1024)) ASSERT_EQ(b, std::byte{0});
    std::memcpy(memory.data() + bytes - 5, "hello", 5);
    ASSERT_TRUE((*domain)->persist(memory.data() + bytes - 5, 5));
    ASSERT_TRUE((*domain)->persist_all({memory.first(1), memory.last(5)}));
  }
  const auto again = open_pmem_domain(pool(), 0);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE((*again)->existed());
  ASSERT_EQ((*again)->memory().size(), bytes);
  EXPECT_EQ(std::memcmp((*again)->memory().data() + bytes - 5, "hello", 5), 0);
  EXPECT_EQ(files(), 1u);
}

TEST_F(PmemDomainTest, says_what_it_is_and_what_it_outlives) {
  const auto disk = open_pmem_domain(pool(), kMinPmemPoolBytes);
  ASSERT_TRUE(disk);
  EXPECT_THAT((*disk)->medium(), AnyOf("disk", "memory file", "persistent memory"));
  EXPECT_EQ((*disk)->survives(), (*disk)->medium() == "memory file" ? "process crash" : "power loss");
}

// What this thread spent, so that a busy machine does not count.
double cpu_seconds() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) / 1e9;
}

TEST_F(PmemDomainTest, a_quarter_gigabyte_costs_less_than_half_a_second) {
  const double begin = cpu_seconds();
  const auto domain = open_pmem_domain(pool(), uint64_t{256} << 20);
  ASSERT_TRUE(domain) << domain.error().message;
  EXPECT_LT(cpu_seconds() - begin, 0.5);
}

TEST_F(PmemDomainTest, sizes_out_of_range_are_refused) {
  for (const uint64_t bytes : {uint64_t{0}, kMinPmemPoolBytes - 1, kMaxPmemPoolBytes + 1}) {
    const auto domain = open_pmem_domain(pool(), bytes);
    ASSERT_FALSE(domain);
    EXPECT_EQ(domain.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(domain.error().message, HasSubstr("--hot-size"));
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(PmemDomainTest, a_file_that_is_no_pool_is_refused_and_left_alone) {
  std::ofstream(pool()) << "precious text";
  const auto domain = open_pmem_domain(pool(), kMinPmemPoolBytes);
  ASSERT_FALSE(domain);
  EXPECT_EQ(domain.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(domain.error().message, HasSubstr(pool().string()));
  EXPECT_EQ(*read_file(pool(), 100), "precious text");
}

TEST_F(PmemDomainTest, a_pool_of_another_program_is_refused) {
  PMEMobjpool* other = pmemobj_create(pool().c_str(), "something-else", PMEMOBJ_MIN_POOL, 0600);
  ASSERT_NE(other, nullptr);
  pmemobj_close(other);
  const auto domain = open_pmem_domain(pool(), kMinPmemPoolBytes);
  ASSERT_FALSE(domain);
  EXPECT_EQ(domain.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(domain.error().message, HasSubstr("another program"));
}

TEST_F(PmemDomainTest, a_pool_in_use_is_refused_to_a_second_process) {
  const auto domain = open_pmem_domain(pool(), kMinPmemPoolBytes);
  ASSERT_TRUE(domain);
  const auto same_process = open_pmem_domain(pool(), kMinPmemPoolBytes);
  ASSERT_FALSE(same_process);
  EXPECT_EQ(same_process.error().code, ErrorCode::kBusy);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto second = open_pmem_domain(pool(), kMinPmemPoolBytes);
    ::_exit(!second && second.error().code == ErrorCode::kBusy ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(PmemDomainTest, a_directory_that_is_not_there_is_named) {
  const auto domain = open_pmem_domain(directory_->path() / "missing" / "hot.pool", kMinPmemPoolBytes);
  ASSERT_FALSE(domain);
  EXPECT_EQ(domain.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(domain.error().message, HasSubstr("missing"));
}

TEST_F(PmemDomainTest, what_a_killed_creation_left_is_removed) {
  const fs::path leftover = pool().string() + ".creating.123";
  std::ofstream(leftover) << "half a pool";
  ASSERT_TRUE(open_pmem_domain(pool(), kMinPmemPoolBytes));
  EXPECT_FALSE(fs::exists(leftover));
}

}  // namespace
}  // namespace sluice::burst_buffer
