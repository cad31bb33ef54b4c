#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "bench/job/hint.h"

// What the user asked for, in IOR's spelling, and which bytes of the file that means. Pure.
namespace sluice::bench {

enum class Api { kMpiIo, kPosix };

struct SharedFileOptions {
  Api api = Api::kMpiIo;
  std::string path = "testFile";
  uint64_t block_bytes = 1 << 20;
  uint64_t transfer_bytes = 256 << 10;
  uint64_t segments = 1;
  uint64_t repetitions = 1;
  bool write = true;
  bool read = true;
  bool check_write = false;
  bool check_read = false;
  bool collective = false;
  bool file_per_process = false;
  bool shift_ranks = false;
  bool sync = false;
  bool keep = false;
  Hints hints;
  std::string json_path;

  uint64_t transfers_of_a_block() const { return block_bytes / transfer_bytes; }
  uint64_t transfers_of_a_rank() const { return segments * transfers_of_a_block(); }
  uint64_t bytes_of_a_rank() const { return segments * block_bytes; }
  // Where the n-th transfer of this rank's data begins in its file.
  uint64_t offset_of(uint64_t transfer, uint32_t rank, uint32_t ranks) const;
  // The file that holds the data of this rank.
  std::string path_of(uint32_t rank) const;
};

struct SharedFileHelp {
  std::string text;
};

// "64k", "1m", "2g", "17": bytes, the letters binary and in either case.
Result<uint64_t> parse_size(const std::string& text);

// kInvalidArgument for anything that makes no sense, in one line.
Result<std::variant<SharedFileOptions, SharedFileHelp>> parse_shared_file_options(int argc,
                                                                                  const char* const* argv);

// The 8-byte word that a rank's data has at this byte of it. No two places of a run have the same.
constexpr uint64_t pattern_word(uint32_t rank, uint64_t byte_of_rank, uint64_t repetition) {
  uint64_t word = (byte_of_rank / sizeof(uint64_t) + 1) * 0x9E3779B97F4A7C15U;
  word ^= (uint64_t{rank} + 1) << 48 ^ (repetition + 1) << 40;
  return word ^ word >> 29;
}

}  // namespace sluice::bench
