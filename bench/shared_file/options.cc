#include "bench/shared_file/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>

namespace sluice::bench {
namespace {

constexpr uint64_t kMaxTransferBytes = uint64_t{1} << 30;  // a count of bytes in one MPI call is an int
constexpr uint64_t kMaxBytesOfARank = uint64_t{1} << 46;

constexpr const char* kDescription =
    "All ranks write one file, or one each, and read it back: IOR's layout and spelling, any MPI-IO path.";

constexpr const char* kFooter = R"(
In segment s, rank r of n has the block at (s * n + r) * BLOCK, and moves it in transfers. Without any of -w -r -W -R it
writes and reads. Sizes: bytes, or with k, m, g for KiB, MiB, GiB.

MiB/s are IOR's: all bytes, over the time from the first rank's open to the last rank's close.

Exit code: 0 done and, where asked, verified; 1 an I/O error or bytes that differ; 2 options that make no sense.

Examples:
  mpiexec -n 2 shared_file -a MPIIO -c -t 1m -b 256m -i 7 -o ufs:/dev/shm/x
  mpiexec -n 2 shared_file -a MPIIO -c -t 1m -b 256m -i 7 -o sluice:/x
  mpiexec -n 4 shared_file -w -r -W -R -C -e -t 64k -b 64k -s 100 -o sluice:/x)";

struct RawOptions {
  std::string api = "MPIIO";
  std::string block = "1m";
  std::string transfer = "256k";
  std::vector<std::string> hints;
  bool write = false;
  bool read = false;
};

void declare(CLI::App& app, SharedFileOptions& options, RawOptions& raw) {
  app.add_option("-a", raw.api, "MPIIO or POSIX")->capture_default_str();
  app.add_option("-o", options.path, "The file; with -F its names begin so")->capture_default_str();
  app.add_option("-b", raw.block, "Contiguous bytes of a rank in a segment")->capture_default_str();
  app.add_option("-t", raw.transfer, "Bytes of one call")->capture_default_str();
  app.add_option("-s", options.segments, "Segments")->capture_default_str();
  app.add_option("-i", options.repetitions, "Repetitions")->capture_default_str();
  app.add_flag("-w", raw.write, "Write");
  app.add_flag("-r", raw.read, "Read");
  app.add_flag("-W", options.check_write, "Read back what was written and compare");
  app.add_flag("-R", options.check_read, "Compare what was read");
  app.add_flag("-c", options.collective, "Collective calls");
  app.add_flag("-F", options.file_per_process, "A file for each rank");
  app.add_flag("-C", options.shift_ranks, "Each rank reads what the rank after it wrote");
  app.add_flag("-e", options.sync, "Sync before the close of a write");
  app.add_flag("-k", options.keep, "Keep the files");
  app.add_option("--hint", raw.hints, "MPI-IO hint; may be given several times")
      ->type_name("KEY=VALUE")
      ->take_all();
  app.add_option("--json", options.json_path, "Write the results to this file too")->type_name("FILE");
}

Error usage(const std::string& message) {
  return {ErrorCode::kInvalidArgument, message + "; see shared_file --help"};
}

Result<> take_texts(const RawOptions& raw, SharedFileOptions& options) {
  if (raw.api != "MPIIO" && raw.api != "POSIX")
    return fail(usage(fmt::format("-a: '{}' is neither MPIIO nor POSIX", raw.api)));
  options.api = raw.api == "POSIX" ? Api::kPosix : Api::kMpiIo;
  auto block = parse_size(raw.block);
  if (!block) return fail(usage("-b: " + block.error().message));
  auto transfer = parse_size(raw.transfer);
  if (!transfer) return fail(usage("-t: " + transfer.error().message));
  options.block_bytes = *block;
  options.transfer_bytes = *transfer;
  auto hints = parse_hints(raw.hints);
  if (!hints) return fail(usage(hints.error().message));
  options.hints = std::move(*hints);
  const bool any = raw.write || raw.read || options.check_write || options.check_read;
  options.write = raw.write || !any;
  options.read = raw.read || options.check_read || !any;
  return {};
}

Result<> check(const SharedFileOptions& options) {
  if (options.transfer_bytes == 0 || options.transfer_bytes > kMaxTransferBytes)
    return fail(usage(fmt::format("-t: {} is not from 1 to {}", options.transfer_bytes, kMaxTransferBytes)));
  if (options.block_bytes == 0 || options.block_bytes % options.transfer_bytes != 0) {
    return fail(usage(fmt::format("-b: a block of {} is no multiple of a transfer of {}", options.block_bytes,
                                  options.transfer_bytes)));
  }
  if (options.transfer_bytes % sizeof(uint64_t) != 0)
    return fail(usage(fmt::format("-t: {} is no multiple of 8", options.transfer_bytes)));
  if (options.segments == 0 || options.segments > kMaxBytesOfARank / options.block_bytes)
    return fail(usage(fmt::format("-s: {} segments are none, or too many", options.segments)));
  if (options.repetitions == 0) return fail(usage("-i: no repetition at all"));
  if (options.api == Api::kPosix && options.collective)
    return fail(usage("-c: POSIX has no collective calls"));
  return {};
}

}  // namespace

uint64_t SharedFileOptions::offset_of(uint64_t transfer, uint32_t rank, uint32_t ranks) const {
  const uint64_t segment = transfer / transfers_of_a_block();
  const uint64_t inside = transfer % transfers_of_a_block() * transfer_bytes;
  if (file_per_process) return segment * block_bytes + inside;
  return (segment * ranks + rank) * block_bytes + inside;
}

std::string SharedFileOptions::path_of(uint32_t rank) const {
  return file_per_process ? fmt::format("{}.{:08}", path, rank) : path;
}

Result<uint64_t> parse_size(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string rest(end, text.data() + text.size());
  unsigned shift = 0;
  if (rest.size() == 1) {
    const char unit = static_cast<char>(std::tolower(static_cast<unsigned char>(rest[0])));
    shift = unit == 'k' ? 10 : unit == 'm' ? 20 : unit == 'g' ? 30 : 0;
  }
  if (error != std::errc() || (!rest.empty() && shift == 0) || number > UINT64_MAX >> shift)
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a size such as 64k, 1m or 2g", text));
  return number << shift;
}

Result<std::variant<SharedFileOptions, SharedFileHelp>> parse_shared_file_options(int argc,
                                                                                  const char* const* argv) {
  SharedFileOptions options;
  RawOptions raw;
  CLI::App app(kDescription, "shared_file");
  app.footer(kFooter);
  declare(app, options, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return SharedFileHelp{app.help()};
  } catch (const CLI::Error& error) {
    const std::string text = error.what();
    return fail(usage(text.substr(0, text.find('\n'))));
  }
  if (auto ok = take_texts(raw, options); !ok) return fail(ok.error());
  if (auto ok = check(options); !ok) return fail(ok.error());
  return options;
}

}  // namespace sluice::bench
