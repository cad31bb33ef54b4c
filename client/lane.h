#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os.h"
#include "base/result.h"
#include "base/shared_mapping.h"
#include "client/client.h"
#include "client/hot_map.h"
#include "client/pieces.h"
#include "client/told.h"
#include "protocol/message.h"

// The local lane, seen from the process that uses it: the hot tier of a service on the same host, mapped. A
// write copies its bytes into a part of it that the service granted, and tells the service where; a read is
// told where its bytes lie, and copies them out.
//
// Thread rule: attach(), detach(), fenced() on the loop thread; the rest any thread.
namespace sluice::client {

class Lane {
 public:
  // Room for one write. Its grant stays until settle().
  struct Room {
    std::shared_ptr<HotMap> mapping;
    uint64_t grant = 0;
    uint64_t offset = 0;  // in the data area
    uint64_t bytes = 0;
  };

  // The service of this connection lent these files and told these terms. What cannot be mapped is no error:
  // the lane is then not usable, and the other one is taken.
  void attach(std::span<const UniqueFd> lent, const wire::LaneT& terms);
  void detach() { usable_.store(false); }
  bool usable() const { return usable_.load(); }
  // Whether the service records a write as soon as it hears of it, so that what it is asked later finds it.
  bool records_at_once() const { return records_at_once_.load(); }

  // --- writing ---
  // Room in a grant that is here already.
  std::optional<Room> take(uint64_t bytes);
  // How much to ask for when there is none.
  uint64_t wanted_bytes() const;
  // A new grant, and room in it; nothing when it is not in the mapped area.
  std::optional<Room> add(const wire::LeasedT& leased, uint64_t bytes);
  // Only the first `bytes` of it are used.
  void trim(Room& room, uint64_t bytes);
  // The write that filled it was answered, or will never be sent.
  void settle(const Room& room);
  // Copies a batch's bytes there; answers their block checksums.
  static std::vector<uint32_t> fill(const Room& room, const Batch& batch);

  // --- grants ---
  std::vector<uint64_t> held() const;
  // Grants that nothing more can be written to, and with `idle` those that nothing is being written to: they
  // are forgotten here, and for the service to take back. With `idle` the rest takes nothing new either.
  std::vector<uint64_t> take_returns(bool idle);
  // The service gave the session up: nothing more is written to its grants. They are among the returns when
  // the last copy into them has ended.
  void fenced();

  // --- reading ---
  // Asked before the service is, for what it then tells.
  ChangeMark mark_changes(ContainerId container) const;
  // A write has returned that the service is only going to hear of: what others were told before does not
  // hold any more.
  void note_change(ContainerId container) const;
  // What an answer says of where bytes lie. Null when the hot tier is not mapped.
  std::shared_ptr<const Told> told(wire::ReadDoneT answer, ChangeMark mark) const;

 private:
  struct Grant {
    uint64_t number = 0;
    uint64_t at = 0;
    uint64_t end = 0;
    uint64_t unsettled = 0;
    bool dead = false;
    std::shared_ptr<HotMap> mapping;
  };

  mutable std::mutex mutex_;
  std::shared_ptr<HotMap> mapping_;
  std::shared_ptr<const SharedMapping> board_;
  std::list<Grant> grants_;
  uint64_t next_want_ = 0;
  std::atomic<bool> usable_ = false;
  std::atomic<bool> records_at_once_ = false;
};

}  // namespace sluice::client
