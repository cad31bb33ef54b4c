#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "transport/ofi/fabric_library.h"

// Move-only owners of libfabric's handles. A handle must be closed after those opened on it; members are
// therefore declared in the order fabric, domain, queues, endpoints.
namespace sluice::transport {

template <class Fid>
class FidOwner {
 public:
  FidOwner() = default;
  explicit FidOwner(Fid* fid) : fid_(fid) {}
  FidOwner(FidOwner&& other) noexcept : fid_(std::exchange(other.fid_, nullptr)) {}
  FidOwner& operator=(FidOwner&& other) noexcept {
    if (this != &other) {
      reset();
      fid_ = std::exchange(other.fid_, nullptr);
    }
    return *this;
  }
  ~FidOwner() { reset(); }

  Fid* get() const { return fid_; }
  Fid* operator->() const { return fid_; }
  explicit operator bool() const { return fid_ != nullptr; }
  // For calls that hand a handle out through a pointer; the owner is empty before.
  Fid** out() { return &fid_; }
  void reset() {
    if (fid_ != nullptr) fi_close(&std::exchange(fid_, nullptr)->fid);
  }

 private:
  Fid* fid_ = nullptr;
};

using FabricHandle = FidOwner<fid_fabric>;
using DomainHandle = FidOwner<fid_domain>;
using CompletionQueueHandle = FidOwner<fid_cq>;
using EventQueueHandle = FidOwner<fid_eq>;
using AddressVectorHandle = FidOwner<fid_av>;
using EndpointHandle = FidOwner<fid_ep>;
using PassiveEndpointHandle = FidOwner<fid_pep>;
using MemoryHandle = FidOwner<fid_mr>;

class InfoHandle {
 public:
  InfoHandle() = default;
  InfoHandle(const FabricLibrary& library, fi_info* info) : library_(&library), info_(info) {}
  InfoHandle(InfoHandle&& other) noexcept
      : library_(other.library_), info_(std::exchange(other.info_, nullptr)) {}
  InfoHandle& operator=(InfoHandle&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(info_, other.info_);
    return *this;
  }
  ~InfoHandle() {
    if (info_ != nullptr) library_->freeinfo(info_);
  }

  fi_info* get() const { return info_; }
  fi_info* operator->() const { return info_; }
  explicit operator bool() const { return info_ != nullptr; }

 private:
  const FabricLibrary* library_ = nullptr;
  fi_info* info_ = nullptr;
};

// libfabric answers 0 or a negative fi_errno; those that tcp gives are the system's own.
inline Error fabric_error(ErrorCode code, std::string_view what, ssize_t status) {
  return Error(code, std::string(what) + ": " + std::generic_category().message(static_cast<int>(-status)));
}

}  // namespace sluice::transport
