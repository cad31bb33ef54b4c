#include "lockmgr/client.h"

#include <algorithm>

#include "base/assert.h"

namespace sluice::lockmgr {

namespace {

constexpr IntervalTree::Party kHeld = 1;  // in a client's tree of locks all are its own
constexpr Extent kWholeFile{Offset(0), Offset(kMaxFileBytes)};

// The answers to one question that was asked in several requests.
struct Gathered {
  size_t parts_left;
  Result<std::vector<ExtentAnswer>> all;
  LockCache::AskedAhead done;

  void add(const Result<std::vector<ExtentAnswer>>& part) {
    if (!part) {
      all = fail(part.error());
    } else if (all) {
      all->insert(all->end(), part->begin(), part->end());
    }
    if (--parts_left == 0 && done) done(all);
  }
};

}  // namespace

LockUse& LockUse::operator=(LockUse&& other) noexcept {
  if (this == &other) return *this;
  end();
  cache_ = std::exchange(other.cache_, nullptr);
  container_ = other.container_;
  entry_ = other.entry_;
  holds_ = other.holds_;
  return *this;
}

LockToken LockUse::token() const {
  return {container_, cache_ != nullptr ? cache_->entries_[entry_].handle : kNoLock};
}

void LockUse::end() {
  if (cache_ != nullptr) std::exchange(cache_, nullptr)->end_use(entry_, holds_);
}

LockCache::LockCache(const Clock& clock, LockRequester& requester, LockFlusher& flusher, Options options)
    : clock_(clock), requester_(requester), flusher_(flusher), options_(options) {}

LockCache::~LockCache() {
  SLUICE_ASSERT(uses_ == 0);
}

LockCache::File& LockCache::file(ContainerId container) {
  File& file = files_[container];
  if (!file.strategy) file.strategy = std::make_unique<StandardStrategy>();
  return file;
}

void LockCache::use_strategy(ContainerId container, std::unique_ptr<LockStrategy> strategy) {
  file(container).strategy = std::move(strategy);
}

bool LockCache::serves(const Entry& entry, const Need& need) {
  // A group's lock lets its other members in.
  if (need.holds) return !entry.revoked && mode_covers(entry.mode, entry.group, need.access, GroupId(0));
  return (!entry.revoked || entry.holds > 0) && mode_permits(entry.mode, need.access);
}

uint32_t LockCache::find_serving(const File& file, const Need& need) const {
  uint32_t found = kNoEntry;
  file.held.visit_containing(need.extent, [&](uint32_t index, IntervalTree::Party) {
    if (serves(entries_[index], need)) found = index;
    return found == kNoEntry;
  });
  return found;
}

void LockCache::acquire(ContainerId container, Extent extent, LockMode access, Acquired done) {
  SLUICE_ASSERT(extent.valid() && !extent.empty() && access != LockMode::kGroup);
  const Need need{extent, access};
  File& of = file(container);
  of.dropped = false;
  ++of.counts.acquires;
  const bool held = find_serving(of, need) != kNoEntry;
  const LockPlan plan = of.strategy->plan(extent, access, held);
  SLUICE_ASSERT(!plan.lock || (plan.extent.contains(extent) && mode_permits(plan.mode, access)));
  if (!plan.lock || held) ++of.counts.from_cache;
  if (!plan.lock) return done(LockUse(container));
  give_back_unused(container, plan.unwanted);
  Waiter waiter{need, plan.mode, plan.group, plan.extent, plan.expand, std::move(done)};
  const uint32_t index = find_serving(of, need);
  if (index == kNoEntry) {
    serve(container, std::move(waiter));
    send_ahead(container, plan.mode, plan.group, plan.ahead, {});
    return;
  }
  LockUse use = begin_use(index, need);
  send_ahead(container, plan.mode, plan.group, plan.ahead, {});
  waiter.done(std::move(use));
}

void LockCache::hold(ContainerId container, Extent extent, LockMode access, Acquired done) {
  SLUICE_ASSERT(extent.valid() && !extent.empty() && access != LockMode::kGroup);
  File& of = file(container);
  of.dropped = false;
  ++of.counts.acquires;
  const Need need{extent, access, true};
  if (find_serving(of, need) != kNoEntry) ++of.counts.from_cache;
  serve(container, {need, access, GroupId(0), extent, /*expand=*/false, std::move(done)});
}

void LockCache::serve(ContainerId container, Waiter waiter) {
  File& of = file(container);
  const uint32_t held = find_serving(of, waiter.need);
  if (held != kNoEntry) return waiter.done(begin_use(held, waiter.need));
  if (Pending* ahead = find_asked(of, waiter.need.extent, waiter.need.access)) {
    ahead->waiters.push_back(std::move(waiter));
  } else {
    ask(container, std::move(waiter));
  }
}

// The request ahead, not answered yet, that covers this access if it is granted.
LockCache::Pending* LockCache::find_asked(const File& file, const Extent& extent, LockMode access) {
  uint32_t asked = 0;
  file.asked.visit_containing(extent, [&](uint32_t id, IntervalTree::Party party) {
    if (mode_permits(static_cast<LockMode>(party), access)) asked = id;
    return asked == 0;
  });
  if (asked == 0) return nullptr;
  for (auto& [id, pending] : pending_) {
    if ((pending.ask.flags & kSpeculative) != 0 && asked - pending.first_asked < pending.ask.extents.size())
      return &pending;
  }
  return nullptr;
}

void LockCache::ask(ContainerId container, Waiter waiter) {
  for (auto& [id, pending] : pending_) {
    const LockAsk& asked = pending.ask;
    if (asked.container != container || (asked.flags & kBlocking) == 0) continue;
    if (!asked.extents.front().contains(waiter.wanted)) continue;
    if (!mode_covers(asked.mode, asked.group, waiter.mode, waiter.group)) continue;
    pending.waiters.push_back(std::move(waiter));
    return;
  }
  const RequestId id(next_request_++);
  const uint32_t flags = kBlocking | (waiter.expand ? 0u : kNoExpand);
  Pending& pending = pending_[id];
  pending.ask = {id, container, waiter.mode, waiter.group, flags, {waiter.wanted}};
  pending.waiters.push_back(std::move(waiter));
  ++file(container).counts.asked;
  send(pending.ask);
}

// Only what lies there asked ahead and was never used.
void LockCache::give_back_unused(ContainerId container, std::span<const Extent> extents) {
  if (extents.empty()) return;
  release_together([&] {
    for (const Extent& extent : extents) {
      uint32_t found = kNoEntry;
      file(container).held.visit_containing(extent, [&](uint32_t index, IntervalTree::Party) {
        const Entry& entry = entries_[index];
        if (entry.extent == extent && entry.idle && !entry.ordinary && !entry.used) found = index;
        return found == kNoEntry;
      });
      if (found != kNoEntry) close(found);
    }
  });
}

void LockCache::ask_ahead(ContainerId container, LockMode mode, std::span<const Extent> extents,
                          AskedAhead done) {
  send_ahead(container, mode, GroupId(0), extents, std::move(done));
}

void LockCache::expect(ContainerId container, std::span<const Extent> writes) {
  File& of = file(container);
  of.dropped = false;
  send_ahead(container, LockMode::kPw, GroupId(0), of.strategy->expect(writes), {});
}

bool LockCache::held_or_asked(const File& file, LockMode mode, GroupId group, const Extent& extent) const {
  bool found = false;
  file.held.visit_containing(extent, [&](uint32_t index, IntervalTree::Party) {
    const Entry& entry = entries_[index];
    found = !entry.revoked && !entry.closing && mode_covers(entry.mode, entry.group, mode, group);
    return !found;
  });
  if (found) return true;
  file.asked.visit_containing(extent, [&](uint32_t, IntervalTree::Party party) {
    found = party == static_cast<IntervalTree::Party>(mode);
    return !found;
  });
  return found;
}

void LockCache::send_ahead(ContainerId container, LockMode mode, GroupId group,
                           std::span<const Extent> extents, AskedAhead done) {
  File& of = file(container);
  std::vector<Extent> wanted;
  for (const Extent& extent : extents) {
    SLUICE_ASSERT(extent.valid() && !extent.empty());
    if (!held_or_asked(of, mode, group, extent)) wanted.push_back(extent);
  }
  if (wanted.empty()) {
    if (done) done(std::vector<ExtentAnswer>{});
    return;
  }
  // `done` hears of all parts together. They are answered in the order asked, so what is heard stays in order
  // too.
  const size_t parts = (wanted.size() + kMaxExtentsPerRequest - 1) / kMaxExtentsPerRequest;
  const auto gathered = std::make_shared<Gathered>(Gathered{parts, {}, std::move(done)});
  for (size_t from = 0; from < wanted.size(); from += kMaxExtentsPerRequest) {
    const size_t to = std::min(wanted.size(), from + kMaxExtentsPerRequest);
    const RequestId id(next_request_++);
    Pending& pending = pending_[id];
    pending.ask = {id, container, mode, group, kSpeculative | kNoExpand, {}};
    pending.ask.extents.assign(wanted.begin() + static_cast<ptrdiff_t>(from),
                               wanted.begin() + static_cast<ptrdiff_t>(to));
    pending.asked_ahead = [gathered](const auto& part) { gathered->add(part); };
    pending.first_asked = next_asked_;
    for (const Extent& extent : pending.ask.extents) {
      of.asked.insert(extent, static_cast<IntervalTree::Party>(mode), next_asked_++);
    }
    ++of.counts.ahead_requests;
    of.counts.ahead_extents += pending.ask.extents.size();
    send(pending.ask);
  }
}

// Whether an answer can be one to that question. A server that says anything else is not to be trusted with
// data.
bool LockCache::credible(const Pending& pending, ContainerId container,
                         const std::vector<ExtentAnswer>& answers) const {
  const LockAsk& ask = pending.ask;
  if (container != ask.container || answers.size() != ask.extents.size()) return false;
  for (size_t i = 0; i < answers.size(); ++i) {
    const ExtentAnswer& a = answers[i];
    if (a.answer == LockAnswer::kDropped) {
      if ((ask.flags & kBlocking) != 0) return false;
      continue;
    }
    if (a.handle == kNoLock || !a.extent.valid() || !a.extent.contains(ask.extents[i])) return false;
    const bool known = by_handle_.contains({container, a.handle});
    if (a.answer == LockAnswer::kGranted && (known || a.mode != ask.mode)) return false;
  }
  return true;
}

void LockCache::on_answer(RequestId request, ContainerId container,
                          const std::vector<ExtentAnswer>& answers) {
  const auto at = pending_.find(request);
  if (at == pending_.end()) {
    std::vector<LockHandle> not_wanted;
    for (const ExtentAnswer& a : answers) {
      const bool ours = by_handle_.contains({container, a.handle});
      if (a.answer == LockAnswer::kGranted && !ours) not_wanted.push_back(a.handle);
    }
    if (!not_wanted.empty()) send_release(container, not_wanted);
    return;
  }
  Pending pending = std::move(at->second);
  pending_.erase(at);
  end_asked(pending);
  if (!credible(pending, container, answers)) {
    fail_pending(pending, Error(ErrorCode::kProtocol,
                                "the lock server's answer does not fit the request; "
                                "check that client and server are of the same version"));
  } else if ((pending.ask.flags & kBlocking) != 0) {
    answer_waiters(pending, answers.front());
  } else {
    LockCounts& counts = file(container).counts;
    for (const ExtentAnswer& a : answers) {
      counts.ahead_dropped += a.answer == LockAnswer::kDropped ? 1 : 0;
      counts.ahead_covered += a.answer == LockAnswer::kCovered || a.answer == LockAnswer::kSame ? 1 : 0;
    }
    release_together([&] {
      for (size_t i = 0; i < answers.size(); ++i) {
        if (answers[i].answer != LockAnswer::kGranted) continue;
        settle(add_entry(pending.ask, pending.ask.extents[i], answers[i]));
      }
    });
    for (Waiter& w : pending.waiters) serve(container, std::move(w));
    if (pending.asked_ahead) pending.asked_ahead(answers);
  }
  forget_file_if_done(container);
}

void LockCache::answer_waiters(Pending& pending, const ExtentAnswer& answer) {
  const ContainerId container = pending.ask.container;
  uint32_t index = kNoEntry;
  if (answer.answer == LockAnswer::kGranted) {
    index = add_entry(pending.ask, pending.ask.extents.front(), answer);
  } else if (const auto at = by_handle_.find({container, answer.handle}); at != by_handle_.end()) {
    // Said before any revoke of it that could follow.
    if (!entries_[at->second].revoked) index = at->second;
  }
  if (index == kNoEntry) {
    // The lock that made a new one needless was given back meanwhile.
    for (Waiter& w : pending.waiters) serve(container, std::move(w));
    return;
  }
  // All uses begin before any callback can end one.
  std::vector<LockUse> uses;
  for (const Waiter& w : pending.waiters) uses.push_back(begin_use(index, w.need));
  if (answer.answer == LockAnswer::kGranted) absorb(index);
  for (size_t i = 0; i < uses.size(); ++i) pending.waiters[i].done(std::move(uses[i]));
}

void LockCache::on_error(RequestId request, const Error& error) {
  const auto at = pending_.find(request);
  if (at == pending_.end()) return;
  Pending pending = std::move(at->second);
  pending_.erase(at);
  end_asked(pending);
  // That nothing could be asked ahead is no reason to fail an access.
  if ((pending.ask.flags & kSpeculative) != 0) {
    for (Waiter& w : std::exchange(pending.waiters, {})) ask(pending.ask.container, std::move(w));
  }
  fail_pending(pending, error);
  forget_file_if_done(pending.ask.container);
}

void LockCache::fail_pending(Pending& pending, const Error& error) {
  for (Waiter& w : pending.waiters) w.done(fail(error));
  if (pending.asked_ahead) pending.asked_ahead(fail(error));
}

void LockCache::end_asked(const Pending& pending) {
  if ((pending.ask.flags & kSpeculative) == 0) return;
  File& of = file(pending.ask.container);
  uint32_t id = pending.first_asked;
  for (const Extent& extent : pending.ask.extents) of.asked.erase(extent, id++);
}

uint32_t LockCache::add_entry(const LockAsk& ask, const Extent& asked, const ExtentAnswer& answer) {
  if (free_entries_.empty()) {
    free_entries_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t index = free_entries_.back();
  free_entries_.pop_back();
  File& of = file(ask.container);
  Entry& entry = entries_[index];
  entry = Entry();
  entry.container = ask.container;
  entry.handle = answer.handle;
  entry.mode = answer.mode;
  entry.group = ask.group;
  entry.extent = answer.extent;
  entry.serial = next_serial_++;
  entry.live = true;
  entry.ordinary = (ask.flags & kBlocking) != 0;
  ++of.counts.grants;
  of.counts.expansions += entry.extent != asked ? 1 : 0;
  of.held.insert(entry.extent, kHeld, index);
  by_handle_[{entry.container, entry.handle}] = index;
  return index;
}

LockUse LockCache::begin_use(uint32_t index, const Need& need) {
  end_idle(index);
  Entry& entry = entries_[index];
  SLUICE_ASSERT(entry.live && (!entry.revoked || entry.holds > 0));
  entry.closing = false;
  entry.used = true;
  entry.written = entry.written || need.access == LockMode::kPw;
  ++entry.users;
  entry.holds += need.holds ? 1 : 0;
  ++uses_;
  return LockUse(this, entry.container, index, need.holds);
}

void LockCache::end_use(uint32_t index, bool holds) {
  Entry& entry = entries_[index];
  SLUICE_ASSERT(entry.users > 0 && (!holds || entry.holds > 0));
  --entry.users;
  entry.holds -= holds ? 1 : 0;
  --uses_;
  if (entry.users > 0) return;
  if (entry.live) {
    settle(index);
  } else {
    free_entries_.push_back(index);
  }
}

// Decides what becomes of a lock that nobody uses now.
void LockCache::settle(uint32_t index) {
  Entry& entry = entries_[index];
  if (entry.users > 0 || entry.flushing) return;
  entry.closing = entry.closing || file(entry.container).dropped;
  if (!entry.revoked && !entry.closing) return make_idle(index);
  if (entry.written) return start_flush(index);
  const ContainerId container = entry.container;
  const LockHandle handle = entry.handle;
  forget(index);
  release(container, handle);
  forget_file_if_done(container);
}

void LockCache::release(ContainerId container, LockHandle handle) {
  if (gathering_) {
    to_release_[container].push_back(handle);
  } else {
    send_release(container, {handle});
  }
}

void LockCache::send_release(ContainerId container, const std::vector<LockHandle>& handles) {
  if (const auto at = files_.find(container); at != files_.end()) ++at->second.counts.releases;
  requester_.send_release(container, handles);
}

void LockCache::release_together(const std::function<void()>& work) {
  if (gathering_) return work();
  gathering_ = true;
  work();
  gathering_ = false;
  for (const auto& [container, handles] : std::exchange(to_release_, {})) send_release(container, handles);
}

void LockCache::start_flush(uint32_t index) {
  Entry& entry = entries_[index];
  entry.flushing = true;
  entry.written = false;
  const uint64_t serial = entry.serial;
  flusher_.flush(entry.container, entry.extent, [this, index, serial] {
    Entry& flushed = entries_[index];
    if (!flushed.live || flushed.serial != serial) return;
    flushed.flushing = false;
    settle(index);
  });
}

void LockCache::make_idle(uint32_t index) {
  Entry& entry = entries_[index];
  if (!entry.idle) {
    entry.place = idle_.insert(idle_.end(), index);
    entry.idle = true;
    entry.idle_since_ms = clock_.now_ms();
  }
  if (idle_.size() <= options_.max_idle_locks) return;
  // Some more at once, so that a client that takes lock after lock does not give back one for each.
  const size_t keep = options_.max_idle_locks - options_.max_idle_locks / 8;
  release_together([&] {
    while (idle_.size() > keep) close(idle_.front());
  });
}

void LockCache::end_idle(uint32_t index) {
  Entry& entry = entries_[index];
  if (entry.idle) idle_.erase(entry.place);
  entry.idle = false;
}

void LockCache::close(uint32_t index) {
  end_idle(index);
  entries_[index].closing = true;
  settle(index);
}

// A new lock makes smaller ones needless.
void LockCache::absorb(uint32_t index) {
  const Extent extent = entries_[index].extent;
  const ContainerId container = entries_[index].container;
  std::vector<uint32_t> needless;
  file(container).held.visit_overlapping(
      extent, IntervalTree::kNobody, [&](uint32_t other, IntervalTree::Party) {
        const Entry& large = entries_[index];
        const Entry& small = entries_[other];
        const bool inside = other != index && extent.contains(small.extent) &&
                            mode_covers(large.mode, large.group, small.mode, small.group);
        // Idle: neither used, nor asked back, nor being flushed.
        if (inside && small.idle) needless.push_back(other);
        return true;
      });
  if (needless.empty()) return;
  std::vector<LockHandle> handles;
  for (const uint32_t other : needless) {
    entries_[index].written = entries_[index].written || entries_[other].written;
    handles.push_back(entries_[other].handle);
    forget(other);
  }
  send_release(container, handles);
}

void LockCache::forget(uint32_t index) {
  end_idle(index);
  Entry& entry = entries_[index];
  SLUICE_ASSERT(entry.live);
  file(entry.container).held.erase(entry.extent, index);
  by_handle_.erase({entry.container, entry.handle});
  entry.live = false;
  entry.serial = 0;
  if (entry.users == 0) free_entries_.push_back(index);
}

void LockCache::forget_file_if_done(ContainerId container) {
  const auto at = files_.find(container);
  if (at == files_.end() || !at->second.dropped || !at->second.held.empty()) return;
  for (const auto& [id, pending] : pending_) {
    if (pending.ask.container == container) return;
  }
  files_.erase(at);
}

void LockCache::on_revoke(ContainerId container, std::span<const LockHandle> handles) {
  release_together([&] {
    for (const LockHandle handle : handles) {
      const auto at = by_handle_.find({container, handle});
      // Already given back: the two messages crossed.
      if (at == by_handle_.end()) continue;
      ++file(container).counts.revokes;
      end_idle(at->second);
      entries_[at->second].revoked = true;
      settle(at->second);
    }
  });
}

std::vector<uint32_t> LockCache::entries_of(const File& file) const {
  std::vector<uint32_t> all;
  file.held.visit_overlapping(kWholeFile, IntervalTree::kNobody, [&](uint32_t index, IntervalTree::Party) {
    all.push_back(index);
    return true;
  });
  return all;
}

void LockCache::drop(ContainerId container) {
  const auto at = files_.find(container);
  if (at == files_.end()) return;
  at->second.dropped = true;
  release_together([&] {
    for (const uint32_t index : entries_of(at->second)) close(index);
  });
  forget_file_if_done(container);
}

void LockCache::tick() {
  const uint64_t now_ms = clock_.now_ms();
  release_together([&] {
    while (!idle_.empty() && entries_[idle_.front()].idle_since_ms + options_.max_idle_ms <= now_ms) {
      close(idle_.front());
    }
  });
}

void LockCache::session_lost() {
  suspended_ = false;
  for (const auto& [container, of] : files_) {
    for (const uint32_t index : entries_of(of)) forget(index);
  }
  std::map<RequestId, Pending> unanswered = std::move(pending_);
  pending_.clear();
  for (auto& [id, pending] : unanswered) {
    end_asked(pending);
  }
  for (auto& [id, pending] : unanswered) {
    fail_pending(pending, Error(ErrorCode::kFenced,
                                "the lock server no longer knows this session: it was silent too "
                                "long or the server lost it; open the file again"));
  }
}

std::map<ContainerId, std::vector<HeldLock>> LockCache::held() const {
  std::map<ContainerId, std::vector<HeldLock>> all;
  for (const auto& [container, of] : files_) {
    for (const uint32_t index : entries_of(of)) {
      const Entry& entry = entries_[index];
      all[container].push_back({entry.handle, entry.mode, entry.group, entry.extent, entry.ordinary});
    }
  }
  return all;
}

void LockCache::replayed(ContainerId container, std::span<const HeldLock> held,
                         std::span<const LockHandle> handles) {
  SLUICE_ASSERT(held.size() == handles.size());
  std::vector<uint32_t> indexes;
  // All old names go before any new one comes: a new one may look like another's old one.
  for (const HeldLock& lock : held) {
    const auto at = by_handle_.find({container, lock.handle});
    indexes.push_back(at == by_handle_.end() ? kNoEntry : at->second);
    if (at != by_handle_.end() && handles[indexes.size() - 1] == kNoLock) forget(at->second);
  }
  for (const HeldLock& lock : held) by_handle_.erase({container, lock.handle});
  std::vector<LockHandle> not_wanted;
  for (size_t i = 0; i < held.size(); ++i) {
    if (handles[i] == kNoLock) continue;
    if (indexes[i] == kNoEntry) {
      // Given back while the replay was on its way.
      not_wanted.push_back(handles[i]);
    } else {
      entries_[indexes[i]].handle = handles[i];
      by_handle_[{container, handles[i]}] = indexes[i];
    }
  }
  if (!not_wanted.empty()) send_release(container, not_wanted);
}

LockToken LockCache::covering(ContainerId container, const Extent& extent, LockMode access) const {
  LockToken token{container, kNoLock};
  const auto at = files_.find(container);
  if (at == files_.end()) return token;
  at->second.held.visit_containing(extent, [&](uint32_t index, IntervalTree::Party) {
    if (mode_permits(entries_[index].mode, access)) token.handle = entries_[index].handle;
    return token.handle == kNoLock;
  });
  return token;
}

LockCounts LockCache::counts(ContainerId container) const {
  const auto at = files_.find(container);
  return at == files_.end() ? LockCounts{} : at->second.counts;
}

const LockStrategy* LockCache::strategy(ContainerId container) const {
  const auto at = files_.find(container);
  return at == files_.end() ? nullptr : at->second.strategy.get();
}

void LockCache::send(const LockAsk& ask) {
  if (!suspended_) requester_.send_request(ask);
}

void LockCache::resend() {
  suspended_ = false;
  for (const auto& [id, pending] : pending_) send(pending.ask);
}

}  // namespace sluice::lockmgr
