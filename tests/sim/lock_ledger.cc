#include "tests/sim/lock_ledger.h"

#include <algorithm>

namespace sluice::sim {

std::string LockLedger::name(const Key& key) {
  return "byte " + std::to_string(key.second) + " of file " + std::to_string(key.first.value);
}

void LockLedger::report(const std::string& what) {
  if (breach_.empty()) breach_ = what;
}

void LockLedger::use_begins(uint32_t client, ContainerId file, const Extent& extent, bool writes) {
  if (is_fenced(client)) return;  // it does not know yet, and will be refused
  each(file, extent, [&](const Key& key, Byte& byte) {
    for (const auto& [other, holder] : byte.holders) {
      if (other == client) continue;
      if (holder.writers > 0 || (writes && holder.readers > 0)) {
        report("two conflicting grants: clients " + std::to_string(client) + " and " + std::to_string(other) +
               " use " + name(key) + " at once");
      }
      if (!holder.dirty.empty())
        report("client " + std::to_string(client) + " uses " + name(key) + ", where client " +
               std::to_string(other) + " has not flushed");
    }
    Holder& mine = byte.holders[client];
    ++(writes ? mine.writers : mine.readers);
    held_[client].insert(key);
  });
}

void LockLedger::use_ends(uint32_t client, ContainerId file, const Extent& extent, bool writes) {
  each(file, extent, [&](const Key& key, Byte& byte) {
    const auto at = byte.holders.find(client);
    if (at == byte.holders.end()) return;  // fenced meanwhile
    uint32_t& uses = writes ? at->second.writers : at->second.readers;
    if (uses > 0) --uses;
    if (!at->second.idle()) return;
    byte.holders.erase(at);
    held_[client].erase(key);
  });
}

Version LockLedger::written(uint32_t client, ContainerId file, const Extent& extent) {
  const Version version = ++last_;
  if (is_fenced(client)) return version;
  each(file, extent, [&](const Key& key, Byte& byte) {
    byte.latest = version;
    byte.latest_by = client;
    byte.holders[client].dirty.insert(version);
    held_[client].insert(key);
  });
  return version;
}

void LockLedger::applied(uint32_t client, ContainerId file, const Extent& extent, Version version) {
  if (is_fenced(client))
    return report("a byte of client " + std::to_string(client) + " landed after it was given up");
  each(file, extent, [&](const Key& key, Byte& byte) {
    // A client whose answers were lost with a server says again what it wrote, in order and under its lock.
    if (version < byte.stored && byte.stored_by != client)
      report("an old write landed over another's newer one at " + name(key));
    byte.stored = version;
    byte.stored_by = client;
    const auto at = byte.holders.find(client);
    if (at == byte.holders.end()) return;
    at->second.dirty.erase(version);
    if (!at->second.idle()) return;
    byte.holders.erase(at);
    held_[client].erase(key);
  });
}

void LockLedger::read(uint32_t client, ContainerId file, const Extent& extent,
                      const std::vector<Version>& seen) {
  if (is_fenced(client)) return;
  each(file, extent, [&](const Key& key, Byte& byte) {
    const Version got = seen[key.second - extent.begin.value];
    if (got != byte.latest)
      report("client " + std::to_string(client) + " read version " + std::to_string(got) + " of " +
             name(key) + ", but the last written is " + std::to_string(byte.latest));
  });
}

void LockLedger::synced(ContainerId file, const Extent& extent, Version version) {
  each(file, extent, [&](const Key&, Byte& byte) { byte.synced = std::max(byte.synced, version); });
}

void LockLedger::fenced(uint32_t client) {
  fenced_.insert(client);
  for (const Key& key : held_[client]) {
    Byte& byte = bytes_[key];
    byte.holders.erase(client);
    // What it had not flushed is lost, as its owner is.
    if (byte.latest_by == client) byte.latest = byte.stored;
  }
  held_.erase(client);
}

std::vector<Version> LockLedger::stored(ContainerId file, const Extent& extent) const {
  std::vector<Version> versions;
  for (uint64_t at = extent.begin.value; at < extent.end.value; ++at) {
    const auto found = bytes_.find({file, at});
    versions.push_back(found == bytes_.end() ? 0 : found->second.stored);
  }
  return versions;
}

void LockLedger::check_synced() {
  for (const auto& [key, byte] : bytes_) {
    if (byte.stored < byte.synced) report(name(key) + " was synced and is lost");
  }
}

}  // namespace sluice::sim
