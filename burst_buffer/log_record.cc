#include "burst_buffer/log_record.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "base/assert.h"
#include "base/checksum.h"

namespace sluice::burst_buffer {
namespace {

static_assert(std::endian::native == std::endian::little, "the staging log is little-endian on the medium");

enum class Type : uint16_t {
  kBegin = 1,
  kWrite = 2,
  kTruncate = 3,
  kCommit = 4,
  kAbort = 5,
  kPlaced = 6,
  kDrained = 7,
  kForget = 8,
  kContainer = 9,
  kStripe = 10,
  kLost = 11,
  kTable = 12,
};

constexpr uint16_t kRecordMagic = 0x51CE;
constexpr uint64_t kNone = UINT64_MAX;
constexpr uint32_t kRemembered = 1;
constexpr uint32_t kInCheckpoint = 1;

struct HeaderFormat {
  uint32_t crc32c;  // of the bytes [4, length)
  uint32_t length;  // of the whole record
  uint16_t type;
  uint16_t magic;
  uint32_t generation;
  uint64_t sequence;
  uint64_t durable;
};
static_assert(sizeof(HeaderFormat) == kRecordHeaderBytes);

struct BeginFormat {
  uint64_t txn, container, session, last_record, cut, floor;
};
static_assert(sizeof(BeginFormat) == 48);

struct WriteFormat {
  uint64_t txn, container, epoch, record, slab_offset, slab_length;
  uint32_t checksums, parts;  // counts; the checksums follow, padded to 8 bytes, then the parts
};
static_assert(sizeof(WriteFormat) == 56);

struct SlabPartFormat {
  uint64_t begin, end, offset;
};
static_assert(sizeof(SlabPartFormat) == 24);

struct TruncateFormat {
  uint64_t txn, record, size;
};
static_assert(sizeof(TruncateFormat) == 24);

struct CommitFormat {
  uint64_t txn, container, epoch, size;
  uint32_t flags, reserved;
};
static_assert(sizeof(CommitFormat) == 40);

struct NumberFormat {
  uint64_t number;
};
static_assert(sizeof(NumberFormat) == 8);

// Both followed by `parts` stripe parts.
struct PlacedFormat {
  uint64_t container, txn;
  uint32_t parts, reserved;
};
static_assert(sizeof(PlacedFormat) == 24);

struct StripeFormat {
  uint64_t container, txn, epoch;
  uint32_t parts, reserved;
};
static_assert(sizeof(StripeFormat) == 32);

struct StripePartFormat {
  uint64_t begin, end, record, stripe, stripe_offset;
};
static_assert(sizeof(StripePartFormat) == 40);

struct DrainedFormat {
  uint64_t container, epoch, size;
};
static_assert(sizeof(DrainedFormat) == 24);

struct ContainerFormat {
  uint64_t container, published_epoch, published_size, committed_epoch, floor;
  uint32_t cuts, reserved;
};
static_assert(sizeof(ContainerFormat) == 48);

struct CutFormat {
  uint64_t epoch, cut;
};
static_assert(sizeof(CutFormat) == 16);

struct LostFormat {
  uint64_t first, end;
};
static_assert(sizeof(LostFormat) == 16);

struct TableFormat {
  uint64_t container, txn, epoch, stripe, cut, slab_offset, slab_length;
  uint32_t crc32c, parts, flags, reserved;
};
static_assert(sizeof(TableFormat) == 72);

constexpr size_t padded(size_t bytes) {
  return (bytes + kRecordAlignBytes - 1) / kRecordAlignBytes * kRecordAlignBytes;
}

template <class S>
uint64_t or_none(const std::optional<S>& strong) {
  return strong ? strong->value : kNone;
}

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  template <class F>
  void put(const F& format) {
    static_assert(std::has_unique_object_representations_v<F>, "no unnamed padding on the medium");
    const size_t at = out_.size();
    out_.resize(at + sizeof(F));
    std::memcpy(out_.data() + at, &format, sizeof(F));
  }
  void put_parts(const std::vector<StripePart>& parts) {
    for (const StripePart& p : parts) {
      put(StripePartFormat{p.extent.begin.value, p.extent.end.value, p.record, p.stripe.value,
                           p.stripe_offset});
    }
  }
  void pad() { out_.resize(padded(out_.size())); }

  Type operator()(const BeginRecord& r) {
    put(BeginFormat{r.txn.value, r.container.value, r.session.value, r.last_record, or_none(r.cut),
                    r.floor.value});
    return Type::kBegin;
  }
  Type operator()(const WriteRecord& r) {
    put(WriteFormat{r.txn.value, r.container.value, r.epoch.value, r.record, r.slab.offset,
                    r.slab.length.value, static_cast<uint32_t>(r.checksums.size()),
                    static_cast<uint32_t>(r.parts.size())});
    for (const uint32_t sum : r.checksums) put(sum);
    pad();
    for (const SlabPart& p : r.parts) put(SlabPartFormat{p.extent.begin.value, p.extent.end.value, p.offset});
    return Type::kWrite;
  }
  Type operator()(const TruncateRecord& r) {
    put(TruncateFormat{r.txn.value, r.record, r.size.value});
    return Type::kTruncate;
  }
  Type operator()(const CommitRecord& r) {
    put(CommitFormat{r.txn.value, r.container.value, r.epoch.value, r.size.value,
                     r.remembered ? kRemembered : 0, 0});
    return Type::kCommit;
  }
  Type operator()(const AbortRecord& r) {
    put(NumberFormat{r.txn.value});
    return Type::kAbort;
  }
  Type operator()(const PlacedRecord& r) {
    put(PlacedFormat{r.container.value, or_none(r.txn), static_cast<uint32_t>(r.parts.size()), 0});
    put_parts(r.parts);
    return Type::kPlaced;
  }
  Type operator()(const DrainedRecord& r) {
    put(DrainedFormat{r.container.value, r.published.epoch.value, r.published.size.value});
    return Type::kDrained;
  }
  Type operator()(const ForgetRecord& r) {
    put(NumberFormat{r.container.value});
    return Type::kForget;
  }
  Type operator()(const ContainerRecord& r) {
    put(ContainerFormat{r.container.value, r.published.epoch.value, r.published.size.value, r.committed.value,
                        r.floor.value, static_cast<uint32_t>(r.cuts.size()), 0});
    for (const auto& [epoch, cut] : r.cuts) put(CutFormat{epoch.value, cut.value});
    return Type::kContainer;
  }
  Type operator()(const StripeRecord& r) {
    put(StripeFormat{r.container.value, or_none(r.txn), r.epoch.value, static_cast<uint32_t>(r.parts.size()),
                     0});
    put_parts(r.parts);
    return Type::kStripe;
  }
  Type operator()(const LostRecord& r) {
    put(LostFormat{r.first, r.end});
    return Type::kLost;
  }
  Type operator()(const TableRecord& r) {
    put(TableFormat{r.container.value, or_none(r.txn), r.epoch.value, r.stripe.value, or_none(r.cut),
                    r.slab.offset, r.slab.length.value, r.crc32c, r.count,
                    r.in_checkpoint ? kInCheckpoint : 0, 0});
    return Type::kTable;
  }

 private:
  std::vector<std::byte>& out_;
};

Result<LogRecord> malformed(const char* why) {
  return fail(ErrorCode::kCorrupt, std::string("a staging log record is malformed: ") + why);
}

// Reads formats from the front of a payload. After the first that does not fit, ok() is false and values are
// zero.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class F>
  F get() {
    F format{};
    if (bytes_.size() < sizeof(F)) {
      ok_ = false;
      return format;
    }
    std::memcpy(&format, bytes_.data(), sizeof(F));
    bytes_ = bytes_.subspan(sizeof(F));
    return format;
  }
  void skip_zeros(size_t count) {
    for (size_t i = 0; i < count; ++i) ok_ = get<std::byte>() == std::byte{0} && ok_;
  }
  size_t left() const { return bytes_.size(); }
  bool finished() const { return ok_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

constexpr Extent extent_of(uint64_t begin, uint64_t end) {
  return {Offset(begin), Offset(end)};
}
constexpr bool is_size(uint64_t value) {
  return value <= kMaxFileBytes;
}
// Epochs and record numbers, too, leave room to count on.
constexpr bool is_count(uint64_t value) {
  return value <= kMaxFileBytes;
}

Result<LogRecord> read_begin(Reader& in) {
  const auto f = in.get<BeginFormat>();
  if (!in.finished()) return malformed("length");
  if ((f.cut != kNone && !is_size(f.cut)) || !is_size(f.floor)) return malformed("size");
  if (f.txn == kNone || !is_count(f.last_record)) return malformed("number");
  BeginRecord record{TxnId(f.txn), ContainerId(f.container), SessionId(f.session), f.last_record,
                     {},           Length(f.floor)};
  if (f.cut != kNone) record.cut = Length(f.cut);
  return LogRecord(record);
}

Result<LogRecord> read_write(Reader& in) {
  const auto f = in.get<WriteFormat>();
  if (!is_count(f.epoch) || !is_count(f.record)) return malformed("number");
  if (f.slab_length == 0 || !is_size(f.slab_length) || !is_size(f.slab_offset)) return malformed("slab");
  if (f.checksums != (f.slab_length + kChecksumBlockBytes - 1) / kChecksumBlockBytes)
    return malformed("checksums");
  if (in.left() / sizeof(uint32_t) < f.checksums) return malformed("length");
  WriteRecord record{TxnId(f.txn),
                     ContainerId(f.container),
                     Epoch(f.epoch),
                     f.record,
                     Slab{f.slab_offset, Length(f.slab_length)},
                     {},
                     {}};
  record.checksums.reserve(f.checksums);
  for (uint32_t i = 0; i < f.checksums; ++i) record.checksums.push_back(in.get<uint32_t>());
  in.skip_zeros(padded(f.checksums * sizeof(uint32_t)) - f.checksums * sizeof(uint32_t));
  if (in.left() / sizeof(SlabPartFormat) < f.parts || f.parts == 0) return malformed("parts");
  record.parts.reserve(f.parts);
  for (uint32_t i = 0; i < f.parts; ++i) {
    const auto p = in.get<SlabPartFormat>();
    const Extent extent = extent_of(p.begin, p.end);
    if (!extent.valid() || extent.empty()) return malformed("part");
    if (p.offset > f.slab_length || extent.length().value > f.slab_length - p.offset)
      return malformed("part");
    record.parts.push_back({extent, p.offset});
  }
  if (!in.finished()) return malformed("length");
  return LogRecord(std::move(record));
}

Result<LogRecord> read_truncate(Reader& in) {
  const auto f = in.get<TruncateFormat>();
  if (!in.finished()) return malformed("length");
  if (!is_size(f.size) || !is_count(f.record)) return malformed("size or number");
  return LogRecord(TruncateRecord{TxnId(f.txn), f.record, Length(f.size)});
}

Result<LogRecord> read_commit(Reader& in) {
  const auto f = in.get<CommitFormat>();
  if (!in.finished()) return malformed("length");
  if (!is_size(f.size) || !is_count(f.epoch) || f.flags > kRemembered)
    return malformed("size, epoch or flags");
  return LogRecord(CommitRecord{TxnId(f.txn), ContainerId(f.container), Epoch(f.epoch), Length(f.size),
                                (f.flags & kRemembered) != 0});
}

// False when the payload does not hold exactly `count` well-formed parts.
bool read_parts(Reader& in, uint32_t count, std::vector<StripePart>& parts) {
  if (in.left() / sizeof(StripePartFormat) != count) return false;
  parts.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const auto p = in.get<StripePartFormat>();
    parts.push_back({extent_of(p.begin, p.end), p.record, StripeId(p.stripe), p.stripe_offset});
    if (!parts.back().extent.valid() || parts.back().extent.empty()) return false;
    if (!is_size(p.stripe_offset) || !is_count(p.record)) return false;
  }
  return in.finished();
}

std::optional<TxnId> txn_of(uint64_t value) {
  return value == kNone ? std::nullopt : std::optional(TxnId(value));
}

Result<LogRecord> read_placed(Reader& in) {
  const auto f = in.get<PlacedFormat>();
  PlacedRecord record{ContainerId(f.container), txn_of(f.txn), {}};
  if (!read_parts(in, f.parts, record.parts)) return malformed("parts");
  return LogRecord(std::move(record));
}

Result<LogRecord> read_drained(Reader& in) {
  const auto f = in.get<DrainedFormat>();
  if (!in.finished()) return malformed("length");
  if (!is_size(f.size) || !is_count(f.epoch)) return malformed("size or epoch");
  return LogRecord(DrainedRecord{ContainerId(f.container), {Epoch(f.epoch), Length(f.size)}});
}

Result<LogRecord> read_container(Reader& in) {
  const auto f = in.get<ContainerFormat>();
  if (!is_size(f.published_size) || !is_size(f.floor)) return malformed("size");
  if (f.committed_epoch < f.published_epoch || !is_count(f.committed_epoch)) return malformed("epochs");
  if (in.left() / sizeof(CutFormat) < f.cuts) return malformed("length");
  ContainerRecord record{ContainerId(f.container),
                         {Epoch(f.published_epoch), Length(f.published_size)},
                         Epoch(f.committed_epoch),
                         Length(f.floor),
                         {}};
  record.cuts.reserve(f.cuts);
  for (uint32_t i = 0; i < f.cuts; ++i) {
    const auto c = in.get<CutFormat>();
    const std::pair cut{Epoch(c.epoch), Length(c.cut)};
    const bool grows = record.cuts.empty() ||
                       (record.cuts.back().first < cut.first && record.cuts.back().second < cut.second);
    if (!is_size(c.cut) || !grows) return malformed("cuts");
    record.cuts.push_back(cut);
  }
  if (!in.finished()) return malformed("length");
  return LogRecord(std::move(record));
}

Result<LogRecord> read_stripe(Reader& in) {
  const auto f = in.get<StripeFormat>();
  StripeRecord record{ContainerId(f.container), txn_of(f.txn), Epoch(f.epoch), {}};
  if (!read_parts(in, f.parts, record.parts)) return malformed("parts");
  return LogRecord(std::move(record));
}

Result<LogRecord> read_lost(Reader& in) {
  const auto f = in.get<LostFormat>();
  if (!in.finished()) return malformed("length");
  if (f.first >= f.end || !is_count(f.end)) return malformed("numbers");
  return LogRecord(LostRecord{f.first, f.end});
}

Result<LogRecord> read_table(Reader& in) {
  const auto f = in.get<TableFormat>();
  if (!in.finished()) return malformed("length");
  if (!is_count(f.epoch) || f.flags > kInCheckpoint || (f.cut != kNone && !is_size(f.cut)))
    return malformed("epoch, flags or cut");
  if (f.slab_length == 0 || !is_size(f.slab_length) || !is_size(f.slab_offset) || f.parts == 0)
    return malformed("table");
  TableRecord record{ContainerId(f.container),
                     txn_of(f.txn),
                     Epoch(f.epoch),
                     StripeId(f.stripe),
                     Slab{f.slab_offset, Length(f.slab_length)},
                     f.crc32c,
                     f.parts,
                     (f.flags & kInCheckpoint) != 0,
                     {},
                     {}};
  if (f.cut != kNone) record.cut = Length(f.cut);
  return LogRecord(std::move(record));
}

Result<LogRecord> read_payload(Type type, Reader in) {
  switch (type) {
    case Type::kBegin:
      return read_begin(in);
    case Type::kWrite:
      return read_write(in);
    case Type::kTruncate:
      return read_truncate(in);
    case Type::kCommit:
      return read_commit(in);
    case Type::kPlaced:
      return read_placed(in);
    case Type::kDrained:
      return read_drained(in);
    case Type::kContainer:
      return read_container(in);
    case Type::kStripe:
      return read_stripe(in);
    case Type::kLost:
      return read_lost(in);
    case Type::kTable:
      return read_table(in);
    case Type::kAbort:
    case Type::kForget: {
      const auto f = in.get<NumberFormat>();
      if (!in.finished()) return malformed("length");
      if (type == Type::kAbort) return LogRecord(AbortRecord{TxnId(f.number)});
      return LogRecord(ForgetRecord{ContainerId(f.number)});
    }
  }
  return malformed("type");
}

struct Sizer {
  size_t operator()(const BeginRecord&) const { return sizeof(BeginFormat); }
  size_t operator()(const WriteRecord& r) const {
    return sizeof(WriteFormat) + padded(r.checksums.size() * sizeof(uint32_t)) +
           r.parts.size() * sizeof(SlabPartFormat);
  }
  size_t operator()(const TruncateRecord&) const { return sizeof(TruncateFormat); }
  size_t operator()(const CommitRecord&) const { return sizeof(CommitFormat); }
  size_t operator()(const AbortRecord&) const { return sizeof(NumberFormat); }
  size_t operator()(const PlacedRecord& r) const {
    return sizeof(PlacedFormat) + r.parts.size() * sizeof(StripePartFormat);
  }
  size_t operator()(const DrainedRecord&) const { return sizeof(DrainedFormat); }
  size_t operator()(const ForgetRecord&) const { return sizeof(NumberFormat); }
  size_t operator()(const ContainerRecord& r) const {
    return sizeof(ContainerFormat) + r.cuts.size() * sizeof(CutFormat);
  }
  size_t operator()(const LostRecord&) const { return sizeof(LostFormat); }
  size_t operator()(const TableRecord&) const { return sizeof(TableFormat); }
  size_t operator()(const StripeRecord& r) const {
    return sizeof(StripeFormat) + r.parts.size() * sizeof(StripePartFormat);
  }
};

std::string text(const Extent& extent) {
  return fmt::format("[{}, {})", extent.begin.value, extent.end.value);
}

struct Describer {
  std::string operator()(const BeginRecord& r) const {
    auto line =
        fmt::format("begin txn {} container {} session {}", r.txn.value, r.container.value, r.session.value);
    if (r.last_record != 0) line += fmt::format(" last record {} floor {}", r.last_record, r.floor.value);
    if (r.cut) line += fmt::format(" cut {}", r.cut->value);
    return line;
  }
  std::string operator()(const WriteRecord& r) const {
    auto line = fmt::format("write txn {} container {} epoch {} record {} slab {}+{}", r.txn.value,
                            r.container.value, r.epoch.value, r.record, r.slab.offset, r.slab.length.value);
    for (const SlabPart& p : r.parts) line += fmt::format(" {} at +{}", text(p.extent), p.offset);
    line += " crc";
    for (const uint32_t sum : r.checksums) line += fmt::format(" {:08x}", sum);
    return line;
  }
  std::string operator()(const TruncateRecord& r) const {
    return fmt::format("truncate txn {} record {} size {}", r.txn.value, r.record, r.size.value);
  }
  std::string operator()(const CommitRecord& r) const {
    return fmt::format("{} txn {} container {} epoch {} size {}", r.remembered ? "committed" : "commit",
                       r.txn.value, r.container.value, r.epoch.value, r.size.value);
  }
  std::string operator()(const AbortRecord& r) const { return fmt::format("abort txn {}", r.txn.value); }
  std::string operator()(const PlacedRecord& r) const {
    return fmt::format("placed container {}{}", r.container.value, owner(r.txn)) + list(r.parts);
  }
  std::string operator()(const DrainedRecord& r) const {
    return fmt::format("drained container {} epoch {} size {}", r.container.value, r.published.epoch.value,
                       r.published.size.value);
  }
  std::string operator()(const ForgetRecord& r) const {
    return fmt::format("forget container {}", r.container.value);
  }
  std::string operator()(const ContainerRecord& r) const {
    auto line =
        fmt::format("container {} published {} size {} committed {} floor {}", r.container.value,
                    r.published.epoch.value, r.published.size.value, r.committed.value, r.floor.value);
    for (const auto& [epoch, cut] : r.cuts)
      line += fmt::format(" cut {} at epoch {}", cut.value, epoch.value);
    return line;
  }
  std::string operator()(const LostRecord& r) const {
    return fmt::format("lost numbers [{}, {})", r.first, r.end);
  }
  std::string operator()(const TableRecord& r) const {
    auto line = fmt::format("{}table container {}{} epoch {} stripe {} parts {} in slab {}+{} crc {:08x}",
                            r.in_checkpoint ? "" : "placed ", r.container.value, owner(r.txn), r.epoch.value,
                            r.stripe.value, r.count, r.slab.offset, r.slab.length.value, r.crc32c);
    if (r.cut) line += fmt::format(" cut {}", r.cut->value);
    return line;
  }
  std::string operator()(const StripeRecord& r) const {
    return fmt::format("stripe parts container {}{} epoch {}", r.container.value, owner(r.txn),
                       r.epoch.value) +
           list(r.parts);
  }

 private:
  static std::string owner(std::optional<TxnId> txn) { return txn ? fmt::format(" txn {}", txn->value) : ""; }
  static std::string list(const std::vector<StripePart>& parts) {
    std::string all;
    for (const StripePart& p : parts) {
      all += fmt::format(" {} of record {} in stripe {}+{}", text(p.extent), p.record, p.stripe.value,
                         p.stripe_offset);
    }
    return all;
  }
};

}  // namespace

size_t encoded_bytes(const LogRecord& record) {
  return kRecordHeaderBytes + std::visit(Sizer{}, record);
}

void encode_record(const LogRecord& record, const RecordStamp& stamp, std::vector<std::byte>& out) {
  out.clear();
  out.resize(kRecordHeaderBytes);
  const Type type = std::visit(Writer(out), record);
  SLUICE_ASSERT(out.size() == encoded_bytes(record) && out.size() % kRecordAlignBytes == 0);
  SLUICE_ASSERT(out.size() <= UINT32_MAX);
  HeaderFormat header{0,
                      static_cast<uint32_t>(out.size()),
                      static_cast<uint16_t>(type),
                      kRecordMagic,
                      stamp.generation,
                      stamp.sequence,
                      stamp.durable};
  std::memcpy(out.data(), &header, sizeof(header));
  header.crc32c = crc32c(std::span(out).subspan(sizeof(uint32_t)));
  std::memcpy(out.data(), &header.crc32c, sizeof(header.crc32c));
}

Result<DecodedRecord> decode_record(std::span<const std::byte> bytes) {
  HeaderFormat header;
  if (bytes.size() < sizeof(header)) return fail(ErrorCode::kCorrupt, "no staging log record fits here");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kRecordMagic || header.length < sizeof(header) || header.length > bytes.size() ||
      header.length % kRecordAlignBytes != 0) {
    return fail(ErrorCode::kCorrupt, "there is no staging log record here");
  }
  const auto whole = bytes.first(header.length);
  if (crc32c(whole.subspan(sizeof(uint32_t))) != header.crc32c) {
    return fail(ErrorCode::kCorrupt, "the checksum of a staging log record does not match");
  }
  auto record = read_payload(static_cast<Type>(header.type), Reader(whole.subspan(sizeof(header))));
  if (!record) return fail(record.error());
  return DecodedRecord{
      std::move(*record), {header.generation, header.sequence, header.durable}, header.length};
}

std::string describe(const LogRecord& record) {
  return std::visit(Describer{}, record);
}

}  // namespace sluice::burst_buffer
