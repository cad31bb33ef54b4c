#include "transport/contract_rig.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/assert.h"
#include "transport/ofi/ofi_transport.h"
#include "transport/sim/sim_network.h"

namespace sluice::transport {
namespace {

class OfiRig final : public ContractRig {
 public:
  explicit OfiRig(std::string scheme) : scheme_(std::move(scheme)) {}

  void set_peer_timeout_ms(uint64_t peer_timeout_ms) override { peer_timeout_ms_ = peer_timeout_ms; }
  Transport& start(const std::string&) override { return add({}, 0); }

  void stop(Transport& transport) override {
    std::erase_if(transports_, [&](const auto& t) { return t.get() == &transport; });
  }

  Transport& start_again(const Address& address) override {
    const std::string rest = address.text.substr(scheme_.size() + 3);
    if (scheme_ == "shm") return add(rest, 0);
    const size_t colon = rest.rfind(':');
    return add(rest.substr(0, colon), static_cast<uint16_t>(std::stoi(rest.substr(colon + 1))));
  }

  // The address of one that was there and is gone.
  Address nobody() override {
    Transport& transport = add({}, 0);
    const Address address = transport.address();
    stop(transport);
    return address;
  }

  bool run_until(const std::function<bool()>& done, uint64_t limit_ms) override {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    size_t turn = 0;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      for (size_t i = 0; i < transports_.size(); ++i) transports_[i]->run_once(0);
      // Blocking in one of them for a moment spares the core while all wait for the kernel.
      if (!transports_.empty()) transports_[turn++ % transports_.size()]->run_once(idle_ms());
    }
    return true;
  }

 private:
  uint64_t idle_ms() const { return transports_.size() == 1 ? 1 : 0; }

  Transport& add(const std::string& node, uint16_t port) {
    OfiOptions options;
    options.scheme = scheme_;
    options.node = node;
    options.port = port;
    options.keepalive_ms = 100;
    options.peer_timeout_ms = peer_timeout_ms_;
    options.connect_timeout_ms = 5000;
    auto transport = OfiTransport::create(options);
    if (!transport) std::fprintf(stderr, "cannot start: %s\n", transport.error().message.c_str());
    SLUICE_ASSERT(transport.has_value());
    transports_.push_back(std::move(*transport));
    return *transports_.back();
  }

  const std::string scheme_;
  uint64_t peer_timeout_ms_ = 30'000;
  std::vector<std::unique_ptr<OfiTransport>> transports_;
};

class SimRig final : public ContractRig {
 public:
  void set_peer_timeout_ms(uint64_t peer_timeout_ms) override { options_.peer_timeout_ms = peer_timeout_ms; }

  Transport& start(const std::string& name) override {
    if (network_ == nullptr) network_ = std::make_unique<SimNetwork>(options_);
    return network_->start(name);
  }
  void stop(Transport& transport) override { network_->stop(name_of(transport.address())); }
  Transport& start_again(const Address& address) override { return network_->start(name_of(address)); }
  Address nobody() override { return Address{"sim://nobody"}; }
  bool run_until(const std::function<bool()>& done, uint64_t limit_ms) override {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    // In slices: work posted by other threads comes at no virtual time.
    while (!network_->run_until(done, 10'000)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }

 private:
  static std::string name_of(const Address& address) { return address.text.substr(6); }

  SimOptions options_;
  std::unique_ptr<SimNetwork> network_;
};

}  // namespace

std::unique_ptr<ContractRig> make_sim_rig() {
  return std::make_unique<SimRig>();
}
std::unique_ptr<ContractRig> make_tcp_rig() {
  return std::make_unique<OfiRig>("tcp");
}
std::unique_ptr<ContractRig> make_shm_rig() {
  return std::make_unique<OfiRig>("shm");
}

std::unique_ptr<ContractRig> make_joined_rig() {
  return std::make_unique<OfiRig>("any");
}

std::vector<std::byte> pattern(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t word = seed * 0x9E3779B97F4A7C15 + 1;
  for (size_t at = 0; at < size; at += sizeof word) {
    word = (word ^ (word >> 29)) * 0xBF58476D1CE4E5B9 + at;
    std::memcpy(&bytes[at], &word, std::min(sizeof word, size - at));
  }
  return bytes;
}

void allow_many_files() {
  rlimit limit{};
  SLUICE_ASSERT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  SLUICE_ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

std::vector<std::byte> pack(const RemoteBuffer& buffer) {
  std::vector<std::byte> bytes(sizeof buffer);
  std::memcpy(bytes.data(), &buffer, sizeof buffer);
  return bytes;
}

std::optional<RemoteBuffer> unpack(std::span<const std::byte> bytes) {
  RemoteBuffer buffer;
  if (bytes.size() != sizeof buffer) return std::nullopt;
  std::memcpy(&buffer, bytes.data(), sizeof buffer);
  return buffer;
}

}  // namespace sluice::transport
