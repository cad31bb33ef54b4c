#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"

namespace sluice::tools::testing {

// A pool in memory with transactions, for one thread: what the copy commands need of a client. It can be told
// to go wrong.
class MemoryClient final : public client::Client {
 public:
  struct Stored {
    std::string bytes;
    uint64_t epoch = 0;
  };
  std::map<std::string, Stored> files;
  // Faults.
  bool flip_on_write = false;                    // one bit of everything that is written
  std::optional<uint64_t> fail_write_at;         // the write of this byte
  std::function<void(uint64_t offset)> on_read;  // before each read

  Result<std::unique_ptr<client::File>> open(const std::string& path,
                                             const client::OpenOptions& options) override;
  Result<client::FileInfo> stat(const std::string& path) override {
    const auto found = files.find(path);
    if (found == files.end()) return fail(ErrorCode::kNotFound, path + " is not there");
    return info(path, found->second);
  }
  Result<> remove(const std::string& path) override {
    if (files.erase(path) == 0) return fail(ErrorCode::kNotFound, path + " is not there");
    return {};
  }
  Result<std::unique_ptr<client::File>> attach(const client::SharedHandle&) override { return unsupported(); }
  Result<std::vector<client::FileInfo>> list(const std::string&) override { return unsupported(); }
  Result<> wait_drained(const std::string&, uint64_t) override { return unsupported(); }
  Result<client::LockReport> locks(const std::string&) override { return unsupported(); }
  bool connected() const override { return true; }
  Result<std::string> explain(const std::string&) override { return unsupported(); }

  static client::FileInfo info(const std::string& path, const Stored& stored) {
    client::FileInfo info;
    info.path = path;
    info.size_bytes = stored.bytes.size();
    info.committed_epoch = stored.epoch;
    return info;
  }
  static tl::unexpected<Error> unsupported() { return fail(ErrorCode::kUnsupported, "not in this pool"); }
};

class MemoryFile final : public client::File {
 public:
  MemoryFile(MemoryClient& client, std::string path, client::FileInfo opened, std::string bytes)
      : client_(client), path_(std::move(path)), opened_(std::move(opened)), bytes_(std::move(bytes)) {}

  Result<uint64_t> write(std::span<const Extent> extents,
                         std::span<const client::ConstPiece> memory) override {
    const uint64_t begin = extents[0].begin.value, end = extents[0].end.value;
    if (client_.fail_write_at && *client_.fail_write_at >= begin && *client_.fail_write_at < end)
      return fail(ErrorCode::kNoSpace, "the hot tier is full");
    if (bytes_.size() < end) bytes_.resize(end);
    std::memcpy(bytes_.data() + begin, memory[0].data, memory[0].bytes);
    if (client_.flip_on_write) bytes_[begin] = static_cast<char>(bytes_[begin] ^ 1);
    return memory[0].bytes;
  }
  Result<uint64_t> read(std::span<const Extent> extents, std::span<const client::Piece> memory) override {
    const uint64_t begin = extents[0].begin.value;
    if (client_.on_read) client_.on_read(begin);
    const uint64_t count =
        begin >= bytes_.size() ? 0 : std::min<uint64_t>(memory[0].bytes, bytes_.size() - begin);
    std::memcpy(memory[0].data, bytes_.data() + begin, count);
    return count;
  }
  Result<> resize(uint64_t size_bytes) override {
    bytes_.resize(size_bytes);
    return {};
  }
  Result<> close(bool commit) override {
    if (!commit) return {};
    auto& stored = client_.files[path_];
    stored.bytes = bytes_;
    stored.epoch += 1;
    return {};
  }
  const client::FileInfo& opened() const override { return opened_; }

  Result<uint64_t> size() override { return bytes_.size(); }
  Result<> preallocate(uint64_t) override { return MemoryClient::unsupported(); }
  Result<uint64_t> shape(uint64_t, const std::string&) override { return MemoryClient::unsupported(); }
  Result<> flush() override { return {}; }
  Result<uint64_t> sync() override { return MemoryClient::unsupported(); }
  client::SharedHandle share() const override { return {}; }
  Result<int64_t> fetch_and_add(int64_t) override { return MemoryClient::unsupported(); }
  Result<int64_t> exchange_counter(int64_t) override { return MemoryClient::unsupported(); }
  void count_plan(bool, uint64_t) override {}
  Result<uint64_t> lock(Extent, bool) override { return MemoryClient::unsupported(); }
  Result<> unlock(uint64_t) override { return MemoryClient::unsupported(); }
  std::string lock_mode() const override { return "none"; }
  std::vector<std::pair<std::string, std::string>> effective_hints() const override { return {}; }

 private:
  MemoryClient& client_;
  const std::string path_;
  const client::FileInfo opened_;
  std::string bytes_;
};

inline Result<std::unique_ptr<client::File>> MemoryClient::open(const std::string& path,
                                                                const client::OpenOptions& options) {
  const bool there = files.contains(path);
  if (!there && !options.create) return fail(ErrorCode::kNotFound, path + " is not there");
  if (there && options.exclusive) return fail(ErrorCode::kExists, path + " is there");
  Stored& stored = files[path];
  return std::make_unique<MemoryFile>(*this, path, info(path, stored),
                                      options.truncate ? std::string() : stored.bytes);
}

}  // namespace sluice::tools::testing
