#include "storage/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "base/assert.h"
#include "base/checksum.h"
#include "storage/manifest_generated.h"

namespace sluice::storage {
namespace {

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(wire::Stripe) == 24 && sizeof(wire::Extent) == 32);

// In front of the FlatBuffer, which by itself would not notice a flipped bit. Eight bytes keep its alignment.
struct StepEnvelope {
  uint32_t magic;
  uint32_t crc;  // crc32c of the FlatBuffer
};
static_assert(sizeof(StepEnvelope) == 8);
constexpr uint32_t kStepMagic = 0x534d4c53;  // "SLMS", in the order of bytes on media
constexpr size_t kMaxStepBytes = 1'000'000'000;
constexpr uint64_t kNoCut = std::numeric_limits<uint64_t>::max();

tl::unexpected<Error> bad(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("a manifest step is damaged: {}", why));
}

bool sound_extent(const PlacedExtent& placed, Length size) {
  return placed.extent.valid() && !placed.extent.empty() && placed.extent.end.value <= size.value;
}

bool sound_stripe(const StripeRecord& stripe) {
  if (stripe.id.value == 0 || !is_sound(stripe.shape) || stripe.targets.size() != stripe.shape.width())
    return false;
  std::set<TargetId> seen;
  for (const TargetId target : stripe.targets) {
    if (target != kNoTarget && !seen.insert(target).second) return false;
  }
  return true;
}

bool lies_inside(const PlacedExtent& placed, const StripeShape& shape) {
  return placed.place.offset <= shape.data.value &&
         placed.extent.length().value <= shape.data.value - placed.place.offset;
}

// The Verifier keeps a hostile vector inside the buffer, but not its structs on their boundaries.
template <class Struct>
bool aligned(const flatbuffers::Vector<const Struct*>& structs) {
  return reinterpret_cast<uintptr_t>(structs.Data()) % alignof(Struct) == 0;
}

Result<std::vector<StripeRecord>> read_stripes(const wire::Step& step, ContainerId container) {
  std::vector<StripeRecord> stripes;
  if (step.stripes() == nullptr) {
    if (step.targets() != nullptr && step.targets()->size() != 0)
      return bad("there are targets of no stripe");
    return stripes;
  }
  if (step.stripes()->size() > kMaxStepStripes) return bad("there are too many stripes");
  if (!aligned(*step.stripes())) return bad("its stripes do not lie where they may");
  const size_t target_count = step.targets() == nullptr ? 0 : step.targets()->size();
  size_t next_target = 0;
  std::set<StripeId> seen;
  for (const wire::Stripe* raw : *step.stripes()) {
    StripeRecord stripe{StripeId(raw->id()),
                        container,
                        {raw->k(), raw->m(), Length(raw->data_bytes()), Length(raw->shard_bytes())},
                        {}};
    if (!is_sound(stripe.shape)) return bad("a stripe's shape makes no sense");
    if (target_count - next_target < stripe.shape.width()) return bad("a stripe's targets are missing");
    for (uint32_t shard = 0; shard < stripe.shape.width(); ++shard) {
      stripe.targets.emplace_back(step.targets()->Get(static_cast<flatbuffers::uoffset_t>(next_target++)));
    }
    if (!sound_stripe(stripe)) return bad("two shards of a stripe are on one target");
    if (!seen.insert(stripe.id).second) return bad("a stripe is named twice");
    stripes.push_back(std::move(stripe));
  }
  if (next_target != target_count) return bad("there are targets of no stripe");
  return stripes;
}

Result<ManifestStep> read_step(const wire::Step& raw, ContainerId container) {
  ManifestStep step;
  step.from = Epoch(raw.from());
  step.to = Epoch(raw.to());
  if (step.from >= step.to) return bad("it does not lead to a later version");
  if (raw.cut() != kNoCut) step.cut = Length(raw.cut());
  step.size = Length(raw.size());
  if (raw.size() > kMaxFileBytes || (step.cut && step.cut->value > kMaxFileBytes))
    return bad("its size is beyond all limits");
  auto stripes = read_stripes(raw, container);
  if (!stripes) return fail(stripes.error());
  step.stripes = *std::move(stripes);
  if (raw.extents() == nullptr) return step;
  if (raw.extents()->size() > kMaxStepExtents) return bad("there are too many extents");
  if (!aligned(*raw.extents())) return bad("its extents do not lie where they may");
  step.extents.reserve(raw.extents()->size());
  for (const wire::Extent* e : *raw.extents()) {
    const PlacedExtent placed{{Offset(e->begin()), Offset(e->end())}, {StripeId(e->stripe()), e->offset()}};
    if (!sound_extent(placed, step.size)) return bad("an extent makes no sense");
    step.extents.push_back(placed);
  }
  return step;
}

}  // namespace

std::vector<PlacedExtent> coalesced(std::vector<PlacedExtent> extents) {
  std::vector<PlacedExtent> merged;
  for (PlacedExtent& next : extents) {
    if (next.extent.empty()) continue;
    if (!merged.empty() && merged.back().extent.end == next.extent.begin &&
        merged.back().place.advanced(merged.back().extent.length()) == next.place) {
      merged.back().extent.end = next.extent.end;
      continue;
    }
    merged.push_back(next);
  }
  return merged;
}

std::string encode_step(const ManifestStep& step) {
  SLUICE_ASSERT(step.extents.size() <= kMaxStepExtents && step.stripes.size() <= kMaxStepStripes);
  std::vector<wire::Stripe> stripes;
  std::vector<uint32_t> targets;
  for (const StripeRecord& stripe : step.stripes) {
    SLUICE_ASSERT(sound_stripe(stripe));
    stripes.emplace_back(stripe.id.value, stripe.shape.data.value,
                         static_cast<uint32_t>(stripe.shape.shard.value),
                         static_cast<uint16_t>(stripe.shape.k), static_cast<uint16_t>(stripe.shape.m));
    for (const TargetId target : stripe.targets) targets.push_back(target.value);
  }
  std::vector<wire::Extent> extents;
  extents.reserve(step.extents.size());
  for (const PlacedExtent& placed : step.extents) {
    SLUICE_ASSERT(sound_extent(placed, step.size));
    extents.emplace_back(placed.extent.begin.value, placed.extent.end.value, placed.place.stripe.value,
                         placed.place.offset);
  }
  flatbuffers::FlatBufferBuilder builder(256 + extents.size() * sizeof(wire::Extent));
  const auto root = wire::CreateStep(builder, kManifestFormatVersion, step.from.value, step.to.value,
                                     step.cut ? step.cut->value : kNoCut, step.size.value,
                                     builder.CreateVectorOfStructs(stripes), builder.CreateVector(targets),
                                     builder.CreateVectorOfStructs(extents));
  wire::FinishStepBuffer(builder, root);
  const auto body = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  const StepEnvelope envelope{kStepMagic, crc32c(body)};
  std::string bytes(reinterpret_cast<const char*>(&envelope), sizeof envelope);
  bytes.append(reinterpret_cast<const char*>(body.data()), body.size());
  return bytes;
}

Result<ManifestStep> decode_step(std::span<const std::byte> bytes, ContainerId container) {
  StepEnvelope envelope{};
  if (bytes.size() < sizeof envelope || bytes.size() > kMaxStepBytes) return bad("its length makes no sense");
  std::memcpy(&envelope, bytes.data(), sizeof envelope);
  if (envelope.magic != kStepMagic) return bad("the magic is wrong");
  const auto body = bytes.subspan(sizeof envelope);
  if (envelope.crc != crc32c(body)) return bad("the checksum is wrong");
  // FlatBuffers are read in place, at their own alignment.
  std::vector<uint64_t> aligned((body.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  if (!body.empty()) std::memcpy(aligned.data(), body.data(), body.size());
  const auto* buffer = reinterpret_cast<const uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(buffer, body.size());
  if (body.size() < 2 * sizeof(flatbuffers::uoffset_t) || !wire::VerifyStepBuffer(verifier))
    return bad("its structure is broken");
  const wire::Step& step = *wire::GetStep(buffer);
  if (step.version() != kManifestFormatVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a manifest step has format version {}; this program reads version {}",
                            step.version(), kManifestFormatVersion));
  }
  return read_step(step, container);
}

Result<> Manifest::check(const ManifestStep& step) const {
  auto refused = [](ErrorCode code, std::string why) {
    return fail(code, "the manifest step is refused: " + std::move(why));
  };
  if (step.from != epoch_) {
    return refused(ErrorCode::kConflict, fmt::format("it starts at version {}, the container is at {}",
                                                     step.from.value, epoch_.value));
  }
  if (step.to <= step.from)
    return refused(ErrorCode::kInvalidArgument, "it does not lead to a later version");
  if (step.size.value > kMaxFileBytes) return refused(ErrorCode::kTooLarge, "the file would be too large");
  if (step.extents.size() > kMaxStepExtents || step.stripes.size() > kMaxStepStripes) {
    return refused(ErrorCode::kTooLarge, "it has too many extents; publish them in smaller steps");
  }
  std::map<StripeId, const StripeRecord*> added;
  for (const StripeRecord& stripe : step.stripes) {
    if (!sound_stripe(stripe) || stripe.container != container_ || live_.contains(stripe.id) ||
        !added.emplace(stripe.id, &stripe).second) {
      return refused(ErrorCode::kInvalidArgument,
                     fmt::format("the record of stripe {} makes no sense", stripe.id.value));
    }
  }
  for (const PlacedExtent& placed : step.extents) {
    if (!sound_extent(placed, step.size))
      return refused(ErrorCode::kInvalidArgument, "an extent makes no sense");
    const auto known = live_.find(placed.place.stripe);
    const auto is_new = added.find(placed.place.stripe);
    if (known == live_.end() && is_new == added.end()) {
      return refused(ErrorCode::kNotFound,
                     fmt::format("it names stripe {} that nobody knows", placed.place.stripe.value));
    }
    const StripeShape& shape = known != live_.end() ? known->second.record->shape : is_new->second->shape;
    if (!lies_inside(placed, shape)) {
      return refused(ErrorCode::kInvalidArgument,
                     fmt::format("an extent reaches beyond stripe {}", placed.place.stripe.value));
    }
  }
  return {};
}

void Manifest::uncover(Extent extent) {
  for (const auto& entry : places_.lookup(extent)) {
    Live& live = live_.at(entry.value.stripe);
    SLUICE_ASSERT(live.bytes >= entry.extent.length().value);
    live.bytes -= entry.extent.length().value;
    if (live.bytes == 0) emptied_.push_back(entry.value.stripe);
  }
  places_.erase(extent);
}

std::vector<Manifest::RecordPtr> Manifest::apply(const ManifestStep& step) {
  SLUICE_ASSERT(step.from == epoch_ && step.from < step.to);
  emptied_.clear();
  for (const StripeRecord& stripe : step.stripes) {
    live_.emplace(stripe.id, Live{std::make_shared<const StripeRecord>(stripe), 0});
    emptied_.push_back(stripe.id);
  }
  if (step.cut) drop_from(*step.cut);
  for (const PlacedExtent& placed : step.extents) {
    uncover(placed.extent);
    live_.at(placed.place.stripe).bytes += placed.extent.length().value;
    places_.assign(placed.extent, placed.place);
  }
  drop_from(step.size);
  std::vector<RecordPtr> freed;
  for (const StripeId id : emptied_) {
    const auto found = live_.find(id);
    if (found == live_.end() || found->second.bytes > 0) continue;
    freed.push_back(std::move(found->second.record));
    live_.erase(found);
  }
  emptied_.clear();
  epoch_ = step.to;
  size_ = step.size;
  return freed;
}

std::vector<PlacedExtent> Manifest::lookup(Extent extent) const {
  std::vector<PlacedExtent> found;
  for (const auto& entry : places_.lookup(extent)) found.push_back({entry.extent, entry.value});
  return found;
}

Manifest::RecordPtr Manifest::stripe(StripeId id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : found->second.record;
}

std::vector<Manifest::RecordPtr> Manifest::stripes() const {
  std::vector<RecordPtr> records;
  for (const auto& [id, live] : live_) records.push_back(live.record);
  return records;
}

ManifestStep Manifest::merged() const {
  ManifestStep step;
  step.to = epoch_;
  step.size = size_;
  for (const auto& [id, live] : live_) step.stripes.push_back(*live.record);
  places_.for_each([&](Extent extent, const StripePlace& place) { step.extents.push_back({extent, place}); });
  step.extents = coalesced(std::move(step.extents));
  return step;
}

}  // namespace sluice::storage
