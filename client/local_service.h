#pragma once

#include <optional>
#include <string>

#include "transport/transport.h"

namespace sluice::client {

// Where the service of a pool is reached over shared memory, as it says in POOL/service.json. Nothing when
// there is none, or when it is not for this process: the service runs on another host, or as another user.
std::optional<transport::Address> local_address(const std::string& pool);

}  // namespace sluice::client
