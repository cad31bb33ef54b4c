#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "transport/transport.h"

// A network in one thread and in virtual time. Everything it decides comes from one seed, so a run replays
// exactly as long as its users decide nothing by other means (addresses of objects, hash order, real time).
//
// Thread rule: one thread, but for post(). Time passes only inside step() and run_until(); callbacks run
// there.
//
// What it does to its users, within the contract of transport.h:
//   - every message and every piece of RMA takes a random delay; connections overtake each other, one
//   connection's
//     messages keep their order;
//   - a message may be lost: then the connection ends, as a lost message does, and nothing sent after it
//   arrives;
//   - a partition holds messages back. Healed in time, they arrive late; otherwise both ends time out;
//   - a pull or push is copied piece by piece, other events in between, so readers may see torn bytes. An
//   exposure that
//     is gone, of the wrong kind or too short ends it with kIo; only the pieces before were copied;
//   - a host that crashes falls silent: its timers, posted work, handlers and completions never run again,
//   its memory
//     is not touched again, and its peers time out. One that is killed is missed within a message's delay.
namespace sluice::transport {

struct SimOptions {
  uint64_t seed = 1;
  uint64_t min_delay_us = 20;
  uint64_t max_delay_us = 500;
  uint32_t loss_per_million = 0;  // of messages
  size_t rma_piece_bytes = 256 * 1024;
  uint64_t keepalive_ms = 1000;
  uint64_t peer_timeout_ms = 10000;
  uint64_t connect_timeout_ms = 5000;
};

class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options);
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;
  ~SimNetwork();

  // Boots a host that is not running; its address is "sim://NAME". The transport belongs to the network and
  // stays valid, though dead after crash, kill or stop, as long as the network lives.
  Transport& start(const std::string& host);
  // The process ends in order: peers are told, outstanding completions run with kAborted.
  void stop(const std::string& host);
  void kill(const std::string& host);
  void crash(const std::string& host);
  // crash() if it runs, then start().
  Transport& restart(const std::string& host);
  bool running(const std::string& host) const;

  // Nothing passes between the two hosts until heal().
  void partition(const std::string& a, const std::string& b);
  void heal(const std::string& a, const std::string& b);
  void heal_all();

  // Does the next thing, moving time to when it is due. False when there is nothing to do at any time.
  bool step();
  // Steps until `done` holds. False when it does not within max_virtual_ms.
  bool run_until(const std::function<bool()>& done, uint64_t max_virtual_ms);
  void run_for(uint64_t virtual_ms);

  // For models of what takes less than a millisecond: runs `work` then, whatever has become of any host.
  void after_us(uint64_t delay_us, std::function<void()> work) { at_us(now_us_ + delay_us, std::move(work)); }

  uint64_t now_us() const { return now_us_; }
  uint64_t now_ms() const { return now_us_ / 1000; }
  const Clock& clock() const { return clock_; }
  Rng& rng() { return rng_; }
  uint64_t seed() const { return options_.seed; }
  uint64_t events() const { return events_done_; }

 private:
  class Host;
  class Exposure;
  struct Channel;
  struct Rma;

  class VirtualClock final : public Clock {
   public:
    explicit VirtualClock(const SimNetwork& network) : network_(network) {}
    uint64_t now_ms() const override { return network_.now_ms(); }

   private:
    const SimNetwork& network_;
  };

  using EndRef = std::pair<uint64_t, size_t>;  // channel, 0 for the end that connected or 1

  void at_us(uint64_t due_us, std::function<void()> work);
  uint64_t delay_us();
  Host* running_host(const std::string& name) const;
  void end_host(const std::string& name, bool silent, const std::string& why);
  bool parted(const Channel& channel) const;
  Channel* find(uint64_t channel);

  Result<EndRef> open_channel(Host& from, const Address& address);
  // Puts something into the other end's inbox, to be taken in order.
  void put(EndRef from, std::function<void()> take);
  void take(EndRef to);
  Result<> send(EndRef from, std::vector<std::byte> message);
  void arrive(EndRef at, const std::vector<std::byte>& message);
  void greet(EndRef at);
  void close(EndRef end, const Error& reason, bool tell_peer);
  // The end learns that the connection is over.
  void lose(EndRef end, const Error& reason);
  void fail_rmas(EndRef end, const Error& reason);
  void watch(uint64_t channel);
  void forget_if_over(uint64_t channel);

  void start_rma(EndRef end, Rma rma);
  void move_piece(EndRef end, uint64_t rma);
  void finish_rma(EndRef end, uint64_t rma, Result<> outcome);
  void drain_posted();

  const SimOptions options_;
  SeededRng rng_;
  VirtualClock clock_{*this};
  uint64_t now_us_ = 1'000'000;
  uint64_t events_done_ = 0;
  uint64_t next_event_ = 1;
  std::map<std::pair<uint64_t, uint64_t>, std::function<void()>> events_;  // by due time, then order

  std::vector<std::unique_ptr<Host>> hosts_;  // every incarnation
  std::map<std::string, Host*> running_;
  std::set<std::pair<std::string, std::string>> parted_;
  std::map<uint64_t, std::unique_ptr<Channel>> channels_;
  uint64_t next_channel_ = 1;
  uint64_t next_rma_ = 1;

  std::mutex posted_mutex_;
  std::deque<std::pair<Host*, std::function<void()>>> posted_;
};

}  // namespace sluice::transport
