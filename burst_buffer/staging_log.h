#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "burst_buffer/log_record.h"
#include "burst_buffer/persist_domain.h"

// The log that says what the bytes of the hot tier mean. Every prefix of it is a valid state.
//
// Two halves take turns. Records are appended to the active one; when it is full, the live state is written
// to the other as a checkpoint, persisted, and one 8-byte word is flipped. A crash before the flip leaves the
// old half whole, after it the new one. FORMAT.md, section "Staging log", has the layout.
namespace sluice::burst_buffer {

// Where things lie in a pool of a given size; the same in every build of one format version.
struct LogLayout {
  uint64_t pool_bytes = 0;
  uint64_t half_bytes = 0;
  uint64_t data_offset = 0;
  uint64_t data_bytes = 0;

  uint64_t half_offset(uint32_t half) const;
  // kInvalidArgument when the pool is too small to hold anything useful.
  static Result<LogLayout> of(uint64_t pool_bytes);
};

inline constexpr uint64_t kMinPoolBytes = 128 * 1024;

// What a pool's memory says, in order of sequence.
struct LogContents {
  LogLayout layout;
  uint32_t half = 0;
  uint32_t generation = 0;
  uint64_t next_sequence = 0;
  uint64_t checkpoint_end =
      0;                    // records below this sequence number are the checkpoint, durable with their bytes
  uint64_t used_bytes = 0;  // of the half
  std::vector<DecodedRecord> records;
};

// The first number that is given after a restart that found these contents: behind every number that a record
// lost in the crash can have had, so that numbers are never given twice.
uint64_t first_number_after(const LogContents& contents);

// Reads a pool's memory, which is hostile. Nothing when it was never formatted, or its formatting did not
// end.
//
// Each record's checksum, generation and sequence number are verified, and reading ends at the first that
// fails: that is where a crash cut the log off. It is damage instead, kCorrupt with data_loss, when the
// checkpoint ends early, or when a whole later record says that the failed one had been persisted.
Result<std::optional<LogContents>> read_staging_log(std::span<const std::byte> memory);

// The same for a person, as text; ends with the error when there is one.
std::string dump_staging_log(std::span<const std::byte> memory);

// Appends. One thread at a time. After an error of the domain the log must not be used further (a flush that
// failed once says nothing when it succeeds later).
class StagingLog {
 public:
  // Classes of records by how much room they must leave. Whatever was admitted has to fit in a half as a
  // checkpoint, where an appended record costs at most twice its size (it may cut an older one into one part
  // more for each of its own); and what frees room (kEnding) must find some when the rest is refused.
  enum class Room { kGrowing, kPlacing, kEnding };

  // An empty log in a fresh pool. The pool's memory is all zeros where it starts, or an earlier formatting
  // did not end.
  static Result<StagingLog> format(PersistDomain& domain);
  // Continues what read_staging_log() found. The first call must be checkpoint(): behind a torn record
  // nothing can be appended.
  StagingLog(PersistDomain& domain, const LogContents& contents);

  // True when `bytes` more are admitted now; ever_admits(): when the log held nothing else.
  bool ever_admits(size_t bytes, Room room) const;
  bool admits(size_t bytes, Room room) const;

  // The number the next append() gives its record.
  uint64_t next_sequence() const { return next_sequence_; }
  // The record survives a crash of the process on return, a power loss after the next persist(). The caller
  // asked admits().
  uint64_t append(const LogRecord& record);
  // Every appended record is durable on return.
  Result<> persist();

  // Whether these records fit in a half.
  bool fits(std::span<const LogRecord> live) const;
  // Replaces the log by these records, which fit; durable on return. What they say of bytes must be durable
  // before.
  Result<> checkpoint(std::span<const LogRecord> live);

  const LogLayout& layout() const { return layout_; }
  uint64_t used_bytes() const { return end_; }
  // Since the checkpoint.
  uint64_t appended_bytes() const { return end_ - checkpoint_end_; }
  uint64_t capacity_bytes() const { return layout_.half_bytes; }

 private:
  StagingLog(PersistDomain& domain, LogLayout layout) : domain_(&domain), layout_(layout) {}

  std::byte* half_memory(uint32_t half) const;
  Result<> store_word(size_t offset, uint32_t value);
  // A pool of an earlier format version becomes one of this.
  Result<> renew_head();

  PersistDomain* domain_;
  LogLayout layout_;
  uint32_t half_ = 1;  // active; a fresh log's first checkpoint goes to half 0
  uint32_t generation_ = 0;
  uint32_t started_ = 0;  // the highest generation that was ever begun
  uint64_t next_sequence_ = 1;
  uint64_t durable_ = 0;
  uint64_t checkpoint_end_ = 0;  // in the active half
  uint64_t end_ = 0;
  uint64_t persisted_ = 0;  // likewise
  std::vector<std::byte> scratch_;
};

}  // namespace sluice::burst_buffer
