#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "burst_buffer/hot_recovery.h"
#include "burst_buffer/part_table.h"
#include "burst_buffer/pmem/pmem_domain.h"
#include "burst_buffer/staged_hot_tier.h"

namespace sluice::burst_buffer {
namespace {

// What the storage tier has published since the log was last told.
Result<> catch_up(HotState& state, const HotTier::Options& options) {
  if (!options.published) return {};
  std::vector<std::pair<ContainerId, Epoch>> known;
  for (const auto& [id, c] : state.containers()) known.emplace_back(id, c.published.epoch);
  for (const auto& [id, epoch] : known) {
    const auto answer = options.published(id);
    if (!answer) return fail(answer.error());
    const std::optional<CommitInfo>& told = *answer;
    if (!told) {
      log::warn("hot tier {}: container {} no longer exists, its staged bytes are dropped", options.path,
                id.value);
      if (auto ok = state.apply(ForgetRecord{id}); !ok) return ok;
    } else if (epoch < told->epoch) {
      if (auto ok = state.apply(DrainedRecord{id, *told}); !ok) return ok;
    }
    state.retired().holds.clear();
  }
  return {};
}

// Bytes of open transactions may have survived the crash of a process only; the checkpoint will call them
// durable.
Result<> persist_open_slabs(std::span<const LogRecord> live, const SlabPool& pool, PersistDomain& domain) {
  std::vector<std::span<const std::byte>> ranges;
  for (const LogRecord& record : live) {
    const auto* write = std::get_if<WriteRecord>(&record);
    if (write != nullptr && write->epoch == Epoch(0)) ranges.push_back(pool.bytes(write->slab));
  }
  if (ranges.empty()) return {};
  return domain.persist_all(std::move(ranges));
}

}  // namespace

Result<std::unique_ptr<HotTier>> HotTier::open(Options options, std::shared_ptr<PersistDomain> domain) {
  const std::string object = fmt::format("cannot open the hot tier {}", options.path);
  if (!domain) {
    auto opened = open_pmem_domain(options.path, options.size_bytes);
    if (!opened) return fail(opened.error());
    domain = std::move(*opened);
  }
  std::optional<LogContents> contents;
  if (domain->existed()) {
    auto read = read_staging_log(domain->memory());
    if (!read) return fail_with_context(object, read.error());
    contents = std::move(*read);
  }
  std::vector<LogRecord> live;
  uint64_t last_record = 0;
  if (contents) {
    auto replayed = recover_state(domain->memory(), *contents);
    if (!replayed) return fail_with_context(object, replayed.error());
    if (auto ok = catch_up(**replayed, options); !ok) return fail_with_context(object, ok.error());
    last_record = contents->next_sequence - 1;
    for (const auto& [txn, lost] : (*replayed)->cut_off()) last_record = std::min(last_record, lost - 1);
    const LostRecord lost{last_record + 1, first_number_after(*contents)};
    if (auto ok = (*replayed)->apply(lost); !ok) return fail_with_context(object, ok.error());
    live = (*replayed)->live_records();
    const auto data = domain->memory().subspan(contents->layout.data_offset, contents->layout.data_bytes);
    for (LogRecord& record : live) {
      auto* table = std::get_if<TableRecord>(&record);
      if (table == nullptr) continue;
      if (auto ok = read_part_table(*table, data); !ok) return fail_with_context(object, ok.error());
    }
  }
  auto log = contents ? Result<StagingLog>(StagingLog(*domain, *contents)) : StagingLog::format(*domain);
  if (!log) return fail_with_context(object, log.error());
  const LogLayout& layout = log->layout();
  auto pool = std::make_shared<SlabPool>(domain, layout.data_offset, layout.data_bytes);
  auto state = std::make_unique<HotState>(layout.data_bytes, pool);
  for (const LogRecord& record : live) {
    if (auto ok = state->apply(record); !ok) return fail_with_context(object, ok.error());
  }
  state->loaded();
  if (contents) {
    if (!log->fits(live)) {
      return fail(ErrorCode::kInternal, object + ": what its log says does not fit in one half of the log");
    }
    if (auto ok = persist_open_slabs(live, *pool, *domain); !ok) return fail_with_context(object, ok.error());
    if (auto ok = log->checkpoint(live); !ok) return fail_with_context(object, ok.error());
  }
  return std::unique_ptr<HotTier>(std::make_unique<StagedHotTier>(std::move(options), std::move(domain),
                                                                  std::move(pool), std::move(state),
                                                                  std::move(*log), last_record));
}

}  // namespace sluice::burst_buffer
