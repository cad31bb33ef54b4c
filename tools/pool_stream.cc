#include <fmt/format.h>

#include <array>

#include "tools/byte_stream.h"

namespace sluice::tools {
namespace {

Extent extent_of(uint64_t offset, size_t bytes) {
  return Extent{Offset(offset), Offset(offset + bytes)};
}

Result<> read_all(client::File& file, uint64_t offset, std::span<std::byte> into, const std::string& name) {
  const std::array extents{extent_of(offset, into.size())};
  const std::array pieces{client::Piece{into.data(), into.size()}};
  auto got = file.read(extents, pieces);
  if (!got) return fail_with_context(name, got.error());
  if (*got != into.size())
    return fail(
        ErrorCode::kConflict,
        fmt::format("{} became shorter while it was read; copy it again when nobody writes to it", name));
  return {};
}

class PoolSource final : public Source {
 public:
  PoolSource(client::Client& client, std::unique_ptr<client::File> file, std::string path,
             client::FileInfo info)
      : client_(client), file_(std::move(file)), path_(std::move(path)), opened_(std::move(info)) {}
  ~PoolSource() override {
    // It was only read, so there is nothing whose loss would matter.
    auto closed = file_->close(false);
    static_cast<void>(closed);
  }

  uint64_t size() const override { return opened_.size_bytes; }
  Result<std::optional<Extent>> next_data(uint64_t from) override {
    if (from >= size()) return std::optional<Extent>();
    return std::optional(Extent{Offset(from), Offset(size())});
  }
  Result<> read(uint64_t offset, std::span<std::byte> into) override {
    return read_all(*file_, offset, into, name());
  }
  Result<> check_unchanged() override {
    auto now = client_.stat(path_);
    if (!now) return fail_with_context(name(), now.error());
    if (now->committed_epoch == opened_.committed_epoch && now->created_s == opened_.created_s) return {};
    return fail(
        ErrorCode::kConflict,
        fmt::format("{} changed while it was copied; copy it again when nobody writes to it", name()));
  }
  std::string name() const override { return "sluice:" + path_; }

 private:
  client::Client& client_;
  std::unique_ptr<client::File> file_;
  const std::string path_;
  const client::FileInfo opened_;
};

// One transaction: invisible to others until finish() commits it.
class PoolSink final : public Sink {
 public:
  PoolSink(client::Client& client, std::unique_ptr<client::File> file, std::string path, bool created)
      : client_(client), file_(std::move(file)), path_(std::move(path)), created_(created) {}
  ~PoolSink() override {
    if (finished_) return;
    // What fails here leaves at most an empty file, which the caller's error message is more important than.
    auto closed = file_->close(false);
    static_cast<void>(closed);
    if (created_) {
      auto removed = client_.remove(path_);
      static_cast<void>(removed);
    }
  }

  Result<> write(uint64_t offset, std::span<const std::byte> bytes) override {
    const std::array extents{extent_of(offset, bytes.size())};
    const std::array pieces{client::ConstPiece{bytes.data(), bytes.size()}};
    auto done = file_->write(extents, pieces);
    if (!done) return fail_with_context(name(), done.error());
    if (*done != bytes.size())
      return fail(ErrorCode::kIo,
                  fmt::format("{}: {} of {} bytes were written", name(), *done, bytes.size()));
    return {};
  }
  Result<> set_size(uint64_t bytes) override {
    auto done = file_->resize(bytes);
    if (!done) return fail_with_context(name(), done.error());
    return {};
  }
  bool can_read_back() const override { return true; }
  Result<> read_back(uint64_t offset, std::span<std::byte> into) override {
    return read_all(*file_, offset, into, name());
  }
  Result<> finish() override {
    auto closed = file_->close(true);
    if (!closed) return fail_with_context(name(), closed.error());
    finished_ = true;
    return {};
  }
  std::string name() const override { return "sluice:" + path_; }

 private:
  client::Client& client_;
  std::unique_ptr<client::File> file_;
  const std::string path_;
  const bool created_;
  bool finished_ = false;
};

}  // namespace

Result<std::unique_ptr<Source>> open_pool_source(client::Client& client, const std::string& path) {
  auto file = client.open(path, {});
  if (!file) return fail_with_context("sluice:" + path, file.error());
  client::FileInfo info = (*file)->opened();
  return std::make_unique<PoolSource>(client, std::move(*file), path, std::move(info));
}

Result<std::unique_ptr<Sink>> open_pool_sink(client::Client& client, const std::string& path, bool force,
                                             const std::string& object_class, uint64_t chunk_bytes) {
  client::OpenOptions options;
  options.access = client::AccessMode::kReadWrite;
  options.create = true;
  options.exclusive = true;
  options.object_class = object_class;
  options.chunk_bytes = chunk_bytes;
  auto file = client.open(path, options);
  const bool created = file.has_value();
  if (!file && file.error().code == ErrorCode::kExists) {
    if (!force)
      return fail(ErrorCode::kExists,
                  fmt::format("sluice:{} is there already; give --force to replace it", path));
    options.exclusive = false;
    options.truncate = true;
    file = client.open(path, options);
  }
  if (!file) return fail_with_context("sluice:" + path, file.error());
  return std::make_unique<PoolSink>(client, std::move(*file), path, created);
}

}  // namespace sluice::tools
