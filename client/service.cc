#include "client/service.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/log.h"
#include "base/os.h"
#include "client/control_client.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace sluice::client {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxServiceFileBytes = 64 * 1024;

Error not_running(const std::string& pool) {
  return Error(ErrorCode::kUnavailable,
               "no service runs on the pool " + pool + "; start one with `sluice up --pool " + pool + "`")
      .mark_retryable();
}

Error not_ready(const std::string& pool, int pid) {
  return Error(ErrorCode::kUnavailable, "process " + std::to_string(pid) + " holds the pool " + pool +
                                            " and its service does not answer yet; see its log " +
                                            (fs::path(pool) / "sluiced.log").string())
      .mark_retryable();
}

nlohmann::json first_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() && !found->empty() ? found->front() : nlohmann::json();
}

// What POOL/service.json says; nothing when it is damaged or not there.
Result<std::optional<ServiceRecord>> read_record(const std::string& pool) {
  auto text = read_file(fs::path(pool) / "service.json", kMaxServiceFileBytes);
  if (!text && text.error().code == ErrorCode::kAccess) return fail(text.error());
  if (!text) return std::optional<ServiceRecord>();
  const auto record = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return std::optional<ServiceRecord>();
  const auto address = first_of(record, "addresses");
  const auto pid = record.value("pid", nlohmann::json());
  if (!address.is_string() || !pid.is_number_unsigned()) return std::optional<ServiceRecord>();
  return std::optional(ServiceRecord{{address.get<std::string>()}, pid.get<uint32_t>()});
}

// What the service says of itself. kAccess when it is another user's.
Result<ServiceRecord> ask_service(const std::string& pool) {
  auto reply = control_request(pool, "GET", "/status", kAskServiceMs, Unheard::kFail);
  if (!reply) return fail(reply.error());
  const auto status = nlohmann::json::parse(reply->body, nullptr, /*allow_exceptions=*/false);
  const auto server = status.is_object() ? first_of(status, "servers") : nlohmann::json();
  if (reply->status != 200 || !server.is_object() || !server.contains("address") ||
      !server["address"].is_string())
    return fail(not_ready(pool, reply->server_pid));
  return ServiceRecord{{server["address"].get<std::string>()}, static_cast<uint32_t>(reply->server_pid)};
}

std::optional<int> read_pid(int fd) {
  std::array<char, 32> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size() - 1, 0);
  int pid = 0;
  if (got <= 0 || std::from_chars(text.data(), text.data() + got, pid).ec != std::errc{} || pid <= 0)
    return std::nullopt;
  return pid;
}

// The command that belongs to this very library: build/bin/sluice beside build/lib/libsluice*.so, or beside a
// program that links the library statically.
std::string sluice_command() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&find_service), &self) != 0 && self.dli_fname != nullptr) {
    std::error_code ignored;
    const fs::path here = fs::canonical(self.dli_fname, ignored).parent_path();
    for (const auto& candidate : {here / "sluice", here.parent_path() / "bin" / "sluice"}) {
      if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
    }
  }
  return "sluice";
}

// The environment without what would preload us into the service.
std::vector<char*> clean_environment() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

std::string read_to_end(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  while (true) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
  }
}

struct Output {
  int status = 0;
  std::string out;
  std::string err;
};

Result<Output> run(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno_error(errno, "make", "a pipe"));
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  // Read when the command has ended, so that it cannot block on it.
  UniqueFd errors(::memfd_create("sluice-stderr", MFD_CLOEXEC));
  if (!errors) return fail(errno_error(errno, "make", "a file in memory"));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.get(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  auto environment = clean_environment();
  pid_t pid = 0;
  const int spawned =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) return fail(errno_error(spawned, "run", command[0]));
  write_end.reset();
  Output output;
  output.out = read_to_end(read_end.get());
  while (::waitpid(pid, &output.status, 0) < 0 && errno == EINTR) {
  }
  ::lseek(errors.get(), 0, SEEK_SET);
  output.err = read_to_end(errors.get());
  return output;
}

// One line for the user, who may have named a place that he did not mean.
void tell_of_new_pool(const std::string& pool, const std::string& report) {
  const auto status = nlohmann::json::parse(report, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object() || status.value("outcome", std::string()) != "made") return;
  log::warn("made a new pool in {} (class {}), since none was there", pool,
            status.value("class", std::string("?")));
}

}  // namespace

Result<std::optional<int>> pool_holder(const fs::path& pool) {
  const fs::path file = pool / "lock";
  auto fd = open_file(file, O_RDONLY | O_CLOEXEC);
  if (!fd && fd.error().code == ErrorCode::kNotFound) return std::optional<int>();
  if (!fd) return fail(fd.error());
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd->get(), F_OFD_GETLK, &whole) != 0)
    return fail(errno_error(errno, "ask who holds", file.string()));
  if (whole.l_type == F_UNLCK) return std::optional<int>();
  return std::optional(read_pid(fd->get()).value_or(0));
}

Result<ServiceRecord> find_service(const std::string& pool) {
  log::debug("looking for the service on {}", pool);
  auto holder = pool_holder(pool);
  if (!holder) return fail(holder.error());
  if (*holder) {
    auto record = read_record(pool);
    if (!record) return fail(record.error());
    if (*record && (*record)->pid == static_cast<uint32_t>(**holder)) return **record;
  }
  // Its file is damaged, gone or an earlier one's; or the lock's file is.
  auto asked = ask_service(pool);
  if (asked) return asked;
  return fail(*holder ? not_ready(pool, **holder) : not_running(pool));
}

Result<> start_service(const std::string& pool) {
  std::error_code ec;
  const fs::path directory = fs::path(pool).has_filename() ? fs::path(pool) : fs::path(pool).parent_path();
  if (const fs::path parent = directory.parent_path(); !fs::is_directory(parent, ec))
    return fail(ErrorCode::kNotFound,
                "there is no pool in " + pool + ", and no directory " + parent.string() +
                    " to make one in; correct SLUICE_POOL, or make the pool with `sluice up --pool " + pool +
                    "`");
  auto output = run({sluice_command(), "up", "--json", "--pool", pool});
  if (!output) return fail_with_context("cannot start a service on " + pool, output.error());
  if (WIFEXITED(output->status) && WEXITSTATUS(output->status) == 0) {
    tell_of_new_pool(pool, output->out);
    return {};
  }
  std::string said = output->err;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  said.erase(0, said.rfind('\n') + 1);  // before it stand warnings, of which we have given our own
  return fail(ErrorCode::kUnavailable,
              "cannot start a service on " + pool + ": " + (said.empty() ? "no reason given" : said));
}

}  // namespace sluice::client
