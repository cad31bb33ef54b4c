// preload, libs, doctor
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "client/control_client.h"
#include "tools/commands/commands.h"
#include "tools/exit_code.h"
#include "tools/process.h"
#include "tools/sizes.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

struct Finding {
  enum class Kind { kGood, kNote, kBad } kind;
  std::string what;
  std::string next;  // what to do about it
};

// The version text of the MPI library that programs here would load, e.g. "MPICH Version: 4.0.2".
Result<std::string> mpi_library_version() {
  void* library = ::dlopen("libmpich.so.12", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return fail(ErrorCode::kNotFound, "libmpich.so.12 cannot be loaded");
  using GetVersion = int (*)(char*, int*);
  const auto get = reinterpret_cast<GetVersion>(::dlsym(library, "MPI_Get_library_version"));
  std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING
  int length = 0;
  if (get == nullptr || get(text.data(), &length) != 0)
    return fail(ErrorCode::kUnsupported, "libmpich.so.12 does not tell its version");
  // Left loaded: what an MPI library set up when it was loaded cannot be undone reliably.
  std::string first(text.data());
  first.resize(std::min(first.size(), first.find('\n')));
  for (char& c : first)
    if (c == '\t') c = ' ';
  return first;
}

void check_mpi(std::vector<Finding>& findings) {
  if (auto version = mpi_library_version(); !version) {
    findings.push_back(
        {Finding::Kind::kBad, version.error().message, "install MPICH: apt-get install mpich libmpich-dev"});
  } else {
    const bool known = version->find(" 4.0") != std::string::npos;
    findings.push_back(
        {known ? Finding::Kind::kGood : Finding::Kind::kBad, "MPI library: " + *version,
         known ? "" : "the driver was built for MPICH 4.0; rebuild with ./bootstrap build for this one"});
  }
  if (auto mpirun = find_program({"mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich"}))
    findings.push_back({Finding::Kind::kGood, "mpirun: " + *mpirun, ""});
  else
    findings.push_back(
        {Finding::Kind::kBad, "MPICH's mpirun is not on PATH", "install it: apt-get install mpich"});
}

void check_libraries(std::vector<Finding>& findings) {
  for (const char* name : {"libsluice_romio.so", "libsluice.so"}) {
    auto path = library(name);
    if (!path)
      findings.push_back({Finding::Kind::kBad, path.error().message, "build with ./bootstrap build"});
    else
      findings.push_back({Finding::Kind::kGood, fmt::format("library: {}", path->string()), ""});
  }
  auto here = program_directory();
  std::error_code ec;
  if (here && !fs::exists(*here / "sluiced", ec))
    findings.push_back({Finding::Kind::kBad, fmt::format("{} is not there", (*here / "sluiced").string()),
                        "keep sluice and sluiced in one directory"});
  if (void* fabric = ::dlopen("libfabric.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    using Version = uint32_t (*)();
    const auto version = reinterpret_cast<Version>(::dlsym(fabric, "fi_version"));
    const uint32_t number = version == nullptr ? 0 : version();
    findings.push_back(
        {Finding::Kind::kGood, fmt::format("libfabric {}.{}", number >> 16, number & 0xffff), ""});
  } else {
    findings.push_back(
        {Finding::Kind::kBad, "libfabric.so.1 cannot be loaded", "install it: apt-get install libfabric1"});
  }
}

void check_pool(const std::string& pool, std::vector<Finding>& findings) {
  std::error_code ec;
  if (!fs::exists(fs::path(pool) / "pool.toml", ec)) {
    findings.push_back({Finding::Kind::kNote, fmt::format("there is no pool in {} yet", pool),
                        fmt::format("make one: sluice up --pool {}", pool)});
    return;
  }
  struct statvfs space {};
  if (::statvfs(pool.c_str(), &space) == 0) {
    const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
    findings.push_back(
        {free_bytes > (64u << 20) ? Finding::Kind::kGood : Finding::Kind::kBad,
         fmt::format("free space at {}: {}", pool, print_bytes(free_bytes)),
         free_bytes > (64u << 20) ? "" : "make room: the drain stops when the targets are full"});
  }
  auto reply = client::control_request(pool, "GET", "/status", 5'000);
  if (!reply && reply.error().code == ErrorCode::kUnavailable) {
    // An orderly end removes it.
    if (fs::exists(fs::path(pool) / "service.json", ec)) {
      findings.push_back(
          {Finding::Kind::kNote,
           fmt::format(
               "the last service on the pool {} ended without saying so (killed, or with its machine)", pool),
           fmt::format("the next one goes on with all that was accepted: sluice up --pool {0}; why it ended "
                       "may stand in {0}/sluiced.log",
                       pool)});
      return;
    }
    findings.push_back(
        {Finding::Kind::kNote, fmt::format("no service runs on the pool {}", pool),
         fmt::format("commands start one when they need it; for one that stays: sluice up --pool {}", pool)});
    return;
  }
  if (!reply) {
    findings.push_back({Finding::Kind::kBad, reply.error().message, fmt::format("see {}/sluiced.log", pool)});
    return;
  }
  const auto status = nlohmann::json::parse(reply->body, nullptr, false);
  const std::string state = status.is_object() ? status.value("state", std::string("?")) : std::string("?");
  findings.push_back({state == "ok" ? Finding::Kind::kGood : Finding::Kind::kBad,
                      fmt::format("service on {}: {}", pool, state),
                      state == "ok"
                          ? ""
                          : fmt::format("what a target lacks is put back by itself when its directory is "
                                        "there again (a lost one cannot be replaced yet); see sluice status "
                                        "--pool {}",
                                        pool)});
}

}  // namespace

int run_preload() {
  auto path = library("libsluice_romio.so");
  if (!path) return report(path.error());
  fmt::print("{}\n", path->string());
  return kOk;
}

int run_libs() {
  auto path = library("libsluice_romio.so");
  if (!path) return report(path.error());
  const std::string directory = path->parent_path().string();
  // --no-as-needed: programs name no symbol of the library, they find MPI's own in it. In one word with the
  // library, since wrappers such as h5pcc sort the words that they are given.
  fmt::print("-L{0} -Wl,-rpath,{0} -Wl,--push-state,--no-as-needed,-lsluice_romio,--pop-state\n", directory);
  return kOk;
}

int run_doctor(const Common& options) {
  std::vector<Finding> findings;
  check_mpi(findings);
  check_libraries(findings);
  if (auto pool = pool_of(options))
    check_pool(*pool, findings);
  else
    findings.push_back({Finding::Kind::kNote, "no pool is named",
                        "give --pool DIR or set SLUICE_POOL to have it looked at"});

  bool good = true;
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    const char* kind = finding.kind == Finding::Kind::kGood   ? "ok"
                       : finding.kind == Finding::Kind::kNote ? "note"
                                                              : "bad";
    good = good && finding.kind != Finding::Kind::kBad;
    if (options.json)
      list.push_back({{"result", kind}, {"what", finding.what}, {"next", finding.next}});
    else
      fmt::print("{:<5} {}{}\n", kind, finding.what,
                 finding.next.empty() ? "" : "\n      -> " + finding.next);
  }
  if (options.json) fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return good ? kOk : kFailed;
}

}  // namespace sluice::tools
