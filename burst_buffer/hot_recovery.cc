#include "burst_buffer/hot_recovery.h"

#include <map>
#include <optional>
#include <set>

#include "base/checksum.h"

namespace sluice::burst_buffer {
namespace {

using Cuts = std::map<TxnId, uint64_t>;

Result<std::unique_ptr<HotState>> replay(const LogContents& contents, const Cuts& cuts) {
  auto state = std::make_unique<HotState>(contents.layout.data_bytes);
  for (const auto& [txn, record] : cuts) state->cut_off(txn, record);
  for (const DecodedRecord& record : contents.records) {
    if (auto ok = state->apply(record.record); !ok) {
      Error error = ok.error();
      return fail(error.mark_data_loss());
    }
    state->retired().holds.clear();
  }
  return state;
}

// The first record of each open transaction whose seen bytes are not what was written. Remembers what was
// found good.
Cuts damaged(const HotState& state, std::span<const std::byte> data, uint64_t checkpoint_end,
             std::set<uint64_t>& good) {
  Cuts found;
  for (const auto& [id, txn] : state.txns()) {
    const StageLayer& layer = state.container(txn.container)->index.layer(id);
    std::optional<uint64_t> first;
    layer.pieces.for_each([&](Extent, const StagedPiece& piece) {
      if (piece.place.tier != StagedPlace::Tier::kHot || piece.place.record < checkpoint_end) return;
      if (good.contains(piece.place.record) || (first && *first <= piece.place.record)) return;
      const auto& keeper = *static_cast<const Keeper*>(piece.keep.get());
      const auto& hold = static_cast<const SlabHold&>(*keeper.hold());
      if (checksums_match(data.subspan(hold.slab.offset, hold.slab.length.value), hold.checksums)) {
        good.insert(hold.record);
      } else {
        first = hold.record;
      }
    });
    if (first) found.emplace(id, *first);
  }
  return found;
}

}  // namespace

Result<std::unique_ptr<HotState>> recover_state(std::span<const std::byte> memory,
                                                const LogContents& contents) {
  const auto data = memory.subspan(contents.layout.data_offset, contents.layout.data_bytes);
  Cuts cuts;
  std::set<uint64_t> good;
  // Cutting a record off may bring an older one back to light, which has to be checked then. Each round
  // lowers a cut.
  while (true) {
    auto state = replay(contents, cuts);
    if (!state) return state;
    const Cuts more = damaged(**state, data, contents.checkpoint_end, good);
    if (more.empty()) return state;
    for (const auto& [txn, record] : more) cuts[txn] = record;
  }
}

Result<> check_pool(std::span<const std::byte> memory) {
  const auto contents = read_staging_log(memory);
  if (!contents) return fail(contents.error());
  if (!*contents) return {};
  const auto state = recover_state(memory, **contents);
  if (!state) return fail(state.error());
  SlabAllocator slabs((*contents)->layout.data_bytes);
  for (const LogRecord& record : (*state)->live_records()) {
    const auto* write = std::get_if<WriteRecord>(&record);
    const auto* table = std::get_if<TableRecord>(&record);
    if ((write != nullptr && !slabs.take(write->slab)) || (table != nullptr && !slabs.take(table->slab))) {
      return fail(ErrorCode::kCorrupt, "two records of the staging log name the same slab");
    }
  }
  return {};
}

}  // namespace sluice::burst_buffer
