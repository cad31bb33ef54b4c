#include "server/service_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/os.h"

namespace sluice::server {

std::string print_service_file(const ServiceFile& service) {
  const nlohmann::json file{{"version", service.version},
                            {"pid", service.pid},
                            {"boot", fmt::format("{:016x}", service.boot)},
                            {"addresses", service.addresses},
                            {"control", service.control}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool service_file_is(const std::filesystem::path& path, const ServiceFile& service) {
  const std::string wanted = print_service_file(service);
  const auto there = read_file(path, wanted.size() + 1);
  return there && *there == wanted;
}

Result<> write_service_file(const std::filesystem::path& path, const ServiceFile& service) {
  return replace_file(path, print_service_file(service));
}

}  // namespace sluice::server
