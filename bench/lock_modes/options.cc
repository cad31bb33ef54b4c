#include "bench/lock_modes/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "bench/lock_modes/report.h"

namespace sluice::bench::lock_modes {
namespace {

constexpr const char* kDescription =
    "Aggregators write one file at the same time, strided by chunk, in each lock mode, and each a file of "
    "its "
    "own. Simulated: virtual time, but the lock manager's real client and server code over the simulated "
    "transport.";

constexpr const char* kFooter = R"(
Write i of aggregator a is transfer i * aggregators + a of the file, and transfer t belongs to server t modulo servers.
Each server has a lock namespace of its own. All modes send every write with its lock's token, which the server checks.

What takes time
  a message       the delay, one way, and --message-us of the one processor of each end; messages of a connection keep
                  their order, a processor does one thing after the other
  a write         the bytes pass the aggregator's link (--link-gbs) and the server's intake (--server-gbs), which all its
                  clients share, first come first served, at the same time; then it is acknowledged
  the write-back  a write ends when its lock is held and its bytes are copied (--copy-gbs); an aggregator goes on until
                  --dirty bytes are not acknowledged. A lock that is asked back is given back when what was written under
                  it is acknowledged. With --write-through nothing is copied and a write ends when it is acknowledged
  the rounds      as in two-phase collective writes an aggregator begins its next write when all have ended theirs; what
                  they tell each other for that is not counted. With --independent none waits for another
  lockahead       is told each aggregator's file domain when the clock starts, as a collective write can; with
                  --unforeseen it sees the writes only
Nothing else takes time: no medium, no drain, no computing between the writes.
Reported: bytes/s from the first write to the last acknowledgement, messages for each write (all kinds), the share of the
writes that waited for a lock and for how long. Opening, closing and giving the locks back at the end do not count.

--check holds lockahead, at 8 aggregators, 2 servers and 200 us, to: at least 3 x standard at 64 KiB, at least 2 x at
1 MiB, at least 0.95 of file-per-process at every size. Exit code: 0 done (and held), 1 a floor was missed or a file
could not be written, 2 options that make no sense.

Examples:
  lock_modes --check --svg lock_modes.svg
  lock_modes --aggregators 100000 --servers 64 --writes 8 --sizes 1m --delays 50 --modes lockahead,none)";

constexpr uint64_t kMaxTransferBytes = uint64_t{1} << 30;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  size_t from = 0;
  while (true) {
    const size_t comma = text.find(',', from);
    parts.push_back(text.substr(from, comma == std::string::npos ? comma : comma - from));
    if (comma == std::string::npos) return parts;
    from = comma + 1;
  }
}

struct Lists {
  std::string sizes = "64k,256k,1m,8m";
  std::string delays = "0,50,200";
  std::string modes = "standard,group,lockahead,auto,none,file-per-process";
  std::string dirty = "32m";
  double server_gbs = 20;
  double link_gbs = 12.5;
  double copy_gbs = 10;
};

void declare(CLI::App& app, Options& options, Lists& lists) {
  app.add_option("--aggregators", options.aggregators, "Aggregators, up to 100000")
      ->check(CLI::Range(1u, kMaxAggregators))
      ->capture_default_str();
  app.add_option("--servers", options.servers, "Servers, up to 1024")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--writes", options.writes, "Writes of each aggregator")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000}))
      ->capture_default_str();
  app.add_option("--sizes", lists.sizes, "Sizes of a transfer, e.g. 64k,1m")->capture_default_str();
  app.add_option("--delays", lists.delays, "Message delays, one way, in microseconds")->capture_default_str();
  app.add_option("--modes", lists.modes, "Which modes")->capture_default_str();
  app.add_option("--server-gbs", lists.server_gbs, "What a server takes in, in 10^9 bytes/s")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--link-gbs", lists.link_gbs, "What an aggregator's link carries, in 10^9 bytes/s")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--copy-gbs", lists.copy_gbs, "What an aggregator copies, in 10^9 bytes/s")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--message-us", options.model.message_us, "Processor time of a message, at each end")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--dirty", lists.dirty, "An aggregator's bytes that are not acknowledged yet, at most")
      ->capture_default_str();
  app.add_flag("--write-through", options.model.write_through, "A write ends when it is acknowledged");
  app.add_flag("--independent", options.model.independent,
               "No rounds: each aggregator writes as fast as it can");
  app.add_flag("--unforeseen", options.model.unforeseen,
               "Aggregators do not tell their file domains; lockahead learns them from the writes");
  app.add_option("--window", options.model.window_extents, "Extents that lockahead asks for ahead")
      ->check(CLI::Range(uint64_t{1}, uint64_t{4096}))
      ->capture_default_str();
  app.add_option("--json", options.json_path, "Write the figures to this file as JSON")->type_name("FILE");
  app.add_option("--svg", options.svg_path, "Draw the figures into this file")->type_name("FILE");
  app.add_flag("--check", options.check, "Exit 0 only when lockahead's floors held in this run");
}

Result<> read_lists(const Lists& lists, Options& options) {
  options.sizes_bytes.clear();
  for (const auto& text : split(lists.sizes)) {
    auto size = parse_size(text);
    if (!size) return fail(size.error());
    options.sizes_bytes.push_back(*size);
  }
  options.delays_us.clear();
  for (const auto& text : split(lists.delays)) {
    uint64_t delay = 0;
    const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), delay);
    if (bad != std::errc() || end != text.data() + text.size() || delay > 10'000'000)
      return fail(ErrorCode::kInvalidArgument,
                  "'" + text + "' is not a delay; use microseconds, up to 10000000");
    options.delays_us.push_back(delay);
  }
  options.schemes.clear();
  for (const auto& text : split(lists.modes)) {
    auto scheme = parse_scheme(text);
    if (!scheme) return fail(scheme.error());
    options.schemes.push_back(*scheme);
  }
  auto dirty = parse_size(lists.dirty);
  if (!dirty) return fail(dirty.error());
  options.model.dirty_bytes = *dirty;
  options.model.server_bytes_per_s = lists.server_gbs * 1e9;
  options.model.link_bytes_per_s = lists.link_gbs * 1e9;
  options.model.copy_bytes_per_s = lists.copy_gbs * 1e9;
  if (options.check && !covers_floors(options)) {
    return fail(ErrorCode::kInvalidArgument,
                "--check needs 8 aggregators, 2 servers, a delay of 200, the sizes 64k and 1m, and the modes "
                "standard, "
                "lockahead and file-per-process");
  }
  return {};
}

}  // namespace

Result<uint64_t> parse_size(const std::string& text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [unit, bad] = std::from_chars(text.data(), end, number);
  const std::string_view rest(unit, static_cast<size_t>(end - unit));
  const int shift = rest.empty() ? 0 : rest == "k" ? 10 : rest == "m" ? 20 : rest == "g" ? 30 : -1;
  if (bad != std::errc() || shift < 0 || number == 0 || number > (kMaxTransferBytes >> shift))
    return fail(ErrorCode::kInvalidArgument, "'" + text + "' is not a size; write e.g. 64k or 1m, up to 1g");
  return number << shift;
}

Parsed parse_options(int argc, const char* const* argv) {
  Parsed parsed;
  Lists lists;
  CLI::App app(kDescription, "lock_modes");
  app.footer(kFooter);
  declare(app, parsed.options, lists);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    parsed.exit_code = app.exit(success);
    return parsed;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "lock_modes: %s; see lock_modes --help\n", error.what());
    parsed.exit_code = 2;
    return parsed;
  }
  if (auto read = read_lists(lists, parsed.options); !read) {
    std::fprintf(stderr, "lock_modes: %s\n", read.error().message.c_str());
    parsed.exit_code = 2;
  }
  return parsed;
}

}  // namespace sluice::bench::lock_modes
