#include "transport/ofi/fabric_library.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <cstring>
#include <string>

namespace sluice::transport {
namespace {

constexpr int kClassicSignals = 32;  // the real-time ones belong to those who ask for them by number

Result<FabricLibrary> open_library() {
  const KeptSignalHandlers kept;
  void* library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorCode::kUnsupported,
                std::string("tcp needs libfabric; install libfabric1 or use shm: ") + dlerror());
  }
  FabricLibrary out;
  const auto look_up = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (look_up(out.getinfo, "fi_getinfo") && look_up(out.freeinfo, "fi_freeinfo") &&
      look_up(out.dupinfo, "fi_dupinfo") && look_up(out.fabric, "fi_fabric")) {
    return out;
  }
  return fail(ErrorCode::kUnsupported, "this libfabric lacks a function; install version 1.17 or newer");
}

}  // namespace

struct KeptSignalHandlers::Saved {
  std::array<struct sigaction, kClassicSignals> actions{};
};

KeptSignalHandlers::KeptSignalHandlers() : saved_(new Saved) {
  for (int number = 1; number < kClassicSignals; ++number)
    sigaction(number, nullptr, &saved_->actions[number]);
}

KeptSignalHandlers::~KeptSignalHandlers() {
  for (int number = 1; number < kClassicSignals; ++number) {
    struct sigaction now {};
    const auto& before = saved_->actions[number];
    if (sigaction(number, nullptr, &now) != 0) continue;
    if (now.sa_sigaction != before.sa_sigaction) sigaction(number, &before, nullptr);
  }
  delete saved_;
}

Result<const FabricLibrary*> FabricLibrary::load() {
  static const Result<FabricLibrary> library = open_library();
  if (!library) return fail(library.error());
  return &*library;
}

}  // namespace sluice::transport
