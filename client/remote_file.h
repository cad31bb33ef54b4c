#pragma once

#include <functional>
#include <memory>

#include "client/client.h"
#include "client/core.h"
#include "client/handle_text.h"

namespace sluice::client {

// A file just opened by this process, and known to its session. It keeps the core as long as it lives.
std::unique_ptr<File> make_remote_file(std::shared_ptr<Core> core, HandleText handle,
                                       const OpenOptions& asked);

// A file that another process opened. The first access reaches the pool and attaches; a failure is that
// access's, and the next one tries again.
using Reach = std::function<Result<std::shared_ptr<Core>>()>;
std::unique_ptr<File> make_shared_file(HandleText handle, Reach reach);

}  // namespace sluice::client
