// Bytes of the hot tier that were damaged where they lie, as a reader in the remote lane finds them.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/os.h"
#include "tests/support/file_access.h"
#include "tests/support/mini_service.h"

namespace sluice {
namespace {

using client::File;
using client::OpenOptions;
using testing::get;
using ::testing::HasSubstr;
using testing::pattern;
using testing::put;

constexpr uint64_t kBlock = kChecksumBlockBytes;

class DamagedHotTier : public ::testing::Test {
 protected:
  void SetUp() override {
    server::PoolRequest request;
    request.targets = 3;
    request.hot_bytes = 16 << 20;
    request.drain = "watermark";  // which this little does not reach
    service_.ask(request);
    ASSERT_TRUE(service_.start());
    client::Options options = service_.client_options();
    options.lane = "remote";
    client_ = client::Client::connect(options).value();
    OpenOptions opening;
    opening.access = client::AccessMode::kReadWrite;
    opening.create = true;
    file_ = client_->open("/damaged", opening).value();
    data_ = pattern(4 * kBlock, 1);
    ASSERT_TRUE(put(*file_, 0, data_));
    ASSERT_TRUE(file_->flush());
  }
  // Turns a bit of the file's byte, in the medium of the hot tier: it is mapped, and changes with the file.
  void damage(uint64_t at) {
    const auto path = service_.pool() / "hot" / "hot.pool";
    const auto medium = read_file(path, 1 << 30);
    ASSERT_TRUE(medium);
    const std::string_view text(reinterpret_cast<const char*>(data_.data()), data_.size());
    const size_t begin = medium->find(text);
    ASSERT_NE(begin, std::string::npos);
    ASSERT_EQ(medium->find(text, begin + 1), std::string::npos) << "it lies there twice";
    const char changed = static_cast<char>((*medium)[begin + at] ^ 4);
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), &changed, 1, static_cast<off_t>(begin + at)), 1);
  }
  Result<uint64_t> read(uint64_t at, std::span<std::byte> into) {
    const Extent extent = Extent::at(Offset(at), Length(into.size()));
    const client::Piece piece{into.data(), into.size()};
    return file_->read({&extent, 1}, {&piece, 1});
  }

  testing::MiniService service_;
  std::shared_ptr<client::Client> client_;
  std::unique_ptr<File> file_;
  std::vector<std::byte> data_;
};

TEST_F(DamagedHotTier, what_is_nowhere_else_is_refused_with_the_file_and_the_range) {
  damage(kBlock + 100);
  std::vector<std::byte> some(10);
  for (const uint64_t at : {kBlock, kBlock + 95, 2 * kBlock - 10}) {
    const auto refused = read(at, some);
    ASSERT_FALSE(refused) << at;
    EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
    EXPECT_TRUE(refused.error().data_loss);
    EXPECT_THAT(refused.error().message, HasSubstr("/damaged"));
    EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(at)));
  }
  std::vector<std::byte> all(data_.size());
  EXPECT_FALSE(read(0, all));
  for (const uint64_t at : {uint64_t{0}, kBlock - 10, 2 * kBlock}) {
    ASSERT_TRUE(read(at, some)) << at << ": its block is whole";
    EXPECT_TRUE(std::ranges::equal(some, std::span(data_).subspan(at, 10)));
  }
}

TEST_F(DamagedHotTier, what_was_drained_is_read_from_the_storage_tier) {
  ASSERT_TRUE(file_->sync());
  ASSERT_TRUE(client_->wait_drained("/damaged", 20'000));
  damage(kBlock + 100);
  EXPECT_EQ(get(*file_, kBlock + 100, 1), std::vector(1, data_[kBlock + 100]));
  EXPECT_EQ(get(*file_, 0, data_.size()), data_);
}

}  // namespace
}  // namespace sluice
