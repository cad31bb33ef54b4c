#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockmgr/lock_messages.h"

// What the simulated aggregators and servers say to each other. Pure. Both ends are this program, so a packet
// that does not decode is a bug and ends it.
namespace sluice::bench::lock_modes {

enum class PacketKind : uint8_t { kHello = 1, kAsk, kGrant, kRevoke, kRelease, kWrite, kWritten };

struct Packet {
  PacketKind kind = PacketKind::kHello;
  uint64_t session = 0;  // who speaks; 0 from a server
  ContainerId container;
  lockmgr::RequestId request;
  lockmgr::LockMode mode = lockmgr::LockMode::kPw;
  lockmgr::GroupId group;
  uint32_t flags = 0;
  lockmgr::LockHandle handle;
  std::vector<Extent> extents;
  std::vector<lockmgr::LockHandle> released;
  std::vector<lockmgr::ExtentAnswer> answers;

  static Packet ask(SessionId session, const lockmgr::LockAsk& ask);
  static Packet release(SessionId session, ContainerId container,
                        const std::vector<lockmgr::LockHandle>& handles);
  static Packet grant(lockmgr::RequestId request, ContainerId container,
                      const std::vector<lockmgr::ExtentAnswer>& answers);
  static Packet revoke(ContainerId container, lockmgr::LockHandle handle);

  lockmgr::LockAsk ask() const;
  const std::vector<lockmgr::LockHandle>& handles() const { return released; }

  std::vector<std::byte> encode() const;
  static Packet decode(std::span<const std::byte> bytes);
};

}  // namespace sluice::bench::lock_modes
