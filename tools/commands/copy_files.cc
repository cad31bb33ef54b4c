// cp
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/commands/commands.h"
#include "tools/copy.h"
#include "tools/exit_code.h"
#include "tools/progress.h"
#include "tools/sizes.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

std::string last_part(const std::string& path) {
  return fs::path(path).filename().string();
}

struct Plan {
  std::optional<std::string> from_pool, to_pool;
  fs::path from_local, to_local;
};

// A destination that is a directory takes the source's name.
Result<Plan> plan(const CopyCommandOptions& options) {
  Plan plan;
  plan.from_pool = client::pool_path(options.from);
  plan.to_pool = client::pool_path(options.to);
  if (!plan.from_pool && !plan.to_pool)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("neither {} nor {} is in the pool; write sluice:/PATH for the one that is",
                            options.from, options.to));
  plan.from_local = options.from;
  plan.to_local = options.to;
  const std::string name = plan.from_pool ? last_part(*plan.from_pool) : plan.from_local.filename().string();
  std::error_code ec;
  if (plan.to_pool && (options.to.ends_with("/") || options.to == "sluice:"))
    plan.to_pool = *plan.to_pool + "/" + name;
  if (!plan.to_pool && fs::is_directory(plan.to_local, ec)) plan.to_local /= name;
  return plan;
}

Result<CopyReport> copy_with(client::Client& client, const Plan& plan, const CopyOptions& options) {
  if (plan.from_pool && plan.to_pool) return copy_within(client, *plan.from_pool, *plan.to_pool, options);
  if (plan.from_pool) return copy_out(client, *plan.from_pool, plan.to_local, options);
  return copy_in(client, plan.from_local, *plan.to_pool, options);
}

}  // namespace

int run_copy(const CopyCommandOptions& options) {
  auto planned = plan(options);
  if (!planned) return report(planned.error());
  CopyOptions copy;
  copy.force = options.force;
  copy.object_class = options.object_class;
  if (!options.chunk_size.empty()) {
    auto bytes = parse_bytes(options.chunk_size);
    if (!bytes) return report(bytes.error());
    copy.chunk_bytes = *bytes;
  }
  std::error_code ec;
  if (!planned->from_pool && !fs::exists(planned->from_local, ec))
    return report(Error(ErrorCode::kNotFound,
                        fmt::format("{} is not there; nothing was copied", planned->from_local.string())));

  auto interruption = Interruption::begin();
  if (!interruption) return report(interruption.error());
  copy.interruption = interruption->get();
  auto connection = connect(options.common);
  if (!connection) return report(connection.error());
  Result<CopyReport> done = [&] {
    std::optional<Progress> progress;
    copy.on_progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
      if (!progress) progress.emplace("copying", total_bytes);
      progress->show(done_bytes);
    };
    return copy_with(*connection->client, *planned, copy);
  }();
  int code = done ? static_cast<int>(kOk) : report(done.error());
  const int signal = (*interruption)->signal();
  if (!done && done.error().code == ErrorCode::kAborted && signal != 0) code = 128 + signal;
  (*interruption)->done();
  if (done && options.common.json)
    fmt::print(
        "{}\n",
        nlohmann::json{{"bytes", done->bytes}, {"data_bytes", done->data_bytes}, {"verified", done->verified}}
            .dump());
  return disconnect(std::move(*connection), code, [&] { return (*interruption)->signal() != 0; });
}

}  // namespace sluice::tools
