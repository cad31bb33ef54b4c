// The memory of a hot tier's pool may hold anything: opening it must end in an error or in a tier that works.
// The input is taken as the records of a log half in an otherwise good pool: once as it is, and once with
// each record's length, checksum, generation and sequence put right, which lets the deeper layers be reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "burst_buffer/hot_recovery.h"
#include "burst_buffer/hot_tier.h"
#include "burst_buffer/staging_log.h"

namespace {

using namespace sluice;
using namespace sluice::burst_buffer;

class PlainDomain final : public PersistDomain {
 public:
  PlainDomain(size_t bytes, bool existed) : memory_(bytes), existed_(existed) {}
  std::span<std::byte> memory() override { return memory_; }
  bool existed() const override { return existed_; }
  Result<> persist(const void*, size_t) override { return {}; }
  std::string medium() const override { return "plain memory"; }
  std::string survives() const override { return "nothing"; }

 private:
  std::vector<std::byte> memory_;
  bool existed_;
};

constexpr size_t kHalfHeaderBytes = 64;

// A formatted pool and where the records of its active half begin.
const std::vector<std::byte>& formatted() {
  static const std::vector<std::byte> memory = [] {
    PlainDomain domain(kMinPoolBytes, false);
    if (!StagingLog::format(domain)) std::abort();
    return std::vector<std::byte>(domain.memory().begin(), domain.memory().end());
  }();
  return memory;
}

// Walks over what claims to be records.
void seal(std::span<std::byte> log) {
  size_t at = 0;
  for (uint64_t sequence = 1; at + kRecordHeaderBytes <= log.size(); ++sequence) {
    uint32_t length = 0;
    std::memcpy(&length, log.data() + at + 4, sizeof length);
    length = static_cast<uint32_t>(std::min<size_t>(length, log.size() - at) / kRecordAlignBytes *
                                   kRecordAlignBytes);
    if (length < kRecordHeaderBytes) return;
    const uint16_t magic = 0x51CE;
    const uint32_t generation = 1;
    std::memcpy(log.data() + at + 4, &length, sizeof length);
    std::memcpy(log.data() + at + 10, &magic, sizeof magic);
    std::memcpy(log.data() + at + 12, &generation, sizeof generation);
    std::memcpy(log.data() + at + 16, &sequence, sizeof sequence);
    const uint32_t crc = crc32c(log.subspan(at + 4, length - 4));
    std::memcpy(log.data() + at, &crc, sizeof crc);
    at += length;
  }
}

// Everything that can be asked of a tier.
void use(HotTier& hot) {
  for (const auto& open : hot.open_transactions()) {
    auto view = hot.view(open.container, open.txn, {Offset(0), Offset(kMaxFileBytes)});
    if (!view) std::abort();
    uint64_t sum = 0;
    for (const Segment& segment : view->segments) {
      if (segment.kind == Segment::Kind::kBytes) sum += std::to_integer<uint64_t>(segment.bytes.back());
    }
    if (sum == UINT64_MAX) std::abort();
    (void)hot.commit(open.txn);  // may find the log full
  }
  for (const ContainerId container : hot.undrained()) {
    const DrainWork work = hot.drain_work(container, true);
    for (const auto& piece : work.pieces) (void)hot.verify(piece);
    if (!hot.drained(container, work.to)) (void)hot.forget(container);
  }
  (void)hot.usage();
}

void feed(std::span<const std::byte> records, bool sealed) {
  auto domain = std::make_shared<PlainDomain>(kMinPoolBytes, true);
  const auto memory = domain->memory();
  std::memcpy(memory.data(), formatted().data(), memory.size());
  const LogLayout layout = *LogLayout::of(memory.size());
  const auto half =
      memory.subspan(layout.half_offset(0) + kHalfHeaderBytes, layout.half_bytes - kHalfHeaderBytes);
  const size_t bytes = std::min(records.size(), half.size());
  std::copy_n(records.begin(), bytes, half.begin());
  if (sealed) seal(half.first(bytes));
  (void)dump_staging_log(memory);
  const bool good = check_pool(memory).has_value();
  auto hot = HotTier::open({"fuzz.pool", memory.size(), {}}, domain);
  if (hot && !good) std::abort();
  if (hot) use(**hot);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  feed(bytes, false);
  feed(bytes, true);
  return 0;
}
