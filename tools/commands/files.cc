// ls, stat, rm, explain, persist
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/printable.h"
#include "tools/commands/commands.h"
#include "tools/exit_code.h"
#include "tools/progress.h"
#include "tools/sizes.h"

namespace sluice::tools {
namespace {

using nlohmann::json;

json to_json(const client::FileInfo& info) {
  return {{"path", info.path},
          {"size", info.size_bytes},
          {"class", info.object_class},
          {"chunk_size", info.chunk_bytes},
          {"epochs", {{"committed", info.committed_epoch}, {"persisted", info.persisted_epoch}}},
          {"hot_bytes", info.hot_bytes},
          {"drained_bytes", info.drained_bytes},
          {"uid", info.uid},
          {"gid", info.gid},
          {"mode", fmt::format("{:04o}", info.mode & 07777)},
          {"created", info.created_s},
          {"modified", info.modified_s}};
}

// Paths need not be UTF-8; JSON must be.
void print_json(const json& value) {
  fmt::print("{}\n", value.dump(2, ' ', false, json::error_handler_t::replace));
}

std::string mode_text(uint32_t mode) {
  std::string text = "-rwxrwxrwx";
  for (int bit = 0; bit < 9; ++bit)
    if ((mode & (0400u >> bit)) == 0) text[static_cast<size_t>(bit) + 1] = '-';
  return text;
}

std::string user_name(uint32_t uid) {
  const passwd* entry = ::getpwuid(uid);
  return entry == nullptr ? std::to_string(uid) : entry->pw_name;
}
std::string group_name(uint32_t gid) {
  const group* entry = ::getgrgid(gid);
  return entry == nullptr ? std::to_string(gid) : entry->gr_name;
}

std::string time_text(uint64_t seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(static_cast<time_t>(seconds)));
}

struct Entry {
  std::string name;
  const client::FileInfo* file = nullptr;  // none: a directory
  uint64_t files = 0, bytes = 0;           // of a directory
};

// What lies directly in `directory` ("/" or "/a"), directories summed up.
std::vector<Entry> entries_of(const std::string& directory, const std::vector<client::FileInfo>& files) {
  const std::string prefix = directory == "/" ? "/" : directory + "/";
  std::map<std::string, Entry> entries;
  for (const auto& file : files) {
    if (!file.path.starts_with(prefix)) {
      entries[file.path] = {file.path, &file, 1, file.size_bytes};  // the path is a file itself
      continue;
    }
    const size_t slash = file.path.find('/', prefix.size());
    if (slash == std::string::npos) {
      const std::string name = file.path.substr(prefix.size());
      entries[name] = {name, &file, 1, file.size_bytes};
    } else {
      Entry& entry = entries[file.path.substr(prefix.size(), slash - prefix.size()) + "/"];
      entry.name = file.path.substr(prefix.size(), slash - prefix.size()) + "/";
      entry.files += 1;
      entry.bytes += file.size_bytes;
    }
  }
  std::vector<Entry> sorted;
  for (auto& [name, entry] : entries) sorted.push_back(std::move(entry));
  return sorted;
}

void print_long(const std::string& name, const client::FileInfo& file) {
  fmt::print("{} {} {} {:>14} {} {:<8} {}{}\n", mode_text(file.mode), user_name(file.uid),
             group_name(file.gid), file.size_bytes, time_text(file.modified_s), file.object_class,
             printable_name(name),
             file.hot_bytes > 0 ? fmt::format("  ({} not drained yet)", print_bytes(file.hot_bytes)) : "");
}

void print_entries(const std::vector<Entry>& entries, bool long_format) {
  for (const Entry& entry : entries) {
    if (!long_format)
      fmt::print("{}\n", printable_name(entry.name));
    else if (entry.file != nullptr)
      print_long(entry.name, *entry.file);
    else
      fmt::print("{:<10} {:>14} {}  ({} file{})\n", "d", entry.bytes, printable_name(entry.name), entry.files,
                 entry.files == 1 ? "" : "s");
  }
}

int list_with(client::Client& client, const ListOptions& options) {
  auto path = path_in_pool(options.path);
  if (!path) return report(path.error());
  auto files = client.list(*path);
  if (!files) return report(files.error());
  std::string directory = *path;
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  if (files->empty() && directory != "/")
    return report(Error(ErrorCode::kNotFound,
                        fmt::format("there is nothing at {} in the pool; see `sluice ls /`", directory)));
  if (options.common.json) {
    json list = json::array();
    for (const auto& file : *files) list.push_back(to_json(file));
    print_json(list);
    return kOk;
  }
  if (!options.recursive) {
    print_entries(entries_of(directory, *files), options.long_format);
    return kOk;
  }
  for (const auto& file : *files) {
    if (options.long_format)
      print_long(file.path, file);
    else
      fmt::print("{}\n", printable_name(file.path));
  }
  return kOk;
}

void print_stat(const client::FileInfo& info) {
  fmt::print("path       {}\n", printable_name(info.path));
  fmt::print("size       {} ({})\n", info.size_bytes, print_bytes(info.size_bytes));
  fmt::print("class      {}, chunk size {}\n", info.object_class, print_bytes(info.chunk_bytes));
  fmt::print("epochs     committed {}, persisted {}\n", info.committed_epoch, info.persisted_epoch);
  fmt::print("bytes      {} not drained yet, {} drained\n", info.hot_bytes, info.drained_bytes);
  fmt::print("owner      {} {} {}\n", user_name(info.uid), group_name(info.gid), mode_text(info.mode));
  fmt::print("modified   {}\n", time_text(info.modified_s));
}

// The lines of a text, without their ends.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(std::move(line));
  return lines;
}

// Runs `one` for each path; a failure is reported and does not keep the others from being done. Answers the
// first failure's code. With --json what `one` told is printed: of one path its object, of several a list of
// those that did not fail.
template <class One>
int for_each_path(const PathsOptions& options, One one) {
  auto connection = connect(options.common);
  if (!connection) return report(connection.error());
  int code = kOk;
  json all = json::array();
  for (const std::string& text : options.paths) {
    auto path = path_in_pool(text);
    json told;
    const int done = path ? one(*connection->client, *path, told) : report(path.error());
    if (code == kOk) code = done;
    if (!told.is_null()) all.push_back(std::move(told));
  }
  if (options.common.json && options.paths.size() > 1)
    print_json(all);
  else if (options.common.json && !all.empty())
    print_json(all[0]);
  return disconnect(std::move(*connection), code);
}

int persist_one(client::Client& client, const std::string& path, const PathsOptions& options) {
  constexpr uint64_t kSliceMs = 1'000;
  const time_t end = std::time(nullptr) + static_cast<time_t>(options.timeout_s);
  auto before = client.stat(path);
  if (!before && path != "/") return report(before.error());
  const uint64_t total = before ? before->hot_bytes : 0;
  Progress progress("persisting " + printable_name(path), total);
  while (true) {
    auto drained = client.wait_drained(path, kSliceMs);
    if (drained) return kOk;
    if (drained.error().code != ErrorCode::kTimedOut || std::time(nullptr) >= end)
      return report(drained.error());
    auto now = client.stat(path);
    if (now && total >= now->hot_bytes) progress.show(total - now->hot_bytes);
  }
}

// What lies below a path, which is then a directory; nothing when it is none.
Result<std::vector<std::string>> files_below(client::Client& client, const std::string& path) {
  auto files = client.list(path);
  if (!files) return fail(files.error());
  std::vector<std::string> below;
  for (const auto& file : *files)
    if (file.path != path) below.push_back(file.path);
  return below;
}

// A directory goes with the last file in it.
Result<> remove_below(client::Client& client, const std::string& path, bool recursive) {
  auto files = files_below(client, path);
  if (!files) return fail(files.error());
  if (files->empty()) return fail(ErrorCode::kNotFound, "");
  if (!recursive)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is a directory with {} file{}; `sluice rm -r {}` removes all", path,
                            files->size(), files->size() == 1 ? "" : "s", path));
  for (const std::string& file : *files) {
    auto removed = client.remove(file);
    if (!removed && removed.error().code != ErrorCode::kNotFound) return fail(removed.error());
  }
  return {};
}

}  // namespace

int run_list(const ListOptions& options) {
  auto connection = connect(options.common);
  if (!connection) return report(connection.error());
  const int code = list_with(*connection->client, options);
  return disconnect(std::move(*connection), code);
}

int run_stat(const PathsOptions& options) {
  return for_each_path(options, [&](client::Client& client, const std::string& path, json& told) -> int {
    auto info = client.stat(path);
    if (!info) return report(info.error());
    if (options.common.json)
      told = to_json(*info);
    else
      print_stat(*info);
    return kOk;
  });
}

int run_remove(const PathsOptions& options) {
  return for_each_path(options, [&](client::Client& client, const std::string& path, json& told) -> int {
    const std::string named = path.ends_with('/') ? path.substr(0, path.find_last_not_of('/') + 1) : path;
    auto removed = client.remove(path);
    if (!removed && (removed.error().code == ErrorCode::kNotFound ||
                     removed.error().code == ErrorCode::kInvalidArgument)) {
      const auto below = remove_below(client, named.empty() ? "/" : named, options.recursive);
      if (below || below.error().code != ErrorCode::kNotFound) removed = below;
    }
    const bool was_gone = !removed && options.force && removed.error().code == ErrorCode::kNotFound;
    if (!removed && !was_gone) return report(removed.error());
    told = {{"path", path}, {"removed", !was_gone}};
    return kOk;
  });
}

int run_explain(const PathsOptions& options) {
  return for_each_path(options, [&](client::Client& client, const std::string& path, json& told) -> int {
    auto text = client.explain(path);
    if (!text) return report(text.error());
    if (!options.common.json) {
      fmt::print("{}{}", *text, text->ends_with('\n') ? "" : "\n");
      return kOk;
    }
    auto info = client.stat(path);
    if (!info) return report(info.error());
    told = to_json(*info);
    told["explanation"] = lines_of(*text);
    return kOk;
  });
}

int run_persist(const PathsOptions& options) {
  return for_each_path(options, [&](client::Client& client, const std::string& path, json& told) -> int {
    const int code = persist_one(client, path, options);
    if (code != kOk || !options.common.json) return code;
    // "/" and directories stand for all files in them, and have no numbers of their own.
    told = {{"path", path}, {"persisted", true}};
    if (auto info = client.stat(path)) told["epochs"] = to_json(*info)["epochs"];
    return kOk;
  });
}

}  // namespace sluice::tools
