#include "engine/lane_desk.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "burst_buffer/slab_allocator.h"

namespace sluice::engine {
namespace {

using burst_buffer::kGranuleBytes;
using burst_buffer::Slab;
using burst_buffer::SlabAllocator;

constexpr uint64_t kMaxGrantBytes = uint64_t{64} << 20;
static_assert(kGranuleBytes == protocol::kSlabGranuleBytes);  // clients lay their slabs out by it

Error not_granted() {
  return {ErrorCode::kFenced,
          "a write names a part of the hot tier that is not its process's; open the file again"};
}

}  // namespace

LaneDesk::LaneDesk(Context& context, LaneFile* file, uint64_t seed)
    : context_(context), file_(file), area_(context.parts.hot.shared_area()), secrets_(seed) {
  if (file_ == nullptr || !area_) return;
  for (const auto& found : file_->entries()) {
    const bool sensible = found.offset % kGranuleBytes == 0 && found.length % kGranuleBytes == 0 &&
                          found.offset <= area_->bytes && found.length <= area_->bytes - found.offset;
    if (!sensible || grants_.contains(found.grant)) {
      file_->remove(found.entry);
      continue;
    }
    Grant& grant = grants_[found.grant];
    grant.begin = found.offset;
    grant.end = found.offset + found.length;
    grant.entry = found.entry;
    grant.process = found.process;
    if (!ProcessWatch(found.process).ended()) awaited_.insert(found.grant);
    for (const Slab& slab : context_.parts.hot.claim(grant.begin, grant.end))
      grant.unnamed.emplace(slab.offset, slab.offset + slab.length.value);
  }
  // From here on what readers of the server before had pinned may be given to others.
  file_->take_charge();
}

std::unique_ptr<wire::LaneT> LaneDesk::terms(transport::PeerId peer) const {
  if (file_ == nullptr || !area_ || !context_.parts.transport.peer_process(peer)) return nullptr;
  auto lane = std::make_unique<wire::LaneT>();
  lane->file_offset = area_->file_offset;
  lane->bytes = area_->bytes;
  lane->boot = file_->boot();
  lane->in_memory = area_->in_memory;
  lane->at_once = context_.parts.hot.appends_at_once();
  return lane;
}

// Large grants spare round trips; but what lies idle in one is nobody else's, so a grant takes no more than
// its share of what is free, and where little is free just what is needed.
Result<wire::LeasedT> LaneDesk::lease(SessionId id, const wire::LeaseT& ask) {
  const Session* session = context_.sessions.find(id);
  pid_t process = 0;
  if (session != nullptr && session->peer)
    process = context_.parts.transport.peer_process(*session->peer).value_or(0);
  if (file_ == nullptr || !area_ || process == 0)
    return fail(ErrorCode::kUnsupported, "this process cannot use the local lane");
  const uint64_t need = SlabAllocator::footprint(Length(ask.need));
  const auto usage = context_.parts.hot.usage();
  const uint64_t left = usage.bytes_total - std::min(usage.bytes_used, usage.bytes_total);
  const uint64_t share = left / 4 / std::max<uint64_t>(context_.sessions.size(), 1);
  uint64_t bytes = std::min({ask.want, kMaxGrantBytes, share}) / kGranuleBytes * kGranuleBytes;
  bytes = std::max(bytes, need);
  auto slab = context_.parts.hot.reserve(Length(bytes));
  while (!slab && slab.error().code == ErrorCode::kNoSpace && bytes > need) {
    bytes = std::max(need, bytes / 2 / kGranuleBytes * kGranuleBytes);
    slab = context_.parts.hot.reserve(Length(bytes));
  }
  if (!slab) return fail(slab.error());
  const uint64_t number = secrets_.next() | 1;
  auto entry = file_->add(number, slab->offset, bytes, static_cast<uint32_t>(process));
  if (!entry) {
    context_.parts.hot.cancel(*slab);
    return fail(entry.error());
  }
  Grant& grant = grants_[number];
  grant.session = id;
  grant.begin = slab->offset;
  grant.end = slab->offset + bytes;
  grant.unnamed.emplace(grant.begin, grant.end);
  grant.entry = *entry;
  grant.process = static_cast<uint32_t>(process);
  wire::LeasedT leased;
  leased.grant = number;
  leased.offset = grant.begin;
  leased.length = bytes;
  return leased;
}

Result<Slab> LaneDesk::take(SessionId session, const wire::Slab& named, Length length) {
  const auto at = grants_.find(named.grant());
  if (at == grants_.end() || at->second.session != session) return fail(not_granted());
  Grant& grant = at->second;
  const uint64_t begin = named.offset();
  const uint64_t bytes = SlabAllocator::footprint(length);
  if (begin % kGranuleBytes != 0 || begin < grant.begin || begin > grant.end || bytes > grant.end - begin)
    return fail(not_granted());
  auto range = grant.unnamed.upper_bound(begin);
  if (range == grant.unnamed.begin()) return fail(ErrorCode::kExists, "named before");
  --range;
  const uint64_t range_begin = range->first;
  const uint64_t range_end = range->second;
  if (range_end < begin + bytes) return fail(ErrorCode::kExists, "named before");
  grant.unnamed.erase(range);
  if (range_begin < begin) grant.unnamed.emplace(range_begin, begin);
  if (begin + bytes < range_end) grant.unnamed.emplace(begin + bytes, range_end);
  return Slab{begin, length};
}

void LaneDesk::untake(const wire::Slab& named, Length length) {
  const auto at = grants_.find(named.grant());
  const uint64_t bytes = SlabAllocator::footprint(length);
  if (at == grants_.end())
    return context_.parts.hot.cancel({named.offset(), length});  // given back meanwhile
  at->second.unnamed.emplace(named.offset(), named.offset() + bytes);
}

LaneDesk::Grants::iterator LaneDesk::free(Grants::iterator at) {
  Grant& grant = at->second;
  for (const auto& [begin, end] : grant.unnamed) context_.parts.hot.cancel({begin, Length(end - begin)});
  file_->remove(grant.entry);
  awaited_.erase(at->first);
  return grants_.erase(at);
}

void LaneDesk::give_back(const Request& request, const wire::GiveBackT& ask) {
  for (const uint64_t number : ask.grants) {
    const auto at = grants_.find(number);
    // Who knows the number of one that is kept aside is its process.
    if (at != grants_.end() && (at->second.session == request.session || !at->second.session)) free(at);
  }
  context_.answer(request, wire::DoneT{});
}

void LaneDesk::reclaim(const Request& request, const wire::ReclaimT& ask) {
  for (const uint64_t number : ask.grants) {
    const auto at = grants_.find(number);
    if (at == grants_.end() || at->second.session) continue;
    at->second.session = request.session;
    at->second.aside = false;
    at->second.watched.reset();
  }
  context_.answer(request, wire::DoneT{});
}

bool LaneDesk::awaits(SessionId session) const {
  return std::ranges::any_of(awaited_,
                             [&](uint64_t number) { return grants_.at(number).session == session; });
}

void LaneDesk::said_all(SessionId session) {
  std::erase_if(awaited_, [&](uint64_t number) { return grants_.at(number).session == session; });
}

bool LaneDesk::recall() {
  std::set<SessionId> holders;
  for (const auto& [number, grant] : grants_) {
    if (grant.session && !grant.unnamed.empty()) holders.insert(*grant.session);
  }
  for (const SessionId id : holders) {
    const Session* session = context_.sessions.find(id);
    if (session == nullptr || !session->peer) continue;
    protocol::Body body;
    body.Set(wire::RecallT{});
    (void)context_.parts.transport.send(*session->peer, protocol::encode_message(0, std::move(body)));
  }
  return !holders.empty();
}

void LaneDesk::keep_aside(uint64_t number, Grant& grant) {
  awaited_.erase(number);
  grant.session.reset();
  grant.aside = true;
  grant.watched.emplace(grant.process);
}

void LaneDesk::session_gone(SessionId session, bool evicted) {
  for (auto at = grants_.begin(); at != grants_.end();) {
    if (at->second.session != session) {
      ++at;
    } else if (evicted) {
      keep_aside(at->first, at->second);
      ++at;
    } else {
      at = free(at);  // it said goodbye: it does not touch them any more
    }
  }
  if (evicted) tick();
}

void LaneDesk::end_recovery() {
  for (auto& [number, grant] : grants_) {
    if (!grant.session && !grant.aside) keep_aside(number, grant);
  }
  awaited_.clear();
  tick();
}

void LaneDesk::tick() {
  std::erase_if(awaited_, [&](uint64_t number) {
    const Grant& grant = grants_.at(number);
    return !grant.session && ProcessWatch(grant.process).ended();
  });
  for (auto at = grants_.begin(); at != grants_.end();) {
    at = at->second.aside && at->second.watched->ended() ? free(at) : std::next(at);
  }
}

uint64_t LaneDesk::granted_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, grant] : grants_) {
    for (const auto& [begin, end] : grant.unnamed) bytes += end - begin;
  }
  return bytes;
}

}  // namespace sluice::engine
