#include "client/lane.h"

#include <algorithm>

#include "base/log.h"
#include "client/summed_copy.h"
#include "protocol/lane_layout.h"

namespace sluice::client {
namespace {

constexpr uint64_t kFirstWantBytes = uint64_t{4} << 20;
constexpr uint64_t kMostWantBytes = uint64_t{32} << 20;

}  // namespace

void Lane::attach(std::span<const UniqueFd> lent, const wire::LaneT& terms) {
  const std::lock_guard lock(mutex_);
  if (!mapping_ || !mapping_->same(lent, terms)) mapping_ = HotMap::make(lent, terms);
  if (!mapping_) log::info("the hot tier cannot be mapped; its service is talked to as a distant one");
  if (mapping_) mapping_->set_expected_boot(terms.boot);
  board_.reset();
  if (lent.size() == 3) {
    auto board = SharedMapping::attach(lent[2], protocol::kChangeBoardBytes, /*writable=*/true);
    if (board) board_ = std::make_shared<const SharedMapping>(std::move(*board));
  }
  records_at_once_.store(terms.at_once);
  usable_.store(mapping_ != nullptr);
}

std::optional<Lane::Room> Lane::take(uint64_t bytes) {
  const uint64_t room = protocol::slab_footprint(bytes);
  const std::lock_guard lock(mutex_);
  for (Grant& grant : grants_) {
    if (grant.dead || grant.end - grant.at < room) continue;
    Room taken{grant.mapping, grant.number, grant.at, bytes};
    grant.at += room;
    ++grant.unsettled;
    return taken;
  }
  return std::nullopt;
}

uint64_t Lane::wanted_bytes() const {
  const std::lock_guard lock(mutex_);
  return std::max(next_want_, kFirstWantBytes);
}

std::optional<Lane::Room> Lane::add(const wire::LeasedT& leased, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t room = protocol::slab_footprint(bytes);
  if (!mapping_ || !mapping_->holds(leased.offset, leased.length) || leased.length < room)
    return std::nullopt;
  // What is left of the ones before is too small for what is written at this time.
  for (Grant& grant : grants_) grant.dead = true;
  grants_.push_back({leased.grant, leased.offset + room, leased.offset + leased.length, 1, false, mapping_});
  // Who goes on writing gets more at a time.
  next_want_ = std::min(kMostWantBytes, std::max(next_want_, kFirstWantBytes) * 2);
  return Room{mapping_, leased.grant, leased.offset, bytes};
}

void Lane::trim(Room& room, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t end = room.offset + protocol::slab_footprint(room.bytes);
  room.bytes = bytes;
  for (Grant& grant : grants_) {
    // Unless more was taken behind it.
    if (grant.number == room.grant && grant.at == end) grant.at = room.offset + protocol::slab_footprint(bytes);
  }
}

void Lane::settle(const Room& room) {
  const std::lock_guard lock(mutex_);
  for (Grant& grant : grants_) {
    if (grant.number == room.grant) --grant.unsettled;
  }
}

std::vector<uint32_t> Lane::fill(const Room& room, const Batch& batch) {
  room.mapping->make_present(room.offset, room.bytes);
  SummedCopy copy(room.mapping->at(room.offset));
  MemoryCursor memory(batch.memory);
  copy.append(memory, batch.bytes);
  return copy.finish();
}

std::vector<uint64_t> Lane::held() const {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> numbers;
  for (const Grant& grant : grants_) numbers.push_back(grant.number);
  return numbers;
}

std::vector<uint64_t> Lane::take_returns(bool idle) {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> numbers;
  std::erase_if(grants_, [&](Grant& grant) {
    if (idle) grant.dead = true;  // what is being written to is given back when that is over
    const bool over = grant.unsettled == 0 && (grant.dead || grant.at == grant.end);
    if (over) numbers.push_back(grant.number);
    return over;
  });
  return numbers;
}

void Lane::fenced() {
  const std::lock_guard lock(mutex_);
  for (Grant& grant : grants_) grant.dead = true;
}

ChangeMark Lane::mark_changes(ContainerId container) const {
  const std::lock_guard lock(mutex_);
  return {board_, container};
}

void Lane::note_change(ContainerId container) const {
  const std::lock_guard lock(mutex_);
  if (board_) protocol::change_word(board_->data(), container.value).fetch_add(1);
}

std::shared_ptr<const Told> Lane::told(wire::ReadDoneT answer, ChangeMark mark) const {
  const std::lock_guard lock(mutex_);
  if (!mapping_) return nullptr;
  // Asked before the service came back: another one answered, which moves other words.
  if (!mark.is_of(board_)) mark = {};
  return std::make_shared<const Told>(mapping_, std::move(answer), std::move(mark));
}

}  // namespace sluice::client
