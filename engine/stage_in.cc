#include "engine/stage_in.h"

#include <algorithm>

#include "base/checksum.h"
#include "engine/open_files.h"

namespace sluice::engine {
namespace {

using burst_buffer::Segment;

// Of small pieces far apart the blocks would be many times what was asked for.
constexpr uint64_t kMostBytes = uint64_t{32} << 20;

uint64_t total(const std::vector<Extent>& extents) {
  uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.length().value;
  return bytes;
}

bool in_storage_tier(const Segment& segment) {
  return segment.kind == Segment::Kind::kBelow || segment.kind == Segment::Kind::kStripe;
}

}  // namespace

std::vector<Extent> blocks_around(std::vector<Extent> extents) {
  for (Extent& extent : extents) {
    extent.begin = Offset(extent.begin.value / kChecksumBlockBytes * kChecksumBlockBytes);
    const uint64_t end =
        (extent.end.value + kChecksumBlockBytes - 1) / kChecksumBlockBytes * kChecksumBlockBytes;
    extent.end = Offset(std::min(end, kMaxFileBytes));
  }
  std::ranges::sort(extents);
  std::vector<Extent> blocks;
  for (const Extent& extent : extents) {
    if (extent.empty()) continue;
    if (!blocks.empty() && extent.begin <= blocks.back().end) {
      blocks.back().end = std::max(blocks.back().end, extent.end);
    } else {
      blocks.push_back(extent);
    }
  }
  return blocks;
}

bool have_common(const std::vector<Extent>& a, const std::vector<Extent>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].overlaps(b[j])) return true;
    (a[i].end <= b[j].begin ? i : j) += 1;
  }
  return false;
}

std::vector<Extent> without(const std::vector<Extent>& from, const std::vector<Extent>& what) {
  std::vector<Extent> left;
  size_t next = 0;
  for (Extent rest : from) {
    while (next < what.size() && what[next].end <= rest.begin) ++next;
    for (size_t i = next; i < what.size() && what[i].begin < rest.end; ++i) {
      if (rest.begin < what[i].begin) left.push_back({rest.begin, what[i].begin});
      rest.begin = std::min(what[i].end, rest.end);
    }
    if (!rest.empty()) left.push_back(rest);
  }
  return left;
}

StageIn::StageIn(Context& context)
    : context_(context), usable_([&] {
        const auto area = context.parts.hot.shared_area();
        return area && area->in_memory;
      }()) {}

void StageIn::bring(ContainerId container, const std::vector<Extent>& extents, std::function<void()> done) {
  auto blocks = blocks_around(extents);
  if (blocks.empty() || total(blocks) > kMostBytes) return done();
  const auto waiter = std::make_shared<Waiter>(Waiter{0, std::move(done)});
  const auto wait_for = [&waiter](Flight& flight) {
    flight.waiters.push_back(waiter);
    ++waiter->flights;
  };
  const auto [begin, end] = flights_.equal_range(container);
  for (auto at = begin; at != end; ++at) {
    Flight& flight = *at->second;
    if (!have_common(flight.blocks, blocks)) continue;
    wait_for(flight);
    blocks = without(blocks, flight.blocks);
  }
  if (blocks.empty()) return;
  const auto flight = std::make_shared<Flight>(Flight{std::move(blocks), {}});
  wait_for(*flight);
  const auto at = flights_.emplace(container, flight);
  context_.off_loop(
      turn_++,
      [this, container, flight] {
        load(container, flight->blocks);
        return true;
      },
      [this, at, flight](bool) {
        flights_.erase(at);
        for (const auto& one : flight->waiters) {
          if (--one->flights == 0) one->done();
        }
      });
}

void StageIn::load(ContainerId container, const std::vector<Extent>& blocks) {
  auto& hot = context_.parts.hot;
  const auto standing = hot.standing(container);
  const auto size = visible_size(context_.parts, container, std::nullopt);
  if (!size) return;
  std::vector<burst_buffer::View> views;
  std::vector<Extent> missing;
  for (const Extent& block : blocks) {
    const auto inside = block.intersect({Offset(0), Offset(size->value)});
    if (!inside) break;
    auto view = hot.view(container, std::nullopt, *inside);
    if (!view) return;
    for (const Segment& segment : view->segments) {
      if (in_storage_tier(segment)) missing.push_back(segment.extent);
    }
    views.push_back(std::move(*view));
  }
  if (missing.empty() || total(missing) > kMostBytes) return;
  const auto slab = hot.reserve(Length(total(missing)));
  if (!slab) return;
  std::span<std::byte> room = hot.bytes(*slab);
  for (const auto& view : views) {
    for (const Segment& segment : view.segments) {
      if (!in_storage_tier(segment)) continue;
      const auto piece = room.first(segment.extent.length().value);
      room = room.subspan(piece.size());
      const auto read = segment.kind == Segment::Kind::kStripe
                            ? context_.parts.store.read_stripe(segment.stripe, segment.stripe_offset, piece)
                            : context_.parts.store.read(container, segment.extent, piece);
      // Why it cannot be read is told to who asks the storage tier itself.
      if (!read) return hot.cancel(*slab);
    }
  }
  hot.keep(container, standing, missing, *slab, block_checksums(hot.bytes(*slab)));
}

}  // namespace sluice::engine
