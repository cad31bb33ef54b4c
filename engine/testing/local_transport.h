#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "protocol/message.h"
#include "transport/transport.h"

namespace sluice::engine {

namespace wire = protocol::wire;

// Peers are processes of this host, or not; nothing is sent anywhere.
class LocalTransport final : public transport::Transport {
 public:
  std::map<transport::PeerId, pid_t> processes;
  std::map<transport::PeerId, size_t> recalls;

  std::optional<pid_t> peer_process(transport::PeerId peer) const override {
    const auto at = processes.find(peer);
    return at == processes.end() ? std::nullopt : std::optional(at->second);
  }
  transport::Address address() const override { return {"sim://test"}; }
  void set_handler(transport::Handler*) override {}
  Result<transport::PeerId> connect(const transport::Address&) override {
    return fail(ErrorCode::kUnavailable, "nobody");
  }
  void disconnect(transport::PeerId, const Error&) override {}
  Result<> send(transport::PeerId peer, std::vector<std::byte> message) override {
    const auto decoded = protocol::decode(message);
    if (decoded && (*decoded)->body.type == wire::Body::Recall) ++recalls[peer];
    return {};
  }
  Result<std::unique_ptr<transport::ExposedMemory>> expose(std::span<std::byte>, transport::Access) override {
    return fail(ErrorCode::kUnsupported, "nothing is exposed here");
  }
  void pull(transport::PeerId, const transport::RemoteBuffer&, uint64_t, std::span<std::byte>,
            transport::Completion) override {}
  void push(transport::PeerId, const transport::RemoteBuffer&, uint64_t, std::span<const std::byte>,
            transport::Completion) override {}
  void post(std::function<void()> work) override { work(); }
  void after_ms(uint64_t, std::function<void()>) override {}
  uint64_t now_ms() const override { return 1; }
};

}  // namespace sluice::engine
