#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/context.h"
#include "engine/open_files.h"

namespace sluice::engine {

// One Read request: gather the bytes (hot tier over stripes over the published version) on a worker, then
// send them inline or by RMA into the client's memory. Loop thread.
class Reader {
 public:
  Reader(Context& context, OpenFiles& files) : context_(context), files_(files) {}
  void read(const Request& request, const Message& message);

 private:
  struct Gathered {
    std::vector<std::byte> bytes;  // of the extents before the end of the file
    std::vector<uint32_t> checksums;
  };
  Result<Gathered> gather(ContainerId container, std::optional<TxnId> txn,
                          const std::vector<Extent>& extents);
  Result<Gathered> gather_once(ContainerId container, std::optional<TxnId> txn,
                               const std::vector<Extent>& extents);
  Result<std::pair<Epoch, Epoch>> versions(ContainerId container);  // committed, published
  Result<> fill(ContainerId container, std::optional<TxnId> txn, Extent extent, std::span<std::byte> out);
  void deliver(const Request& request, const Message& message, Gathered gathered);

  Context& context_;
  OpenFiles& files_;
  uint64_t turn_ = 0;  // reads are spread over the workers
};

}  // namespace sluice::engine
