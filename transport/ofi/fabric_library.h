#pragma once

#include <rdma/fabric.h>

#include "base/result.h"

namespace sluice::transport {

// libfabric's few exported functions; everything else goes through the tables of its objects.
//
// Loaded when the first tcp transport is made, not linked: libraries that it pulls in (PSM2 among them)
// install handlers for SIGSEGV, SIGTERM and others from their constructors. In a process that belongs to
// somebody else, an MPI rank, that must not happen, so load() puts every signal's disposition back as it was.
struct FabricLibrary {
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;
  decltype(&fi_fabric) fabric = nullptr;

  // Any thread. The same object each time; it stays loaded.
  static Result<const FabricLibrary*> load();
};

// The signal dispositions of this process, put back when the object dies.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers();
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;
  KeptSignalHandlers& operator=(const KeptSignalHandlers&) = delete;
  ~KeptSignalHandlers();

 private:
  struct Saved;
  Saved* saved_;
};

}  // namespace sluice::transport
