#include "server/command_line.h"

#include <fmt/format.h>
#include <getopt.h>

#include <charconv>

namespace sluice::server {

const char* const kUsage =
    "Usage: sluiced --pool DIR [options]\n"
    "Serves the pool in DIR until SIGTERM or SIGINT. `sluice up` starts it in the background; most users "
    "want that.\n"
    "\n"
    "  --pool DIR         the pool; made when DIR is empty or missing\n"
    "  --targets N        of a new pool: number of storage targets (3)\n"
    "  --class C          of a new pool: object class (chosen from the number of targets)\n"
    "  --hot-dir DIR      of a new pool: where the hot tier's file lies (DIR/hot of the pool)\n"
    "  --hot-size BYTES   of a new pool: size of the hot tier (268435456)\n"
    "  --listen ADDR      HOST:PORT, port 0 for any (127.0.0.1:0)\n"
    "  --drain POLICY     immediate, on_sync, watermark or idle (immediate)\n"
    "  --accept-lost-hot-tier  start although the hot tier's file is gone with data that was not drained\n"
    "  --existing         do not make a pool\n"
    "  --private          started for the time of one command, which stops it when nobody else uses it\n"
    "  --foreground       log to stderr instead of DIR/sluiced.log\n"
    "  --ready-fd N       write one line to this descriptor when ready: 'ready', 'ready made' (a new pool), "
    "'running PID' or 'error CODE WHY'\n"
    "  --help\n"
    "\n"
    "Example: sluiced --pool ~/pool --foreground\n";

namespace {

template <class T>
Result<T> number(const char* option, const char* text) {
  T value{};
  const std::string_view digits = text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size())
    return fail(ErrorCode::kInvalidArgument, fmt::format("--{} wants a number, not '{}'", option, text));
  return value;
}

enum Option {
  kPool = 1,
  kTargets,
  kClass,
  kHotDir,
  kHotSize,
  kListen,
  kDrain,
  kAcceptLoss,
  kForeground,
  kExisting,
  kPrivate,
  kReadyFd,
  kHelp
};

const option kOptions[] = {
    {"pool", required_argument, nullptr, kPool},
    {"targets", required_argument, nullptr, kTargets},
    {"class", required_argument, nullptr, kClass},
    {"hot-dir", required_argument, nullptr, kHotDir},
    {"hot-size", required_argument, nullptr, kHotSize},
    {"listen", required_argument, nullptr, kListen},
    {"drain", required_argument, nullptr, kDrain},
    {"accept-lost-hot-tier", no_argument, nullptr, kAcceptLoss},
    {"foreground", no_argument, nullptr, kForeground},
    {"ready-fd", required_argument, nullptr, kReadyFd},
    {"existing", no_argument, nullptr, kExisting},
    {"private", no_argument, nullptr, kPrivate},
    {"help", no_argument, nullptr, kHelp},
    {nullptr, 0, nullptr, 0},
};

template <class T, class To>
Result<> take_number(const char* option, const char* text, To& to) {
  auto value = number<T>(option, text);
  if (!value) return fail(value.error());
  to = *value;
  return {};
}

Result<> take(int which, const char* value, CommandLine& line) {
  switch (which) {
    case kPool:
      line.pool = value;
      return {};
    case kTargets:
      return take_number<unsigned>("targets", value, line.request.targets);
    case kClass:
      line.request.object_class = value;
      return {};
    case kHotDir:
      line.request.hot_dir = value;
      return {};
    case kHotSize:
      return take_number<uint64_t>("hot-size", value, line.request.hot_bytes);
    case kListen:
      line.request.listen = value;
      return {};
    case kDrain:
      line.request.drain = value;
      return {};
    case kAcceptLoss:
      line.accept_lost_hot_tier = true;
      return {};
    case kForeground:
      line.foreground = true;
      return {};
    case kExisting:
      line.existing = true;
      return {};
    case kPrivate:
      line.private_service = true;
      return {};
    case kReadyFd:
      return take_number<int>("ready-fd", value, line.ready_fd);
    case kHelp:
      line.help = true;
      return {};
    default:
      return fail(ErrorCode::kInvalidArgument, "see sluiced --help");
  }
}

}  // namespace

Result<CommandLine> parse_command_line(int argc, char** argv) {
  CommandLine line;
  optind = 1;
  opterr = 0;
  while (true) {
    const int at = optind;
    const int which = ::getopt_long(argc, argv, ":", kOptions, nullptr);
    if (which == -1) break;
    if (which == ':')
      return fail(ErrorCode::kInvalidArgument, fmt::format("{} wants a value; see sluiced --help", argv[at]));
    if (which == '?')
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("there is no option {}; see sluiced --help", argv[at]));
    if (auto taken = take(which, optarg, line); !taken) return fail(taken.error());
  }
  if (optind < argc)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not an option; see sluiced --help", argv[optind]));
  if (line.pool.empty() && !line.help)
    return fail(ErrorCode::kInvalidArgument, "--pool DIR is missing; see sluiced --help");
  return line;
}

}  // namespace sluice::server
