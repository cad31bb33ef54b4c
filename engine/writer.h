#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <set>
#include <string>
#include <utility>

#include "engine/context.h"
#include "engine/lane_desk.h"
#include "engine/lock_desk.h"
#include "engine/open_files.h"

namespace sluice::engine {

// One Write request, from its message to its acknowledgement:
//
//   admit    room in the hot tier (or wait for the drain)
//   fetch    bytes from the message, or by RMA out of the client's memory; or they are in the hot tier
//            already, where the client put them (lane_desk.h)
//   check    CRC32C of every block, against what the client computed
//   record   one record in the staging log: from here on it survives a crash of the process
//   answer
//
// Bytes that the client put in place itself were not on any way, and are checked when they leave the hot
// tier.
//
// A Lease, which is room for such bytes, waits for it like a write.
//
// Loop thread; check and record run on a worker, or on the loop where appending to the log waits for no
// device.
class Writer {
 public:
  Writer(Context& context, OpenFiles& files, LockDesk& locks, LaneDesk& lane)
      : context_(context), files_(files), locks_(locks), lane_(lane) {}

  // A Write or a Lease.
  void write(const Request& request, const Message& message);
  // Somebody gave room back.
  void room_came_back() { drain_progress({}); }
  // The drain made room, or cannot. Loop thread.
  void drain_progress(const Result<>& outcome);

  // A client may have gone on from a write that waits here, and told others of it. Runs `work` when no write
  // through this handle waits any more that waits now; false, and nothing, when none does.
  bool after_waiting(uint64_t handle, std::function<void()> work);

 private:
  struct Waiting {
    Request request;
    Message message;
    uint64_t deadline_ms = 0;
    uint64_t number = 0;  // in the order they came
  };
  struct Later {
    uint64_t handle = 0;
    uint64_t number = 0;  // of the last write that it waits for
    std::function<void()> work;
  };
  void begin_waiting(const Waiting& write);
  void end_waiting(const Waiting& write);
  bool must_queue(const Waiting& write) const;
  // False when there is no room: nothing was done.
  bool admit(const Waiting& write);
  bool admit_lease(const Waiting& lease);
  bool admit_filled(const Waiting& write, OpenFile& file, TxnId txn);
  bool admit_copy(const Waiting& write, OpenFile& file, TxnId txn);
  void recorded(const Waiting& write, const Result<uint64_t>& record);
  static Length wanted(const Waiting& waiting);
  void wait_for_room(Waiting write);
  void give_up_waiting();
  void refuse_full(const Waiting& write, const std::string& why);
  void fetch(const Waiting& write, TxnId txn, const burst_buffer::Slab& slab);
  void record(const Waiting& write, TxnId txn, const burst_buffer::Slab& slab);
  Error full(const std::string& why) const;

  Context& context_;
  OpenFiles& files_;
  LockDesk& locks_;
  LaneDesk& lane_;
  std::deque<Waiting> waiting_;  // for room, in order
  uint64_t next_number_ = 1;
  // Handle and number of those that wait for room or for a commit; once for each.
  std::multiset<std::pair<uint64_t, uint64_t>> numbers_;
  std::list<Later> later_;
};

}  // namespace sluice::engine
