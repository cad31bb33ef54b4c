#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/os.h"
#include "base/rng.h"
#include "engine/context.h"
#include "engine/lane_file.h"
#include "engine/process_watch.h"

namespace sluice::engine {

// The local lane: processes of the service's user on its host map the hot tier and fill slabs of it by
// themselves. A *grant* is a part of the data area that one session may fill; a write names a slab in it,
// which from then on is the log's. Loop thread.
//
// What a client says of grants and offsets is hostile: a write may name only what is its session's and was
// not named before. What the lane cannot prevent is a process that writes where it may not; it could do so
// without us, being of the same user, and the checksums find it.
//
// A process that was given up (evicted) may still be in the middle of a copy into its grants. They are *kept
// aside*, for nobody, until the process is gone or says that it is done.
class LaneDesk {
 public:
  // Without a file there is no local lane. Grants of the server before are kept for their owners.
  LaneDesk(Context& context, LaneFile* file, uint64_t seed);

  // What a client of this connection is to know of the lane; nothing when it cannot use it.
  std::unique_ptr<wire::LaneT> terms(transport::PeerId peer) const;

  // A new grant, of `need` bytes at least. kNoSpace: none is free now.
  Result<wire::LeasedT> lease(SessionId session, const wire::LeaseT& ask);
  void give_back(const Request& request, const wire::GiveBackT& ask);
  void reclaim(const Request& request, const wire::ReclaimT& ask);

  // The slab that a write names becomes the caller's. kExists: it was named before, by a write that the
  // client was not answered: its bytes are there for a copy (bytes_of()). kFenced: not this session's.
  Result<burst_buffer::Slab> take(SessionId session, const wire::Slab& slab, Length length);
  // Gives it back to the grant.
  void untake(const wire::Slab& slab, Length length);

  // A process with a grant of the server before may have gone on from writes that it told that one, and told
  // others of them; it tells them again. While any is awaited, what else is asked of files has to wait: it
  // may come after those writes. Awaited no more is who said all again, gave its grants back, or is gone, and
  // everybody when the window is over.
  bool awaits_any() const { return !awaited_.empty(); }
  bool awaits(SessionId session) const;
  void said_all(SessionId session);

  // Asks the sessions with idle grants for them. True when there are any.
  bool recall();
  void session_gone(SessionId session, bool evicted);
  // The window is over: grants of the server before that nobody came back for.
  void end_recovery();
  // Frees what was kept aside for processes that are gone.
  void tick();

  uint64_t granted_bytes() const;

 private:
  struct Grant {
    std::optional<SessionId> session;  // none: of the server before, or kept aside
    uint64_t begin = 0;
    uint64_t end = 0;
    std::map<uint64_t, uint64_t> unnamed;  // begin -> end of what no write has named
    size_t entry = 0;
    uint32_t process = 0;
    bool aside = false;
    std::optional<ProcessWatch> watched;  // the process, while the grant is kept aside
  };
  using Grants = std::map<uint64_t, Grant>;

  Grants::iterator free(Grants::iterator at);
  void keep_aside(uint64_t number, Grant& grant);

  Context& context_;
  LaneFile* const file_;
  const std::optional<burst_buffer::HotTier::SharedArea> area_;
  SeededRng secrets_;
  Grants grants_;  // by their secret numbers
  std::set<uint64_t> awaited_;
};

}  // namespace sluice::engine
