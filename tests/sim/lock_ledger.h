#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/extent.h"
#include "lockmgr/lock_types.h"

// What the simulation knows and no part of it does: who uses and has dirty which bytes, and in which order
// they were written. Its checks are the promises of the lock protocol; the first that fails is kept as text.
namespace sluice::sim {

// In the order in which writes happened under their locks, over all files.
using Version = uint64_t;

class LockLedger {
 public:
  // A client's access begins under a lock.
  void use_begins(uint32_t client, ContainerId file, const Extent& extent, bool writes);
  void use_ends(uint32_t client, ContainerId file, const Extent& extent, bool writes);
  // It writes there, into its own memory; the bytes are dirty until they are applied.
  Version written(uint32_t client, ContainerId file, const Extent& extent);
  // The server accepts them.
  void applied(uint32_t client, ContainerId file, const Extent& extent, Version version);
  // A read under a lock answered these versions, byte by byte.
  void read(uint32_t client, ContainerId file, const Extent& extent, const std::vector<Version>& seen);
  void synced(ContainerId file, const Extent& extent, Version version);
  // The server gave the client up, or the client is dead and given up: what it had is nobody's.
  void fenced(uint32_t client);
  void back(uint32_t client) { fenced_.erase(client); }
  bool is_fenced(uint32_t client) const { return fenced_.contains(client); }

  std::vector<Version> stored(ContainerId file, const Extent& extent) const;
  // At the end: nothing that was synced is gone.
  void check_synced();

  const std::string& breach() const { return breach_; }
  void report(const std::string& what);

 private:
  struct Holder {
    uint32_t readers = 0;  // uses
    uint32_t writers = 0;
    std::set<Version> dirty;
    bool idle() const { return readers == 0 && writers == 0 && dirty.empty(); }
  };
  struct Byte {
    std::map<uint32_t, Holder> holders;
    Version latest = 0;
    uint32_t latest_by = 0;
    Version stored = 0;
    uint32_t stored_by = 0;
    Version synced = 0;
  };
  using Key = std::pair<ContainerId, uint64_t>;

  template <class Visit>
  void each(ContainerId file, const Extent& extent, Visit&& visit) {
    for (uint64_t at = extent.begin.value; at < extent.end.value; ++at)
      visit(Key{file, at}, bytes_[{file, at}]);
  }
  static std::string name(const Key& key);

  std::map<Key, Byte> bytes_;
  std::map<uint32_t, std::set<Key>> held_;  // where a client has anything
  std::set<uint32_t> fenced_;
  Version last_ = 0;
  std::string breach_;
};

}  // namespace sluice::sim
