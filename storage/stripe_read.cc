#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/log.h"
#include "storage/shard_format.h"
#include "storage/stripe.h"

namespace sluice::storage {
namespace {

using HeaderPtr = HeaderCache::HeaderPtr;

// From here on helping threads pay for waking them.
constexpr uint64_t kParallelReadBytes = 512 * 1024;

// The checksum of the next `length` bytes of a list of pieces; drops them from it.
uint32_t crc_of_next(std::span<std::span<std::byte>> pieces, size_t& first, uint64_t length) {
  uint32_t crc = 0;
  while (length > 0) {
    std::span<std::byte>& piece = pieces[first];
    const auto part = piece.first(std::min<uint64_t>(piece.size(), length));
    crc = crc32c(part, crc);
    piece = piece.subspan(part.size());
    length -= part.size();
    if (piece.empty()) ++first;
  }
  return crc;
}

}  // namespace

// One read, scrub or repair of one stripe, on one thread but for load_range().
class StripeRead {
 public:
  StripeRead(StripeIo& io, const StripeRecord& stripe) : io_(io), stripe_(stripe) {}

  Result<ReadReport> run(uint64_t offset, std::span<std::byte> out);
  StripeScrub scrub();
  Result<> restore(ShardIndex shard);

 private:
  // The outcome of reading a range straight from its shard.
  struct Loaded {
    ShardRange range;
    std::vector<uint64_t> bad_blocks;
    std::optional<Error> fault;  // of the first bad block
  };

  // Thread-safe: touches nothing but its range of `out`.
  Loaded load_range(const ShardRange& range, std::span<std::byte> out) const;
  Result<HeaderPtr> load_header(ShardIndex shard) const;
  Result<HeaderPtr> accept_header(ShardIndex shard, std::span<const std::byte> bytes) const;
  Result<> load_block(ShardIndex shard, uint64_t block, std::span<std::byte> out) const;
  Result<Target*> target_of(ShardIndex shard) const;

  // Rebuilds one block from k others of its row.
  Result<> rebuild_block(ShardIndex shard, uint64_t block, std::span<std::byte> out);
  Result<> recover_range(const Loaded& loaded, std::span<std::byte> out);
  // Answers whether the shard was rewritten.
  bool repair(ShardIndex shard, bool after_failure);
  Result<> rewrite(ShardIndex shard, Target& on);

  uint64_t block_bytes(uint64_t block) const {
    return block_end(stripe_.shape.shard, block) - block_begin(block);
  }
  void note_fault(ShardIndex shard, const Error& fault) { faults_.emplace(shard, fault); }
  Error loss(uint64_t block, size_t good) const;

  StripeIo& io_;
  const StripeRecord& stripe_;
  std::map<ShardIndex, Error> faults_;       // the first of each shard
  std::map<ShardIndex, uint64_t> degraded_;  // blocks rebuilt for the caller, by shard
  BufferPool::Buffer row_;                   // a block for each source of a rebuild
};

Result<Target*> StripeRead::target_of(ShardIndex shard) const {
  const TargetId id = stripe_.targets[shard.value];
  if (id == kNoTarget) return fail(ErrorCode::kNotFound, "it was never placed");
  Target* const target = io_.target(id);
  if (target == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("target {} is not part of this pool any more", id.value));
  }
  return target;
}

Result<HeaderPtr> StripeRead::accept_header(ShardIndex shard, std::span<const std::byte> bytes) const {
  auto header = decode_shard_header(bytes);
  if (!header) return fail(header.error());
  if (header->pool_id != io_.pool_id_ || header->stripe != stripe_.id || header->shard != shard ||
      header->shape != stripe_.shape) {
    return fail(ErrorCode::kCorrupt, fmt::format("another shard lies in its place: {}", describe(*header)));
  }
  auto shared = std::make_shared<const ShardHeader>(*std::move(header));
  io_.headers_.put({stripe_.id, shard}, shared);
  return shared;
}

Result<HeaderPtr> StripeRead::load_header(ShardIndex shard) const {
  if (auto cached = io_.headers_.find({stripe_.id, shard})) return cached;
  auto target = target_of(shard);
  if (!target) return fail(target.error());
  std::array<std::byte, kShardHeaderBytes> bytes{};
  const std::span<std::byte> whole(bytes);
  if (auto got = (*target)->get({stripe_.id, shard}, 0, std::span(&whole, 1)); !got) return fail(got.error());
  return accept_header(shard, bytes);
}

// Whole blocks are read, as only those can be checked: what is asked for goes straight to its place, the rest
// of the first and the last block to scratch. A range that begins in the first block brings the header along.
StripeRead::Loaded StripeRead::load_range(const ShardRange& range, std::span<std::byte> out) const {
  Loaded loaded{range, {}, std::nullopt};
  const BlockRange blocks = blocks_of(range.begin, range.end);
  auto all_bad = [&](const Error& fault) {
    loaded.fault = fault;
    for (uint64_t block = blocks.first; block < blocks.last; ++block) loaded.bad_blocks.push_back(block);
    return loaded;
  };
  auto target = target_of(range.shard);
  if (!target) return all_bad(target.error());
  const ShardName name{stripe_.id, range.shard};
  HeaderPtr header = io_.headers_.find(name);
  if (header == nullptr && blocks.first != 0) {
    auto loaded_header = load_header(range.shard);
    if (!loaded_header) return all_bad(loaded_header.error());
    header = *loaded_header;
  }
  const uint64_t lead = range.begin - block_begin(blocks.first);
  const uint64_t rest = block_end(stripe_.shape.shard, blocks.last - 1) - range.end;
  const BufferPool::Buffer scratch = io_.buffers_.take(2 * kChecksumBlockBytes + kShardHeaderBytes);
  const auto header_bytes = scratch.bytes().last(kShardHeaderBytes);
  std::array<std::span<std::byte>, 4> pieces = {
      header == nullptr ? header_bytes : std::span<std::byte>(), scratch.bytes().first(lead),
      out.subspan(range.out, range.end - range.begin), scratch.bytes().subspan(kChecksumBlockBytes, rest)};
  const uint64_t at = header == nullptr ? 0 : kShardHeaderBytes + block_begin(blocks.first);
  if (auto got = (*target)->get(name, at, pieces); !got) return all_bad(got.error());
  if (header == nullptr) {
    auto accepted = accept_header(range.shard, header_bytes);
    if (!accepted) return all_bad(accepted.error());
    header = *accepted;
  }
  size_t first = 0;
  const auto data = std::span(pieces).subspan(1);
  for (uint64_t block = blocks.first; block < blocks.last; ++block) {
    if (crc_of_next(data, first, block_bytes(block)) == header->block_crc[block]) continue;
    loaded.bad_blocks.push_back(block);
    if (!loaded.fault) {
      loaded.fault =
          Error(ErrorCode::kCorrupt, fmt::format("block {} of {} on target {} ({}) fails its checksum", block,
                                                 to_string(name), (*target)->id().value, (*target)->path()));
    }
  }
  if (!loaded.fault) io_.seen_well((*target)->id());
  return loaded;
}

Result<> StripeRead::load_block(ShardIndex shard, uint64_t block, std::span<std::byte> out) const {
  const ShardRange whole{shard, block_begin(block), block_end(stripe_.shape.shard, block), 0};
  const Loaded loaded = load_range(whole, out);
  if (loaded.fault) return fail(*loaded.fault);
  return {};
}

Result<> StripeRead::rebuild_block(ShardIndex shard, uint64_t block, std::span<std::byte> out) {
  const StripeShape& shape = stripe_.shape;
  const uint64_t length = block_bytes(block);
  SLUICE_ASSERT(out.size() == length);
  if (row_.bytes().empty()) row_ = io_.buffers_.take(shape.k * kChecksumBlockBytes);
  std::vector<ShardIndex> survivors;
  std::vector<const std::byte*> sources;
  for (uint32_t other = 0; other < shape.width() && survivors.size() < shape.k; ++other) {
    if (other == shard.value) continue;
    const auto place = row_.bytes().subspan(survivors.size() * kChecksumBlockBytes, length);
    if (auto got = load_block(ShardIndex(other), block, place); !got) {
      note_fault(ShardIndex(other), got.error());
      continue;
    }
    survivors.push_back(ShardIndex(other));
    sources.push_back(place.data());
  }
  if (survivors.size() < shape.k) return fail(loss(block, survivors.size()));
  std::byte* const target = out.data();
  io_.codec(shape.k, shape.m)
      .rebuild(survivors, sources, std::span(&shard, 1), std::span(&target, 1), length);
  // When the shard's own header can still be read, it must agree.
  const auto header = load_header(shard);
  if (header && (*header)->block_crc[block] != crc32c(out)) {
    Error error(ErrorCode::kCorrupt,
                fmt::format("stripe {}: block {} of shard {} does not follow from the others",
                            stripe_.id.value, block, shard.value));
    return fail(std::move(error.mark_data_loss()));
  }
  return {};
}

Error StripeRead::loss(uint64_t block, size_t good) const {
  std::string list;
  ErrorCode code = ErrorCode::kIo;
  for (const auto& [shard, fault] : faults_) {
    if (fault.code == ErrorCode::kCorrupt) code = ErrorCode::kCorrupt;
    const TargetId on = stripe_.targets[shard.value];
    const std::string place = on == kNoTarget ? "on no target" : fmt::format("target {}", on.value);
    list += fmt::format("{}shard {} ({}): {}", list.empty() ? "" : "; ", shard.value, place, fault.message);
  }
  Error error(
      code,
      fmt::format("stripe {} of container {}: {} of the {} shards that are needed for block {} are left of "
                  "{}+{}; bring the targets back: {}",
                  stripe_.id.value, stripe_.container.value, good, stripe_.shape.k, block, stripe_.shape.k,
                  stripe_.shape.m, list));
  return error.mark_data_loss();
}

Result<> StripeRead::recover_range(const Loaded& loaded, std::span<std::byte> out) {
  note_fault(loaded.range.shard, *loaded.fault);
  const BufferPool::Buffer buffer = io_.buffers_.take(kChecksumBlockBytes);
  for (const uint64_t block : loaded.bad_blocks) {
    const auto rebuilt = buffer.bytes().first(block_bytes(block));
    if (auto ok = rebuild_block(loaded.range.shard, block, rebuilt); !ok) return ok;
    const uint64_t begin = std::max(loaded.range.begin, block_begin(block));
    const uint64_t end = std::min(loaded.range.end, block_end(stripe_.shape.shard, block));
    std::memcpy(out.data() + loaded.range.out + (begin - loaded.range.begin),
                rebuilt.data() + (begin - block_begin(block)), end - begin);
    ++degraded_[loaded.range.shard];
  }
  return {};
}

Result<ReadReport> StripeRead::run(uint64_t offset, std::span<std::byte> out) {
  const auto ranges = shard_ranges(stripe_.shape, offset, Length(out.size()));
  std::vector<Loaded> loaded(ranges.size());
  auto load = [&](size_t i) { loaded[i] = load_range(ranges[i], out); };
  if (out.size() >= kParallelReadBytes) {
    io_.workers_.run(ranges.size(), load);
  } else {
    for (size_t i = 0; i < ranges.size(); ++i) load(i);
  }
  for (const Loaded& range : loaded) {
    if (!range.fault) continue;
    if (auto ok = recover_range(range, out); !ok) return fail(ok.error());
  }
  ReadReport report;
  // repair() may add faults, of other shards; those wait for their own read.
  const auto faults = faults_;
  for (const auto& [shard, fault] : faults) {
    const uint64_t degraded = degraded_.contains(shard) ? degraded_[shard] : 0;
    report.degraded_blocks += degraded;
    if (repair(shard, false)) report.repaired_blocks += degraded;
  }
  io_.degraded_blocks_ += report.degraded_blocks;
  return report;
}

bool StripeRead::repair(ShardIndex shard, bool after_failure) {
  const Error fault = faults_.at(shard);
  const TargetId id = stripe_.targets[shard.value];
  Target* const on = io_.target(id);
  if (on == nullptr) return false;  // no place of its own to go back to
  if (on->state() == TargetState::kMissing) {
    if (io_.first_loss_of(id)) {
      log::warn("target {} ({}) is missing; its shards are rebuilt from the others at each read", id.value,
                on->path());
    }
    return false;
  }
  const ShardName name{stripe_.id, shard};
  if (!io_.claim_repair(name, after_failure)) return false;
  const auto rewritten = rewrite(shard, *on);
  io_.end_repair(name, rewritten.has_value());
  if (rewritten) {
    log::warn("{} on target {} ({}) was bad and is rewritten from the others: {}", to_string(name), id.value,
              on->path(), fault.message);
  } else {
    log::error("{} on target {} ({}) is bad and cannot be rewritten: {} ({})", to_string(name), id.value,
               on->path(), rewritten.error().message, fault.message);
  }
  return rewritten.has_value();
}

// The header is made anew: the same stripe gives the same header.
Result<> StripeRead::rewrite(ShardIndex shard, Target& on) {
  const StripeShape& shape = stripe_.shape;
  const BufferPool::Buffer whole = io_.buffers_.take(shape.shard.value);
  ShardHeader header{io_.pool_id_, stripe_.container, stripe_.id, shard, shape, {}};
  for (uint64_t block = 0; block < block_count(shape.shard); ++block) {
    const auto bytes = whole.bytes().subspan(block_begin(block), block_bytes(block));
    if (!load_block(shard, block, bytes)) {
      if (auto ok = rebuild_block(shard, block, bytes); !ok) return ok;
    }
    header.block_crc.push_back(crc32c(bytes));
  }
  const auto header_bytes = encode_shard_header(header);
  const std::array<std::span<const std::byte>, 2> pieces = {std::span<const std::byte>(header_bytes),
                                                            std::span<const std::byte>(whole.bytes())};
  return on.put({stripe_.id, shard}, pieces);
}

Result<> StripeRead::restore(ShardIndex shard) {
  auto target = target_of(shard);
  if (!target) return fail(target.error());
  const ShardName name{stripe_.id, shard};
  const auto there = (*target)->find(stripe_.id);
  if (!there) return fail(there.error());
  const bool is_there = std::find(there->begin(), there->end(), shard) != there->end();
  if (!io_.claim_repair(name, true)) return fail(ErrorCode::kBusy, to_string(name) + " is being rewritten");
  const auto outcome = is_there ? Result<>() : rewrite(shard, **target);
  io_.end_repair(name, outcome.has_value());
  return outcome;
}

StripeScrub StripeRead::scrub() {
  const StripeShape& shape = stripe_.shape;
  StripeScrub found;
  std::map<ShardIndex, uint64_t> bad;
  const BufferPool::Buffer buffer = io_.buffers_.take(kChecksumBlockBytes);
  for (uint32_t index = 0; index < shape.width(); ++index) {
    const ShardIndex shard(index);
    // What the medium holds is asked, not what was once read from it.
    io_.headers_.forget({stripe_.id, shard});
    for (uint64_t block = 0; block < block_count(shape.shard); ++block) {
      const auto bytes = buffer.bytes().first(block_bytes(block));
      const auto got = load_block(shard, block, bytes);
      if (got) continue;
      note_fault(shard, got.error());
      ++found.bad_blocks;
      ++bad[shard];
      if (!rebuild_block(shard, block, bytes)) ++found.lost_blocks;
    }
  }
  for (const auto& [shard, blocks] : bad) {
    if (repair(shard, true)) found.repaired_blocks += blocks;
  }
  return found;
}

Result<ReadReport> StripeIo::read(const StripeRecord& stripe, uint64_t offset, std::span<std::byte> out) {
  SLUICE_ASSERT(offset <= stripe.shape.data.value && out.size() <= stripe.shape.data.value - offset);
  if (out.empty()) return ReadReport{};
  return StripeRead(*this, stripe).run(offset, out);
}

Result<> StripeIo::restore(const StripeRecord& stripe, ShardIndex shard) {
  return StripeRead(*this, stripe).restore(shard);
}

StripeScrub StripeIo::scrub(const StripeRecord& stripe) {
  return StripeRead(*this, stripe).scrub();
}

}  // namespace sluice::storage
