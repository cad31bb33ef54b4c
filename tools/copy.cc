#include "tools/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "tools/byte_stream.h"

namespace sluice::tools {
namespace {

constexpr size_t kPieceBytes = 4 << 20;
constexpr size_t kHoleBytes = 64 << 10;  // shorter runs of zeros are written

// What was written, to be compared with what is there.
struct Piece {
  uint64_t offset = 0;
  size_t bytes = 0;
  uint32_t checksum = 0;
};

// The first byte is zero and every byte equals the one before it.
bool all_zero(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

class Copying {
 public:
  Copying(Source& source, Sink& sink, const CopyOptions& options)
      : source_(source), sink_(sink), options_(options) {}

  Result<CopyReport> run() {
    report_.bytes = source_.size();
    if (auto copied = copy_data(); !copied) return fail(copied.error());
    if (auto sized = sink_.set_size(source_.size()); !sized) return fail(sized.error());
    if (sink_.can_read_back()) {
      if (auto same = verify(); !same) return fail(same.error());
      report_.verified = true;
    }
    if (auto unchanged = source_.check_unchanged(); !unchanged) return fail(unchanged.error());
    if (auto stop = stop_when_interrupted(); !stop) return fail(stop.error());
    if (auto finished = sink_.finish(); !finished) return fail(finished.error());
    return report_;
  }

 private:
  Result<> stop_when_interrupted() const {
    if (options_.interruption == nullptr || options_.interruption->signal() == 0) return {};
    return fail(ErrorCode::kAborted,
                fmt::format("interrupted; {} is as it was, copy it again", sink_.name()));
  }

  Result<> copy_data() {
    std::vector<std::byte> buffer(std::min<uint64_t>(kPieceBytes, std::max<uint64_t>(source_.size(), 1)));
    uint64_t at = 0;
    while (at < source_.size()) {
      auto data = source_.next_data(at);
      if (!data) return fail(data.error());
      if (!*data) return {};
      for (uint64_t offset = (*data)->begin.value; offset < (*data)->end.value;) {
        const auto bytes =
            std::span(buffer).first(std::min<uint64_t>(buffer.size(), (*data)->end.value - offset));
        if (auto stop = stop_when_interrupted(); !stop) return stop;
        if (auto got = source_.read(offset, bytes); !got) return got;
        if (auto put = write_without_holes(offset, bytes); !put) return put;
        offset += bytes.size();
        // Half of the way is reading back.
        if (options_.on_progress) options_.on_progress(offset / 2, source_.size());
      }
      at = (*data)->end.value;
    }
    return {};
  }

  Result<> write_without_holes(uint64_t offset, std::span<const std::byte> bytes) {
    size_t begin = 0;
    while (begin < bytes.size()) {
      size_t end = begin;
      const auto block = [&](size_t from) {
        return bytes.subspan(from, std::min(kHoleBytes, bytes.size() - from));
      };
      const bool hole = all_zero(block(begin));
      while (end < bytes.size() && all_zero(block(end)) == hole) end += block(end).size();
      const auto run = bytes.subspan(begin, end - begin);
      pieces_.push_back({offset + begin, run.size(), crc32c(run)});
      if (!hole) {
        report_.data_bytes += run.size();
        if (auto put = sink_.write(offset + begin, run); !put) return put;
      }
      begin = end;
    }
    return {};
  }

  Result<> verify() {
    std::vector<std::byte> buffer(kPieceBytes);
    for (const Piece& piece : pieces_) {
      const auto bytes = std::span(buffer).first(piece.bytes);
      if (auto stop = stop_when_interrupted(); !stop) return stop;
      if (auto got = sink_.read_back(piece.offset, bytes); !got) return got;
      if (crc32c(bytes) != piece.checksum)
        return fail(ErrorCode::kCorrupt, fmt::format("{} does not hold what was written at bytes {} to {}: "
                                                     "the copy was given up; check the medium",
                                                     sink_.name(), piece.offset, piece.offset + piece.bytes));
      if (options_.on_progress)
        options_.on_progress((source_.size() + piece.offset + piece.bytes) / 2, source_.size());
    }
    return {};
  }

  Source& source_;
  Sink& sink_;
  const CopyOptions& options_;
  CopyReport report_;
  std::vector<Piece> pieces_;
};

Result<CopyReport> copy(Result<std::unique_ptr<Source>> source, Result<std::unique_ptr<Sink>> sink,
                        const CopyOptions& options) {
  if (!sink) return fail(sink.error());
  return Copying(**source, **sink, options).run();
}

}  // namespace

Result<CopyReport> copy_in(client::Client& client, const std::filesystem::path& from, const std::string& to,
                           const CopyOptions& options) {
  auto source = open_local_source(from);
  if (!source) return fail(source.error());
  return copy(std::move(source),
              open_pool_sink(client, to, options.force, options.object_class, options.chunk_bytes), options);
}

Result<CopyReport> copy_out(client::Client& client, const std::string& from, const std::filesystem::path& to,
                            const CopyOptions& options) {
  auto source = open_pool_source(client, from);
  if (!source) return fail(source.error());
  return copy(std::move(source), open_local_sink(to, options.force, options.interruption), options);
}

Result<CopyReport> copy_within(client::Client& client, const std::string& from, const std::string& to,
                               const CopyOptions& options) {
  auto source = open_pool_source(client, from);
  if (!source) return fail(source.error());
  return copy(std::move(source),
              open_pool_sink(client, to, options.force, options.object_class, options.chunk_bytes), options);
}

}  // namespace sluice::tools
