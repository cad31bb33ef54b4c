#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "engine/context.h"
#include "engine/lock_desk.h"
#include "engine/open_files.h"

namespace sluice::engine {

// One Write request, from its message to its acknowledgement:
//
//   admit    room in the hot tier (or wait for the drain)
//   fetch    bytes from the message, or by RMA out of the client's memory
//   check    CRC32C of every block, against what the client computed
//   record   one record in the staging log: from here on it survives a crash of the process
//   answer
//
// Loop thread; check and record run on a worker.
class Writer {
 public:
  Writer(Context& context, OpenFiles& files, LockDesk& locks)
      : context_(context), files_(files), locks_(locks) {}

  void write(const Request& request, const Message& message);
  // The drain made room, or cannot. Loop thread.
  void drain_progress(const Result<>& outcome);

 private:
  struct Waiting {
    Request request;
    Message message;
    uint64_t deadline_ms = 0;
  };
  // False when there is no room: nothing was done.
  bool admit(const Waiting& write);
  void wait_for_room(Waiting write);
  void give_up_waiting();
  void fetch(const Waiting& write, TxnId txn, const burst_buffer::Slab& slab);
  void record(const Waiting& write, TxnId txn, const burst_buffer::Slab& slab);
  Error full(const std::string& why) const;

  Context& context_;
  OpenFiles& files_;
  LockDesk& locks_;
  std::deque<Waiting> waiting_;  // for room, in order; none overtakes
};

}  // namespace sluice::engine
