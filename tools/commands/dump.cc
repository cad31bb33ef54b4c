// locktable, dump: parts of the service looked at by themselves.
#include <fcntl.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>

#include "base/os.h"
#include "burst_buffer/pmem/pmem_domain.h"
#include "burst_buffer/staging_log.h"
#include "lockmgr/text.h"
#include "storage/shard_format.h"
#include "tools/commands/commands.h"
#include "tools/exit_code.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxScriptBytes = 16 << 20;

// The header of a shard file; nothing when the file is too short to be one.
std::optional<std::string> read_head(const std::string& path) {
  std::string head(storage::kShardHeaderBytes, '\0');
  auto fd = open_file(path, O_RDONLY | O_CLOEXEC);
  if (!fd || !pread_all(fd->get(), std::as_writable_bytes(std::span(head)), 0, path)) return std::nullopt;
  return head;
}

}  // namespace

int run_lock_table(const std::string& script_file) {
  if (script_file.empty() || script_file == "-") {
    // Line by line, so that it can be typed.
    lockmgr::TableText table;
    for (std::string line; std::getline(std::cin, line);) fmt::print("{}", table.run_line(line));
    return kOk;
  }
  auto script = read_file(script_file, kMaxScriptBytes);
  if (!script) return report(script.error());
  fmt::print("{}", lockmgr::run_script(*script));
  return kOk;
}

int run_dump(const std::string& file) {
  std::error_code ec;
  if (!fs::is_regular_file(file, ec))
    return report(
        Error(ErrorCode::kNotFound, fmt::format("{} is not there, or no file; name POOL/hot/hot.pool or a "
                                                "shard in POOL/targets/tN/shards",
                                                file)));
  if (auto head = read_head(file)) {
    auto shard = storage::decode_shard_header(std::as_bytes(std::span(*head)));
    if (shard) {
      fmt::print("{}\n", storage::describe(*shard));
      return kOk;
    }
  }
  // Existing files keep their size, so what is asked for here has no effect.
  auto domain = burst_buffer::open_pmem_domain(file, fs::file_size(file, ec));
  if (!domain) return report(domain.error());
  fmt::print("{}", burst_buffer::dump_staging_log((*domain)->memory()));
  return kOk;
}

}  // namespace sluice::tools
