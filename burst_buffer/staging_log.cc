#include "burst_buffer/staging_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "burst_buffer/part_table.h"
#include "burst_buffer/slab_allocator.h"

namespace sluice::burst_buffer {
namespace {

constexpr uint64_t kPoolMagic = 0x544F484543554C53;  // "SLUCEHOT" in memory order
constexpr uint64_t kHalfMagic = 0x474F4C4543554C53;  // "SLUCELOG"
constexpr uint32_t kVersion = 2;                     // 1 had no tables
constexpr uint32_t kHalfVersion = 1;

constexpr uint64_t kHeadBytes = 4096;
constexpr uint64_t kMinHalfBytes = 16 * 1024;
constexpr uint64_t kHalfShare = 24;  // of the pool for each half
constexpr uint64_t kPageBytes = 4096;

struct PoolHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t head_bytes;
  uint64_t pool_bytes;
  uint64_t half_bytes;
  uint64_t data_offset;
  uint64_t data_bytes;
  uint32_t granule_bytes;
  uint32_t reserved[2];
  uint32_t crc32c;  // of everything before it
};
static_assert(sizeof(PoolHeader) == 64);

// Two words behind it, each value | crc32c(value) << 32, stored whole. Zero: not there yet.
constexpr size_t kActiveWord = 64;   // generation * 2 + half
constexpr size_t kStartedWord = 72;  // the highest generation begun

struct HalfHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t generation;
  uint64_t first_sequence;
  uint64_t checkpoint_records;
  uint64_t checkpoint_bytes;
  uint32_t reserved[5];
  uint32_t crc32c;  // of everything before it
};
static_assert(sizeof(HalfHeader) == 64);

constexpr uint32_t kMaxGeneration = UINT32_MAX / 2;

template <class H>
uint32_t header_crc(const H& header) {
  static_assert(offsetof(H, crc32c) == sizeof(H) - sizeof(uint32_t));
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(H, crc32c)));
}

// A head of version 1 becomes one of version 2 in place: a crash may leave the version of the one and the
// checksum of the other.
bool is_head(const PoolHeader& header) {
  if (header.magic != kPoolMagic) return false;
  if (header.crc32c == header_crc(header)) return true;
  PoolHeader other = header;
  other.version = header.version == 1 ? kVersion : 1;
  return header.version - 1 <= kVersion - 1 && header.crc32c == header_crc(other);
}

uint64_t word_of(uint32_t value) {
  return value | uint64_t{crc32c(std::as_bytes(std::span(&value, 1)))} << 32;
}

// Nothing for zero.
Result<std::optional<uint32_t>> read_word(std::span<const std::byte> memory, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, memory.data() + offset, sizeof(word));
  if (word == 0) return std::optional<uint32_t>();
  const auto value = static_cast<uint32_t>(word);
  if (word_of(value) != word) return fail(ErrorCode::kCorrupt, "the staging log's state word is damaged");
  return std::optional(value);
}

Result<LogContents> corrupt(std::string message) {
  Error error(ErrorCode::kCorrupt, std::move(message));
  error.mark_data_loss();
  return fail(std::move(error));
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Looks behind a failed record for a whole one that proves the failed one was durable.
bool later_record_proves_damage(std::span<const std::byte> half, size_t at, uint32_t generation,
                                uint64_t sequence) {
  size_t checked_bytes = 0;
  for (at += kRecordAlignBytes; at + kRecordHeaderBytes <= half.size(); at += kRecordAlignBytes) {
    if (checked_bytes > 4 * half.size()) return false;  // hostile bytes may look like headers everywhere
    uint32_t length = 0;
    std::memcpy(&length, half.data() + at + 4, sizeof(length));
    if (length < kRecordHeaderBytes || length > half.size() - at) continue;
    uint32_t seen_generation = 0;
    std::memcpy(&seen_generation, half.data() + at + 12, sizeof(seen_generation));
    if (seen_generation != generation) continue;
    checked_bytes += length;
    const auto later = decode_record(half.subspan(at));
    if (later && later->stamp.sequence > sequence && later->stamp.durable >= sequence) return true;
  }
  return false;
}

Result<HalfHeader> read_half_header(std::span<const std::byte> half, uint32_t generation) {
  HalfHeader header;
  std::memcpy(&header, half.data(), sizeof(header));
  const bool good = header.magic == kHalfMagic && header.crc32c == header_crc(header) &&
                    header.version == kHalfVersion && header.generation == generation &&
                    header.checkpoint_bytes >= sizeof(HalfHeader) && header.checkpoint_bytes <= half.size() &&
                    header.first_sequence <= kMaxFileBytes &&
                    header.checkpoint_records <= half.size() / kRecordHeaderBytes;
  if (!good) return fail(ErrorCode::kCorrupt, "the header of the active half of the staging log is damaged");
  return header;
}

bool any_half_header(std::span<const std::byte> memory, const LogLayout& layout) {
  for (const uint32_t half : {0u, 1u}) {
    HalfHeader header;
    std::memcpy(&header, memory.data() + layout.half_offset(half), sizeof(header));
    if (header.magic == kHalfMagic && header.crc32c == header_crc(header)) return true;
  }
  return false;
}

// Fills in everything but the layout.
Result<LogContents> read_half(std::span<const std::byte> half, LogContents contents) {
  const auto header = read_half_header(half, contents.generation);
  if (!header) return corrupt(header.error().message);
  contents.next_sequence = header->first_sequence;
  contents.checkpoint_end = header->first_sequence + header->checkpoint_records;
  size_t at = sizeof(HalfHeader);
  std::string stopped = "it is full";
  while (at < half.size()) {
    auto record = decode_record(half.subspan(at));
    if (!record) {
      stopped = record.error().message;
      break;
    }
    if (record->stamp.generation != contents.generation || record->stamp.sequence != contents.next_sequence) {
      stopped = "the record there is an older one";
      break;
    }
    at += record->bytes;
    ++contents.next_sequence;
    contents.records.push_back(std::move(*record));
    if (contents.next_sequence == contents.checkpoint_end && at != header->checkpoint_bytes) {
      return corrupt("the checkpoint at the head of the staging log has the wrong length");
    }
  }
  contents.used_bytes = at;
  if (contents.next_sequence < contents.checkpoint_end) {
    return corrupt(
        fmt::format("the checkpoint at the head of the staging log ends after {} of {} records: {}",
                    contents.records.size(), header->checkpoint_records, stopped));
  }
  if (later_record_proves_damage(half, at, contents.generation, contents.next_sequence)) {
    return corrupt(fmt::format("record {} of the staging log was durable and is damaged: {}",
                               contents.next_sequence, stopped));
  }
  return contents;
}

}  // namespace

uint64_t LogLayout::half_offset(uint32_t half) const {
  return kHeadBytes + half * half_bytes;
}

Result<LogLayout> LogLayout::of(uint64_t pool_bytes) {
  if (pool_bytes < kMinPoolBytes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a hot tier of {} bytes is too small: it needs at least {}", pool_bytes, kMinPoolBytes));
  }
  LogLayout layout;
  layout.pool_bytes = pool_bytes;
  layout.half_bytes = std::max(kMinHalfBytes, pool_bytes / kHalfShare / kPageBytes * kPageBytes);
  layout.data_offset = kHeadBytes + 2 * layout.half_bytes;
  layout.data_bytes = (pool_bytes - layout.data_offset) / kGranuleBytes * kGranuleBytes;
  return layout;
}

Result<std::optional<LogContents>> read_staging_log(std::span<const std::byte> memory) {
  const auto layout = LogLayout::of(memory.size());
  if (!layout) return fail(layout.error());
  PoolHeader header;
  std::memcpy(&header, memory.data(), sizeof(header));
  const bool blank = all_zero(memory.first(kStartedWord + sizeof(uint64_t)));
  if (blank && !any_half_header(memory, *layout)) return std::optional<LogContents>();
  const bool ours = is_head(header);
  if (ours && (header.version == 0 || header.version > kVersion)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the staging log has format version {}, this program knows versions up to {}",
                            header.version, kVersion));
  }
  const bool same_layout = header.head_bytes == kHeadBytes && header.pool_bytes == layout->pool_bytes &&
                           header.half_bytes == layout->half_bytes &&
                           header.data_offset == layout->data_offset &&
                           header.data_bytes == layout->data_bytes && header.granule_bytes == kGranuleBytes;
  const auto active = read_word(memory, kActiveWord);
  const auto started = read_word(memory, kStartedWord);
  // The active word is the last that formatting stores: without it there is half a formatting, unless there
  // was more.
  const bool first_generation = started && started->value_or(0) <= 1;
  if (!blank && active && !*active && first_generation) return std::optional<LogContents>();
  if (!ours || !same_layout) return fail(corrupt("the head of the hot tier's pool is damaged").error());
  if (!active) return fail(corrupt(active.error().message).error());
  if (!started || !*started) return fail(corrupt("the staging log's state word is damaged").error());

  LogContents contents;
  contents.layout = *layout;
  contents.half = **active % 2;
  contents.generation = **active / 2;
  if (**started < contents.generation) return fail(corrupt("the staging log's state words disagree").error());
  auto read =
      read_half(memory.subspan(layout->half_offset(contents.half), layout->half_bytes), std::move(contents));
  if (!read) return fail(read.error());
  const auto data = memory.subspan(layout->data_offset, layout->data_bytes);
  for (DecodedRecord& record : read->records) {
    auto* table = std::get_if<TableRecord>(&record.record);
    if (table == nullptr) continue;
    if (auto ok = read_part_table(*table, data); !ok) return fail(ok.error());
  }
  return std::optional(std::move(*read));
}

uint64_t first_number_after(const LogContents& contents) {
  return contents.next_sequence + contents.layout.half_bytes / kRecordHeaderBytes;
}

std::string dump_staging_log(std::span<const std::byte> memory) {
  const auto contents = read_staging_log(memory);
  if (!contents) return "error: " + contents.error().message + "\n";
  if (!*contents) return "the pool is not formatted\n";
  const LogContents& log = **contents;
  std::string text = fmt::format(
      "staging log of a pool of {} bytes: half {} generation {}, {} of {} bytes used, data at {} + {}\n",
      log.layout.pool_bytes, log.half, log.generation, log.used_bytes, log.layout.half_bytes,
      log.layout.data_offset, log.layout.data_bytes);
  for (const DecodedRecord& record : log.records) {
    const bool in_checkpoint = record.stamp.sequence < log.checkpoint_end;
    text += fmt::format("{}{} durable {}: {}\n", in_checkpoint ? "checkpoint " : "", record.stamp.sequence,
                        record.stamp.durable, describe(record.record));
  }
  return text;
}

namespace {

PoolHeader head_of(const LogLayout& layout) {
  PoolHeader header{kPoolMagic,
                    kVersion,
                    kHeadBytes,
                    layout.pool_bytes,
                    layout.half_bytes,
                    layout.data_offset,
                    layout.data_bytes,
                    kGranuleBytes,
                    {},
                    0};
  header.crc32c = header_crc(header);
  return header;
}

}  // namespace

Result<> StagingLog::renew_head() {
  std::byte* head = domain_->memory().data();
  const PoolHeader header = head_of(layout_);
  if (std::memcmp(head, &header, sizeof(header)) == 0) return {};
  std::memcpy(head, &header, sizeof(header));
  return domain_->persist(head, sizeof(header));
}

Result<StagingLog> StagingLog::format(PersistDomain& domain) {
  const auto layout = LogLayout::of(domain.memory().size());
  if (!layout) return fail(layout.error());
  std::byte* head = domain.memory().data();
  std::memset(head, 0, kHeadBytes);
  const PoolHeader header = head_of(*layout);
  std::memcpy(head, &header, sizeof(header));
  if (auto ok = domain.persist(head, kHeadBytes); !ok) return fail(ok.error());
  StagingLog log(domain, *layout);
  if (auto ok = log.checkpoint({}); !ok) return fail(ok.error());
  return log;
}

StagingLog::StagingLog(PersistDomain& domain, const LogContents& contents)
    : domain_(&domain),
      layout_(contents.layout),
      half_(contents.half),
      generation_(contents.generation),
      next_sequence_(first_number_after(contents)),
      durable_(next_sequence_ - 1),
      checkpoint_end_(layout_.half_bytes),
      end_(layout_.half_bytes),  // admits nothing before the checkpoint
      persisted_(layout_.half_bytes) {
  const auto started = read_word(domain.memory(), kStartedWord);
  SLUICE_ASSERT(started && *started && **started >= generation_);
  started_ = **started;
}

std::byte* StagingLog::half_memory(uint32_t half) const {
  return domain_->memory().data() + layout_.half_offset(half);
}

bool StagingLog::ever_admits(size_t bytes, Room room) const {
  const uint64_t eighth = layout_.half_bytes / 8;
  if (room == Room::kEnding) return sizeof(HalfHeader) + bytes <= layout_.half_bytes;
  return sizeof(HalfHeader) + 2 * bytes <= (room == Room::kGrowing ? 6 : 7) * eighth;
}

bool StagingLog::admits(size_t bytes, Room room) const {
  const uint64_t eighth = layout_.half_bytes / 8;
  if (room == Room::kEnding) return end_ + bytes <= layout_.half_bytes;
  const uint64_t as_checkpoint = checkpoint_end_ + 2 * (end_ - checkpoint_end_ + bytes);
  return as_checkpoint <= (room == Room::kGrowing ? 6 : 7) * eighth;
}

uint64_t StagingLog::append(const LogRecord& record) {
  encode_record(record, {generation_, next_sequence_, durable_}, scratch_);
  SLUICE_ASSERT(end_ + scratch_.size() <= layout_.half_bytes);
  std::byte* at = half_memory(half_) + end_;
  // The first word, which holds the checksum, goes last: a process that dies in between has appended nothing.
  uint64_t first = 0;
  std::memcpy(&first, scratch_.data(), sizeof(first));
  std::memcpy(at + sizeof(first), scratch_.data() + sizeof(first), scratch_.size() - sizeof(first));
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at)).store(first, std::memory_order_release);
  end_ += scratch_.size();
  return next_sequence_++;
}

Result<> StagingLog::persist() {
  if (persisted_ < end_) {
    if (auto ok = domain_->persist(half_memory(half_) + persisted_, end_ - persisted_); !ok) return ok;
  }
  persisted_ = end_;
  durable_ = next_sequence_ - 1;
  return {};
}

Result<> StagingLog::store_word(size_t offset, uint32_t value) {
  std::byte* at = domain_->memory().data() + offset;
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at))
      .store(word_of(value), std::memory_order_release);
  return domain_->persist(at, sizeof(uint64_t));
}

namespace {

uint64_t checkpoint_bytes(std::span<const LogRecord> live) {
  uint64_t bytes = sizeof(HalfHeader);
  for (const LogRecord& record : live) bytes += encoded_bytes(record);
  return bytes;
}

}  // namespace

bool StagingLog::fits(std::span<const LogRecord> live) const {
  return checkpoint_bytes(live) <= layout_.half_bytes;
}

Result<> StagingLog::checkpoint(std::span<const LogRecord> live) {
  const uint64_t bytes = checkpoint_bytes(live);
  SLUICE_ASSERT(bytes <= layout_.half_bytes);
  SLUICE_ASSERT(started_ < kMaxGeneration);
  if (auto ok = renew_head(); !ok) return ok;
  // A generation is never begun twice, so no record of an attempt that a crash ended can pass for one of this
  // attempt.
  const uint32_t generation = ++started_;
  if (auto ok = store_word(kStartedWord, generation); !ok) return ok;

  const uint32_t half = 1 - half_;
  std::byte* memory = half_memory(half);
  HalfHeader header{kHalfMagic, kHalfVersion, generation, next_sequence_, live.size(), bytes, {}, 0};
  header.crc32c = header_crc(header);
  std::memcpy(memory, &header, sizeof(header));
  uint64_t at = sizeof(header);
  for (const LogRecord& record : live) {
    // Durable says 0: only the flip makes these records count, and it happens when all of them are.
    encode_record(record, {generation, next_sequence_++, 0}, scratch_);
    std::memcpy(memory + at, scratch_.data(), scratch_.size());
    at += scratch_.size();
  }
  SLUICE_ASSERT(at == bytes);
  if (auto ok = domain_->persist(memory, bytes); !ok) return ok;
  if (auto ok = store_word(kActiveWord, generation * 2 + half); !ok) return ok;
  half_ = half;
  generation_ = generation;
  checkpoint_end_ = end_ = persisted_ = bytes;
  durable_ = next_sequence_ - 1;
  return {};
}

}  // namespace sluice::burst_buffer
