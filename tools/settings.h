#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"

// What a service was asked to be, against what it is. Looks at the file system only to compare directories.
namespace sluice::tools {

// `words` are options of sluiced with their values ("--class", "RP_2", ...), `status` is what the service
// that runs on `pool` says of itself. kConflict names the first option whose value is another than the
// service's; an option that has no value, or that the service does not tell of, contradicts nothing. --listen
// agrees when the host is the same, and the port too, or any port was asked for.
Result<> agree_with_running(const std::string& pool, const std::vector<std::string>& words,
                            const nlohmann::json& status);

}  // namespace sluice::tools
