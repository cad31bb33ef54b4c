#include "transport/sim/sim_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "transport/sim/sim_host.h"

namespace sluice::transport {
namespace {

constexpr uint64_t kRetryUs = 50'000;  // how often what a partition holds back is tried again

Error gone(std::string message) {
  return Error(ErrorCode::kUnavailable, std::move(message)).mark_retryable();
}

std::pair<std::string, std::string> ordered(const std::string& a, const std::string& b) {
  return a < b ? std::pair(a, b) : std::pair(b, a);
}

}  // namespace

SimNetwork::SimNetwork(SimOptions options) : options_(options), rng_(options.seed) {
  SLUICE_ASSERT(options.min_delay_us <= options.max_delay_us && options.rma_piece_bytes > 0);
}

SimNetwork::~SimNetwork() {
  for (const auto& host : hosts_) host->die();  // whatever still destroys itself reaches nobody
}

void SimNetwork::at_us(uint64_t due_us, std::function<void()> work) {
  events_.emplace(std::pair(std::max(due_us, now_us_), next_event_++), std::move(work));
}

uint64_t SimNetwork::delay_us() {
  return options_.min_delay_us + rng_.below(options_.max_delay_us - options_.min_delay_us + 1);
}

SimNetwork::Host* SimNetwork::running_host(const std::string& name) const {
  const auto at = running_.find(name);
  return at == running_.end() ? nullptr : at->second;
}

bool SimNetwork::running(const std::string& host) const {
  return running_.contains(host);
}

Transport& SimNetwork::start(const std::string& name) {
  SLUICE_ASSERT(!running(name));
  hosts_.push_back(std::make_unique<Host>(*this, name));
  running_.emplace(name, hosts_.back().get());
  return *hosts_.back();
}

Transport& SimNetwork::restart(const std::string& host) {
  if (running(host)) crash(host);
  return start(host);
}

void SimNetwork::stop(const std::string& name) {
  Host* host = running_host(name);
  if (host == nullptr) return;
  const Error reason(ErrorCode::kAborted, "the transport was shut down");
  const std::map<uint64_t, EndRef> ends = host->ends();
  for (const auto& [peer, end] : ends) {
    Channel* channel = find(end.first);
    auto rmas = std::exchange(channel->ends[end.second].rmas, {});
    close(end, reason, /*tell_peer=*/true);
    for (auto& [id, rma] : rmas) rma.done(fail(reason));
  }
  host->die();
  running_.erase(name);
}

void SimNetwork::kill(const std::string& host) {
  end_host(host, /*silent=*/false, "its process ended");
}
void SimNetwork::crash(const std::string& host) {
  end_host(host, /*silent=*/true, "it crashed");
}

void SimNetwork::end_host(const std::string& name, bool silent, const std::string& why) {
  Host* host = running_host(name);
  if (host == nullptr) return;
  const std::map<uint64_t, EndRef> ends = host->ends();
  for (const auto& [peer, end] : ends) {
    Channel::End& mine = find(end.first)->ends[end.second];
    mine.open = false;
    mine.rmas.clear();
    host->remove_end(mine.peer);
    if (!silent)
      put(end, [this, other = EndRef(end.first, 1 - end.second), name, why] {
        lose(other, gone(name + ": " + why));
      });
    forget_if_over(end.first);
  }
  host->die();
  running_.erase(name);
}

void SimNetwork::partition(const std::string& a, const std::string& b) {
  parted_.insert(ordered(a, b));
}
void SimNetwork::heal(const std::string& a, const std::string& b) {
  parted_.erase(ordered(a, b));
}
void SimNetwork::heal_all() {
  parted_.clear();
}

bool SimNetwork::parted(const Channel& channel) const {
  return parted_.contains(ordered(channel.ends[0].host->name(), channel.ends[1].host->name()));
}

void SimNetwork::drain_posted() {
  std::deque<std::pair<Host*, std::function<void()>>> batch;
  {
    const std::lock_guard lock(posted_mutex_);
    batch.swap(posted_);
  }
  for (auto& [host, work] : batch) host->later_us(0, std::move(work));
}

bool SimNetwork::step() {
  drain_posted();
  if (events_.empty()) return false;
  auto next = events_.extract(events_.begin());
  now_us_ = next.key().first;
  ++events_done_;
  next.mapped()();
  return true;
}

bool SimNetwork::run_until(const std::function<bool()>& done, uint64_t max_virtual_ms) {
  const uint64_t limit_us = now_us_ + max_virtual_ms * 1000;
  while (!done()) {
    drain_posted();
    if (events_.empty() || events_.begin()->first.first > limit_us) {
      // Nothing more in time. Time passes all the same.
      now_us_ = limit_us;
      return done();
    }
    step();
  }
  return true;
}

void SimNetwork::run_for(uint64_t virtual_ms) {
  run_until([] { return false; }, virtual_ms);
}

SimNetwork::Channel* SimNetwork::find(uint64_t channel) {
  const auto at = channels_.find(channel);
  return at == channels_.end() ? nullptr : at->second.get();
}

Result<SimNetwork::EndRef> SimNetwork::open_channel(Host& from, const Address& address) {
  constexpr std::string_view kScheme = "sim://";
  if (!address.text.starts_with(kScheme) || address.text.size() == kScheme.size()) {
    return fail(ErrorCode::kInvalidArgument, "'" + address.text + "' is not an address; expected sim://NAME");
  }
  const std::string name = address.text.substr(kScheme.size());
  auto channel = std::make_unique<Channel>();
  const uint64_t id = channel->id = next_channel_++;
  const EndRef near(id, 0);
  channel->ends[0].host = &from;
  channel->ends[0].open = true;
  channel->ends[0].opened_ms = channel->ends[0].heard_ms = now_ms();
  channel->ends[0].peer = from.add_end(near);
  Host* to = running_host(name);
  channels_.emplace(id, std::move(channel));
  if (to == nullptr) {
    // Nobody of that name: the host says so, or is not there to say anything.
    channels_.at(id)->ends[1].host = &from;
    const uint64_t wait_us = rng_.below(2) == 0 ? delay_us() : options_.connect_timeout_ms * 1000;
    at_us(now_us_ + wait_us, [this, near, name] { lose(near, gone("nobody answers at sim://" + name)); });
    return near;
  }
  channels_.at(id)->ends[1].host = to;
  put(near, [this, far = EndRef(id, 1)] { greet(far); });
  at_us(now_us_ + options_.connect_timeout_ms * 1000, [this, near, name] {
    Channel* c = find(near.first);
    if (c != nullptr && c->ends[0].open && !c->ends[0].greeted)
      lose(near, gone("sim://" + name + " did not answer"));
  });
  watch(id);
  return near;
}

void SimNetwork::greet(EndRef at) {
  Channel& channel = *find(at.first);
  Channel::End& end = channel.ends[at.second];
  if (end.host->handler() == nullptr) return;  // not there, or not listening yet: the other side times out
  end.open = end.greeted = true;
  end.opened_ms = end.heard_ms = now_ms();
  end.peer = end.host->add_end(at);
  put(at, [this, near = EndRef(at.first, 0)] { find(near.first)->ends[0].greeted = true; });
  end.host->handler()->on_connected(end.peer);
}

void SimNetwork::put(EndRef from, std::function<void()> take_it) {
  Channel& channel = *find(from.first);
  const EndRef to(from.first, 1 - from.second);
  Channel::End& end = channel.ends[to.second];
  end.inbox.push_back(std::move(take_it));
  end.last_due_us = std::max(end.last_due_us, now_us_ + delay_us());
  at_us(end.last_due_us, [this, to] { take(to); });
}

void SimNetwork::take(EndRef to) {
  Channel* channel = find(to.first);
  if (channel == nullptr || channel->ends[to.second].inbox.empty()) return;
  if (parted(*channel)) {
    at_us(now_us_ + kRetryUs, [this, to] { take(to); });
    return;
  }
  const auto work = std::move(channel->ends[to.second].inbox.front());
  channel->ends[to.second].inbox.pop_front();
  if (channel->ends[to.second].host->alive()) work();
}

Result<> SimNetwork::send(EndRef from, std::vector<std::byte> message) {
  Channel& channel = *find(from.first);
  Channel::End& far = channel.ends[1 - from.second];
  if (far.messages_due >= kMaxQueuedMessages) {
    return fail(Error(ErrorCode::kBusy, fmt::format("{} messages wait already", kMaxQueuedMessages))
                    .mark_retryable());
  }
  ++far.messages_due;
  const bool lost = rng_.below(1'000'000) < options_.loss_per_million;
  put(from, [this, at = EndRef(from.first, 1 - from.second), lost, message = std::move(message)] {
    Channel::End& end = find(at.first)->ends[at.second];
    --end.messages_due;
    if (lost) end.deaf = true;
    if (!end.deaf) return arrive(at, message);
    if (!lost) return;
    // The receiver misses it at the next thing it hears: a message, or a keepalive.
    at_us(now_us_ + rng_.below(options_.keepalive_ms * 1000 + 1), [this, at] {
      lose(at, gone("a message was lost on the way"));
      lose({at.first, 1 - at.second}, gone("the other side missed a message"));
    });
  });
  return {};
}

void SimNetwork::arrive(EndRef at, const std::vector<std::byte>& message) {
  Channel::End& end = find(at.first)->ends[at.second];
  if (!end.open) {
    // This end is over; the sender learns it.
    put(at,
        [this, other = EndRef(at.first, 1 - at.second)] { lose(other, gone("the other side has closed")); });
    return;
  }
  end.heard_ms = now_ms();
  if (end.host->handler() != nullptr) end.host->handler()->on_message(end.peer, message);
}

void SimNetwork::close(EndRef ref, const Error& reason, bool tell_peer) {
  Channel::End& end = find(ref.first)->ends[ref.second];
  end.open = false;
  end.host->remove_end(end.peer);
  fail_rmas(ref, reason);
  if (!tell_peer) return forget_if_over(ref.first);
  put(ref, [this, other = EndRef(ref.first, 1 - ref.second), text = reason.message] {
    lose(other, gone("the peer closed the connection: " + text));
  });
}

void SimNetwork::fail_rmas(EndRef ref, const Error& reason) {
  Channel::End& end = find(ref.first)->ends[ref.second];
  for (auto& [id, rma] : std::exchange(end.rmas, {})) {
    end.host->later_us(0, [done = std::move(rma.done), reason] { done(fail(reason)); });
  }
}

void SimNetwork::lose(EndRef ref, const Error& reason) {
  Channel* channel = find(ref.first);
  if (channel == nullptr || !channel->ends[ref.second].open) return;
  Channel::End& end = channel->ends[ref.second];
  Host& host = *end.host;
  const PeerId peer = end.peer;
  end.open = false;
  auto rmas = std::exchange(end.rmas, {});
  host.remove_end(peer);
  forget_if_over(ref.first);
  for (auto& [id, rma] : rmas) rma.done(fail(reason));
  if (host.handler() != nullptr) host.handler()->on_disconnected(peer, reason);
}

// Keepalives and silence, for both ends.
void SimNetwork::watch(uint64_t id) {
  at_us(now_us_ + options_.keepalive_ms * 1000, [this, id] {
    Channel* channel = find(id);
    if (channel == nullptr) return;
    const bool hears = !parted(*channel);
    for (size_t i = 0; i < 2; ++i) {
      Channel::End& end = channel->ends[i];
      const Channel::End& other = channel->ends[1 - i];
      if (!end.open || !end.greeted) continue;
      // A process that runs answers, if only that it knows no such connection any more.
      if (hears && other.open) end.heard_ms = now_ms();
      if (now_ms() - end.heard_ms < options_.peer_timeout_ms) continue;
      lose({id, i}, gone(fmt::format("the peer was silent for {} ms", now_ms() - end.heard_ms)));
      if (find(id) == nullptr) return;
    }
    watch(id);
  });
}

void SimNetwork::forget_if_over(uint64_t id) {
  Channel* channel = find(id);
  if (channel == nullptr || channel->ends[0].open || channel->ends[1].open) return;
  // Later than anything that is under way, and than a caller that still holds a reference.
  at_us(now_us_ + options_.max_delay_us + 1, [this, id] {
    Channel* over = find(id);
    if (over == nullptr || over->ends[0].open || over->ends[1].open) return;
    if (!over->ends[0].inbox.empty() || !over->ends[1].inbox.empty()) return forget_if_over(id);
    channels_.erase(id);
  });
}

void SimNetwork::start_rma(EndRef end, Rma rma) {
  const uint64_t id = next_rma_++;
  find(end.first)->ends[end.second].rmas.emplace(id, std::move(rma));
  at_us(now_us_ + delay_us(), [this, end, id] { move_piece(end, id); });
}

void SimNetwork::move_piece(EndRef ref, uint64_t id) {
  Channel* channel = find(ref.first);
  if (channel == nullptr) return;
  auto& rmas = channel->ends[ref.second].rmas;
  const auto at = rmas.find(id);
  if (at == rmas.end()) return;
  Host& owner = *channel->ends[1 - ref.second].host;
  const bool greeted = channel->ends[ref.second].greeted;
  if (parted(*channel) || !owner.alive() || !greeted) {
    at_us(now_us_ + kRetryUs, [this, ref, id] { move_piece(ref, id); });  // until the silence is too long
    return;
  }
  Rma& rma = at->second;
  const auto region = owner.regions().find(rma.buffer.key);
  const Access needed = rma.pull ? Access::kRemoteRead : Access::kRemoteWrite;
  if (region == owner.regions().end() || region->second.access != needed ||
      rma.offset + rma.length > region->second.memory.size()) {
    return finish_rma(ref, id, fail(ErrorCode::kIo, "the peer's memory cannot be reached"));
  }
  const size_t piece = std::min(options_.rma_piece_bytes, rma.length - rma.moved);
  std::byte* remote = region->second.memory.data() + rma.offset + rma.moved;
  std::byte* local = rma.local + rma.moved;
  if (rma.pull) {
    std::memcpy(local, remote, piece);
  } else {
    std::memcpy(remote, local, piece);
  }
  rma.moved += piece;
  if (rma.moved == rma.length) return finish_rma(ref, id, {});
  at_us(now_us_ + delay_us(), [this, ref, id] { move_piece(ref, id); });
}

void SimNetwork::finish_rma(EndRef ref, uint64_t id, Result<> outcome) {
  Channel::End& end = find(ref.first)->ends[ref.second];
  auto node = end.rmas.extract(id);
  if (end.host->alive()) node.mapped().done(std::move(outcome));
}

}  // namespace sluice::transport
