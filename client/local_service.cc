#include "client/local_service.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/os.h"

namespace sluice::client {

std::optional<transport::Address> local_address(const std::string& pool) {
  constexpr size_t kMaxServiceFileBytes = 64 * 1024;
  const auto file = std::filesystem::path(pool) / "service.json";
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return std::nullopt;
  auto text = read_file(file, kMaxServiceFileBytes);
  if (!text) return std::nullopt;
  const auto record = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("addresses") || !record["addresses"].is_array())
    return std::nullopt;
  for (const auto& address : record["addresses"]) {
    if (!address.is_string()) continue;
    // The name begins with the host's, see server/service.cc.
    if (address.get<std::string>().starts_with("shm://" + host_name_hash()))
      return transport::Address{address.get<std::string>()};
  }
  return std::nullopt;
}

}  // namespace sluice::client
