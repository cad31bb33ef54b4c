#include "bench/lock_modes/packet.h"

#include <cstring>
#include <type_traits>

#include "base/assert.h"

namespace sluice::bench::lock_modes {
namespace {

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof value);
  }
  template <class T>
  void put_all(const std::vector<T>& values) {
    put(static_cast<uint32_t>(values.size()));
    for (const T& value : values) put(value);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  void get(T& value) {
    SLUICE_ASSERT(bytes_.size() >= sizeof value);
    std::memcpy(static_cast<void*>(&value), bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
  }
  template <class T>
  void get_all(std::vector<T>& values) {
    uint32_t count = 0;
    get(count);
    values.resize(count);
    for (T& value : values) get(value);
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

Packet Packet::ask(SessionId session, const lockmgr::LockAsk& ask) {
  Packet packet;
  packet.kind = PacketKind::kAsk;
  packet.session = session.value;
  packet.container = ask.container;
  packet.request = ask.id;
  packet.mode = ask.mode;
  packet.group = ask.group;
  packet.flags = ask.flags;
  packet.extents = ask.extents;
  return packet;
}

Packet Packet::release(SessionId session, ContainerId container,
                       const std::vector<lockmgr::LockHandle>& handles) {
  Packet packet;
  packet.kind = PacketKind::kRelease;
  packet.session = session.value;
  packet.container = container;
  packet.released = handles;
  return packet;
}

Packet Packet::grant(lockmgr::RequestId request, ContainerId container,
                     const std::vector<lockmgr::ExtentAnswer>& answers) {
  Packet packet;
  packet.kind = PacketKind::kGrant;
  packet.container = container;
  packet.request = request;
  packet.answers = answers;
  return packet;
}

Packet Packet::revoke(ContainerId container, lockmgr::LockHandle handle) {
  Packet packet;
  packet.kind = PacketKind::kRevoke;
  packet.container = container;
  packet.handle = handle;
  return packet;
}

lockmgr::LockAsk Packet::ask() const {
  return {request, container, mode, group, flags, extents};
}

std::vector<std::byte> Packet::encode() const {
  Writer out;
  out.put(kind);
  out.put(session);
  out.put(container);
  out.put(request);
  out.put(mode);
  out.put(group);
  out.put(flags);
  out.put(handle);
  out.put_all(extents);
  out.put_all(released);
  out.put_all(answers);
  return out.take();
}

Packet Packet::decode(std::span<const std::byte> bytes) {
  Packet packet;
  Reader in(bytes);
  in.get(packet.kind);
  in.get(packet.session);
  in.get(packet.container);
  in.get(packet.request);
  in.get(packet.mode);
  in.get(packet.group);
  in.get(packet.flags);
  in.get(packet.handle);
  in.get_all(packet.extents);
  in.get_all(packet.released);
  in.get_all(packet.answers);
  return packet;
}

}  // namespace sluice::bench::lock_modes
