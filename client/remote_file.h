#pragma once

#include <memory>
#include <optional>

#include "client/client.h"
#include "client/core.h"
#include "client/handle_text.h"

namespace sluice::client {

// The owner keeps the client alive as long as a file is open. `asked`: what an owner opened it with.
std::unique_ptr<File> make_remote_file(std::shared_ptr<void> keep_alive, Core& core, HandleText handle,
                                       FileInfo opened, std::optional<OpenOptions> asked);

}  // namespace sluice::client
