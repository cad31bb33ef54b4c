// A process at the other end, for tests that kill, stop and restart it.
//
//   transport_peer serve SCHEME [NODE] [PORT]   serves until killed; prints its address
//   transport_peer exit SCHEME ADDRESS          connects, then main() returns while the loop runs and memory
//   is exposed transport_peer exit-in-loop SCHEME ADDRESS  the same, but exit() is called on the loop's own
//   thread
//
// The first byte of a message tells what to do: 'E' send it back; 'R' or 'W' send back a RemoteBuffer of 64
// MiB to read or write; '<' or '>' pull from or push to the RemoteBuffer that follows, over and over.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

#include "transport/contract_rig.h"
#include "transport/ofi/loop_thread.h"

namespace sluice::transport {
namespace {

class Peer final : public Handler {
 public:
  explicit Peer(OfiTransport& transport) : transport_(transport) {}

  void on_connected(PeerId) override {}
  void on_disconnected(PeerId, const Error& reason) override {
    std::printf("disconnected %s\n", reason.message.c_str());
    std::fflush(stdout);
  }
  void on_message(PeerId peer, std::span<const std::byte> message) override {
    if (message.empty()) return;
    if (memory_.empty() && message[0] != std::byte{'E'}) memory_ = pattern(kPeerMemoryBytes, 42);
    const char command = static_cast<char>(message[0]);
    if (command == 'E') {
      (void)transport_.send(peer, {message.begin(), message.end()}).has_value();
    } else if (command == 'R' || command == 'W') {
      auto exposed = transport_.expose(memory_, command == 'R' ? Access::kRemoteRead : Access::kRemoteWrite);
      if (!exposed) std::abort();
      (void)transport_.send(peer, pack((*exposed)->remote())).has_value();
      exposed_.push_back(std::move(*exposed));
    } else if (const auto buffer = unpack(message.subspan(1))) {
      move(peer, *buffer, command == '<');
    }
  }

 private:
  void move(PeerId peer, RemoteBuffer buffer, bool pull) {
    const auto again = [this, peer, buffer, pull](Result<> r) {
      if (r) move(peer, buffer, pull);
    };
    const auto piece = std::span(memory_).first(std::min<size_t>(memory_.size(), buffer.length));
    if (pull) {
      transport_.pull(peer, buffer, 0, piece, again);
    } else {
      transport_.push(peer, buffer, 0, piece, again);
    }
  }

  OfiTransport& transport_;
  std::vector<std::byte> memory_;
  std::vector<std::unique_ptr<ExposedMemory>> exposed_;
};

std::unique_ptr<OfiTransport> make(const std::string& scheme, const std::string& node, uint16_t port) {
  OfiOptions options;
  options.scheme = scheme;
  options.node = node;
  options.port = port;
  options.keepalive_ms = 100;
  options.peer_timeout_ms = 30'000;
  auto transport = OfiTransport::create(options);
  if (!transport) {
    std::fprintf(stderr, "%s\n", transport.error().message.c_str());
    std::exit(3);
  }
  return std::move(*transport);
}

int serve(const std::string& scheme, const std::string& node, uint16_t port) {
  const auto transport = make(scheme, node, port);
  Peer peer(*transport);
  transport->set_handler(&peer);
  std::printf("%s\n", transport->address().text.c_str());
  std::fflush(stdout);
  for (;;) transport->run_once(1000);
}

// Nothing here is torn down in order: the objects are never destroyed.
int leave(const std::string& scheme, const std::string& address, bool in_loop) {
  static auto* const transport = make(scheme, "", 0).release();
  static auto* const peer = new Peer(*transport);
  transport->set_handler(peer);
  static LoopThread loop(*transport);
  if (!loop.start()) return 4;
  static auto* const connected = new std::promise<void>;
  transport->post([address, in_loop] {
    const auto to = transport->connect(Address{address});
    if (!to) std::_Exit(5);
    for (int i = 0; i < 100; ++i) (void)transport->send(*to, {std::byte{'E'}}).has_value();
    transport->after_ms(50, [in_loop] {
      if (in_loop) std::exit(0);
      connected->set_value();
    });
  });
  connected->get_future().wait();
  return 0;
}

}  // namespace
}  // namespace sluice::transport

int main(int argc, char** argv) {
  using namespace sluice::transport;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  allow_many_files();
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string scheme = argc > 2 ? argv[2] : "";
  const std::string where = argc > 3 ? argv[3] : "";
  if (mode == "serve") return serve(scheme, where, argc > 4 ? static_cast<uint16_t>(std::atoi(argv[4])) : 0);
  if (mode == "exit") return leave(scheme, where, false);
  if (mode == "exit-in-loop") return leave(scheme, where, true);
  std::fprintf(stderr, "transport_peer: no mode '%s'\n", mode.c_str());
  return 2;
}
