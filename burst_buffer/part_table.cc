#include "burst_buffer/part_table.h"

#include <fmt/format.h>

#include "base/checksum.h"

namespace sluice::burst_buffer {
namespace {

// `count` parts of `length`, `gap` bytes apart in the file and one behind the other in the stripe.
struct Run {
  uint64_t begin = 0;
  uint64_t length = 0;
  uint64_t count = 0;
  uint64_t gap = 0;
  uint64_t record = 0;
  uint64_t offset = 0;

  uint64_t end() const { return begin + count * length + (count - 1) * gap; }
};

void put(std::vector<std::byte>& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80));
  out.push_back(static_cast<std::byte>(value));
}

// The difference of two numbers below 2^63; small ones, of either sign, are small.
void put_step(std::vector<std::byte>& out, uint64_t from, uint64_t to) {
  put(out, to >= from ? (to - from) << 1 : ((from - to) << 1) - 1);
}

class TableReader {
 public:
  explicit TableReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t get() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint64_t>(bytes_.front());
      bytes_ = bytes_.subspan(1);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  // At most the largest file's size, or not ok().
  uint64_t get_size() { return check(get()); }
  uint64_t get_from(uint64_t from) {
    const uint64_t step = get();
    return check((step & 1) == 0 ? from + (step >> 1) : from - (step >> 1) - 1);
  }
  bool ok() const { return ok_; }
  bool finished() const { return ok_ && bytes_.empty(); }

 private:
  uint64_t check(uint64_t value) {
    ok_ = ok_ && value <= kMaxFileBytes;
    return value;
  }

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

uint64_t end_of(const StripePart& part) {
  return part.extent.end.value;
}

// The longest run at the front of these.
Run first_run(std::span<const StripePart> parts) {
  const StripePart& first = parts.front();
  Run run{first.extent.begin.value, first.extent.length().value, 1, 0, first.record, first.stripe_offset};
  for (; run.count < parts.size(); ++run.count) {
    const StripePart& next = parts[run.count];
    const uint64_t end = end_of(parts[run.count - 1]);
    const bool goes_on = next.extent.begin.value >= end && next.extent.length().value == run.length &&
                         next.record == run.record &&
                         next.stripe_offset == run.offset + run.count * run.length;
    if (!goes_on) break;
    const uint64_t gap = next.extent.begin.value - end;
    if (run.count == 1) run.gap = gap;
    if (gap != run.gap) break;
  }
  return run;
}

// Appends the parts of a hostile run; false when it is none.
bool append(const Run& run, StripeId stripe, size_t most, std::vector<StripePart>& parts) {
  if (run.length == 0 || run.count == 0 || run.count > most - parts.size()) return false;
  uint64_t begin = run.begin;
  uint64_t offset = run.offset;
  for (uint64_t i = 0; i < run.count; ++i) {
    if (begin > kMaxFileBytes || run.length > kMaxFileBytes - begin || offset > kMaxFileBytes) return false;
    parts.push_back({Extent::at(Offset(begin), Length(run.length)), run.record, stripe, offset});
    begin += run.length + run.gap;
    offset += run.length;
  }
  return true;
}

Result<> corrupt(const TableRecord& record) {
  Error error(
      ErrorCode::kCorrupt,
      fmt::format("the table of the parts of stripe {} in the hot tier is damaged", record.stripe.value));
  return fail(error.mark_data_loss());
}

}  // namespace

std::vector<std::byte> encode_part_table(std::span<const StripePart> parts) {
  std::vector<std::byte> out;
  uint64_t end = 0;
  uint64_t record = 0;
  uint64_t offset = 0;
  while (!parts.empty()) {
    const Run run = first_run(parts);
    put_step(out, end, run.begin);
    put(out, run.length);
    put(out, run.count);
    if (run.count > 1) put(out, run.gap);
    put_step(out, record, run.record);
    put_step(out, offset, run.offset);
    end = run.end();
    record = run.record;
    offset = run.offset + run.count * run.length;
    parts = parts.subspan(run.count);
  }
  return out;
}

Result<> read_part_table(TableRecord& record, std::span<const std::byte> data) {
  const Slab& slab = record.slab;
  if (slab.offset > data.size() || slab.length.value > data.size() - slab.offset) return corrupt(record);
  const auto bytes = data.subspan(slab.offset, slab.length.value);
  if (crc32c(bytes) != record.crc32c || record.count > kMaxTableParts) return corrupt(record);
  TableReader in(bytes);
  std::vector<StripePart> parts;
  parts.reserve(record.count);
  Run run;
  uint64_t end = 0;
  while (in.ok() && parts.size() < record.count) {
    run.begin = in.get_from(end);
    run.length = in.get_size();
    run.count = in.get();
    run.gap = run.count > 1 ? in.get_size() : 0;
    run.record = in.get_from(run.record);
    run.offset = in.get_from(run.offset);
    if (!in.ok() || !append(run, record.stripe, record.count, parts)) return corrupt(record);
    end = end_of(parts.back());
    run.offset = parts.back().stripe_offset + run.length;
  }
  if (!in.finished()) return corrupt(record);
  record.parts = std::move(parts);
  return {};
}

}  // namespace sluice::burst_buffer
