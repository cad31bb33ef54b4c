// sluice: the command line. Options are parsed here; tools/commands does the work.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/nearest.h"
#include "tools/commands/commands.h"
#include "tools/exit_code.h"

namespace {

using namespace sluice::tools;

constexpr const char* kFooter =
    "Paths in the pool are written sluice:/a/b; commands that only know the pool take /a/b as well.\n"
    "Environment: SLUICE_POOL names the pool when --pool does not. SLUICE_LOG sets the log level.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused (exists already, or contradicts "
    "what is there),\n"
    "  5 no service answers, or not in time, 6 no space, 7 no permission, 8 data damaged or lost. `sluice "
    "run` ends as its "
    "command did, or with\n"
    "  2 or 4 for its own options or the pool.toml, 120 the service could not be started, 121 the data was "
    "not drained, 122 "
    "mpirun could not be started.\n"
    "Example: sluice run -n 4 -- ./my_app sluice:/out.h5";

struct AllOptions {
  Common common;
  UpOptions up;
  DownOptions down;
  RunOptions run;
  bool metrics = false;
  ListOptions list;
  PathsOptions stat, remove, explain, persist, locks;
  CopyCommandOptions copy;
  HintsOptions hints;
  std::string script_file, dump_file;
};

CLI::App* add(CLI::App& app, const char* name, const char* what, const std::string& example, Common* common,
              bool json) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer("Example: " + example);
  if (common != nullptr)
    command->add_option("--pool", common->pool, "Directory of the pool [SLUICE_POOL]")->type_name("DIR");
  if (common != nullptr && json) command->add_flag("--json", common->json, "Print JSON");
  return command;
}

void add_pool_options(CLI::App* command, PoolOptions& options) {
  command->add_option("--targets", options.targets, "Storage targets of a new pool (3)")->type_name("N");
  command
      ->add_option("--class", options.object_class,
                   "Object class of a new pool, e.g. EC_4P2 (by the number of targets)")
      ->type_name("CLASS");
  command->add_option("--servers", options.servers, "Servers of the pool (1)")->type_name("N");
  command->add_option("--hot-dir", options.hot_dir, "Directory of a new pool's hot tier (inside the pool)")
      ->type_name("DIR");
  command->add_option("--hot-size", options.hot_size, "Size of a new pool's hot tier, e.g. 2G (256M)")
      ->type_name("BYTES");
  command->add_option("--listen", options.listen, "Address of the service (127.0.0.1:0, any free port)")
      ->type_name("HOST:PORT");
  command
      ->add_option("--drain", options.drain, "When to drain: immediate, on_sync, watermark, idle (immediate)")
      ->type_name("POLICY");
  command->add_flag("--accept-lost-hot-tier", options.accept_lost_hot_tier,
                    "Start although the hot tier's file is gone, with what was not drained");
}

CLI::App* add_paths(CLI::App& app, const char* name, const char* what, const std::string& example,
                    PathsOptions& options) {
  CLI::App* command = add(app, name, what, example, &options.common, true);
  command->add_option("PATH", options.paths, "Path in the pool")->required();
  return command;
}

void define_service_commands(CLI::App& app, AllOptions& all) {
  CLI::App* up = add(app, "up", "Start the service of a pool; make the pool when there is none",
                     "sluice up --pool ~/pool --targets 6 --class EC_4P2", &all.up.common, true);
  add_pool_options(up, all.up.pool);
  CLI::App* down = add(app, "down", "Drain the pool and stop its service", "sluice down --pool ~/pool",
                       &all.down.common, true);
  down->add_flag("--no-drain", all.down.no_drain, "Leave in the hot tier what is not drained yet");
  CLI::App* run = add(app, "run", "Run an MPI program with a service of its own, then drain",
                      "sluice run -n 4 -- ./my_app sluice:/out.h5", &all.run.common, false);
  run->description(
      "Run an MPI program over the pool (./sluice-pool when none is named; made when it is missing), then "
      "wait until its data is on "
      "the storage targets. A service that was running is used and left running; otherwise one runs for the "
      "time of the command.");
  run->add_option("-n", all.run.ranks, "Number of MPI processes (1)")->check(CLI::Range(1u, 1u << 20));
  add_pool_options(run, all.run.pool);
  run->add_option("--mpirun", all.run.mpirun, "The mpirun to use (MPICH's on PATH)")->type_name("PROGRAM");
  run->add_option("COMMAND", all.run.command, "The program and its arguments, after --")->required();
  CLI::App* status = add(app, "status", "Show how the service is", "sluice status --json", &all.common, true);
  status->add_flag("--metrics", all.metrics, "Print the counters as text for Prometheus");
  add(app, "doctor", "Check MPI, libraries and the pool, and say what to do", "sluice doctor --pool ~/pool",
      &all.common, true);
  add(app, "preload", "Print the library to preload into MPI programs",
      "mpirun -n 64 -genv LD_PRELOAD \"$(sluice preload)\" ./my_app sluice:/x", nullptr, false);
  add(app, "libs", "Print the flags to link MPI programs with", "mpicc my_app.c $(sluice libs)", nullptr,
      false);
}

void define_file_commands(CLI::App& app, AllOptions& all) {
  CLI::App* list = add(app, "ls", "List files", "sluice ls -l /", &all.list.common, true);
  list->add_flag("-l,--long", all.list.long_format, "Mode, owner, size, time and class");
  list->add_flag("-R,--recursive", all.list.recursive, "All files below, with their whole paths");
  list->add_option("PATH", all.list.path, "Path in the pool (/)");
  add_paths(app, "stat", "Show what is known of files", "sluice stat --json /out.h5", all.stat);
  CLI::App* copy = add(app, "cp", "Copy a file into, out of or within the pool, and verify the copy",
                       "sluice cp sluice:/ckpt.0001 /scratch/ckpt.0001", &all.copy.common, true);
  copy->add_option("FROM", all.copy.from, "sluice:/PATH or a local file")->required();
  copy->add_option("TO", all.copy.to, "sluice:/PATH, a local file or directory")->required();
  copy->add_flag("-f,--force", all.copy.force, "Replace what is there");
  copy->add_option("--class", all.copy.object_class, "Object class of a copy in the pool")
      ->type_name("CLASS");
  copy->add_option("--chunk-size", all.copy.chunk_size, "Chunk size of a copy in the pool, e.g. 1M")
      ->type_name("BYTES");
  CLI::App* remove = add_paths(app, "rm", "Remove files", "sluice rm /ckpt.0001 /ckpt.0002", all.remove);
  remove->add_flag("-f,--force", all.remove.force, "Files that are not there are no error");
  remove->add_flag("-r,--recursive", all.remove.recursive, "All files below as well");
  add_paths(app, "explain", "Say how a file is laid out and why", "sluice explain /ckpt.0001", all.explain);
  CLI::App* persist = add_paths(app, "persist", "Wait until files are on the storage targets",
                                "sluice persist /ckpt.0001", all.persist);
  persist->add_option("--timeout", all.persist.timeout_s, "Seconds to wait (3600)")->type_name("S");
}

void define_looking_commands(CLI::App& app, AllOptions& all) {
  CLI::App* hints = add(app, "hints", "List the hints of MPI files: names, values and what they do",
                        "sluice hints --json", nullptr, false);
  auto* json = hints->add_flag("--json", all.hints.json, "Print JSON");
  hints->add_flag("--markdown", all.hints.markdown, "Print the table of the README")->excludes(json);
  CLI::App* table =
      add(app, "locktable", "Try out requests on a lock table of its own",
          "printf 'grant a PW 0 100\\ntry b PW 50 60\\nshow\\n' | sluice locktable", nullptr, false);
  table->add_option("SCRIPT", all.script_file, "Commands, one a line (stdin); see lockmgr/text.h");
  add_paths(app, "locks", "Show who holds and waits for locks of files, and what their locks did",
            "sluice locks --json /ckpt.0001", all.locks);
  CLI::App* dump = add(app, "dump", "Print a hot tier's log or a shard's header; the service must be stopped",
                       "sluice dump ~/pool/hot/hot.pool", nullptr, false);
  dump->add_option("FILE", all.dump_file, "POOL/hot/hot.pool, or a file in POOL/targets/tN/shards")
      ->required();
}

int dispatch(const std::string& name, const AllOptions& all) {
  if (name == "up") return run_up(all.up);
  if (name == "down") return run_down(all.down);
  if (name == "run") return run_run(all.run);
  if (name == "status") return run_status(all.common, all.metrics);
  if (name == "doctor") return run_doctor(all.common);
  if (name == "hints") return run_hints(all.hints);
  if (name == "preload") return run_preload();
  if (name == "libs") return run_libs();
  if (name == "ls") return run_list(all.list);
  if (name == "stat") return run_stat(all.stat);
  if (name == "cp") return run_copy(all.copy);
  if (name == "rm") return run_remove(all.remove);
  if (name == "explain") return run_explain(all.explain);
  if (name == "locks") return run_locks(all.locks);
  if (name == "locktable") return run_lock_table(all.script_file);
  if (name == "dump") return run_dump(all.dump_file);
  return run_persist(all.persist);
}

// The word where a command should be, when none has that name.
std::optional<std::string> unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || !app.get_subcommands().empty()) return std::nullopt;
  const std::string word = argv[1];
  return word.starts_with("-") ? std::nullopt : std::optional(word);
}

int report_unknown(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  std::string all;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
    all += (all.empty() ? "" : ", ") + names.back();
  }
  const std::string message = "there is no command '" + word + "'; the nearest is '" +
                              std::string(sluice::nearest(word, {names.begin(), names.end()})) + "' of " +
                              all + "; see sluice --help";
  return report(sluice::Error(sluice::ErrorCode::kInvalidArgument, message));
}

// The first word in front of "--" that looks like an option and is none of the command's.
std::optional<std::string> unknown_option(const CLI::App& command, int argc, char** argv) {
  for (int i = 2; i < argc && std::string(argv[i]) != "--"; ++i) {
    std::string word = argv[i];
    if (word.size() < 2 || word[0] != '-') continue;
    word = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
    if (command.get_option_no_throw(word) == nullptr) return argv[i];
  }
  return std::nullopt;
}

int report_unknown_option(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string message = "sluice " + command.get_name() + " has no option '" + word +
                              "'; the nearest is '" +
                              std::string(sluice::nearest(word, {names.begin(), names.end()})) +
                              "'; see sluice " + command.get_name() + " --help";
  return report(sluice::Error(sluice::ErrorCode::kInvalidArgument, message));
}

// `sluice help [COMMAND]` is `sluice [COMMAND] --help`; mpirun's spelling of -n is taken too.
std::vector<std::string> usual_spelling(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (!words.empty() && words[0] == "run") {
    for (size_t i = 1; i < words.size() && words[i] != "--"; ++i)
      if (words[i] == "-np" || words[i] == "--np") words[i] = "-n";
  }
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of file sizes fails, and is told
  sluice::log::init_log("sluice", sluice::log::Level::kWarn);
  AllOptions all;
  CLI::App app("Sluice: shared files for MPI-IO, fast and safe", "sluice");
  app.footer(kFooter);
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(1);
  define_service_commands(app, all);
  define_file_commands(app, all);
  define_looking_commands(app, all);
  std::vector<std::string> words = usual_spelling(argc, argv);
  std::reverse(words.begin(), words.end());  // as the parser takes them
  try {
    app.parse(words);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    if (const auto word = unknown_command(app, argc, argv)) return report_unknown(app, *word);
    std::string why = error.what();
    for (char& c : why)
      if (c == '\n') c = ' ';
    const CLI::App* command = app.get_subcommands().empty() ? nullptr : app.get_subcommands()[0];
    if (command != nullptr) {
      if (const auto word = unknown_option(*command, argc, argv))
        return report_unknown_option(*command, *word);
    }
    std::fprintf(stderr, "sluice: %s; see sluice %s%s--help\n", why.c_str(),
                 command ? command->get_name().c_str() : "", command ? " " : "");
    return kUsage;
  }
  return dispatch(app.get_subcommands()[0]->get_name(), all);
}
