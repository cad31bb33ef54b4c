#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/os.h"
#include "bench/lock_modes/options.h"
#include "bench/lock_modes/plot.h"
#include "bench/lock_modes/report.h"

namespace {

using namespace sluice::bench::lock_modes;

int save(const std::string& path, const std::string& text) {
  if (path.empty()) return 0;
  const auto saved = sluice::replace_file(path, text);
  if (saved) return 0;
  std::fprintf(stderr, "lock_modes: %s\n", saved.error().message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Parsed parsed = parse_options(argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  const Options& options = parsed.options;
  std::vector<Row> rows;
  for (const uint64_t delay_us : options.delays_us) {
    for (const uint64_t size : options.sizes_bytes) {
      for (const Scheme scheme : options.schemes) {
        const Load load{options.aggregators, options.servers, size, options.writes, delay_us};
        rows.push_back({delay_us, size, scheme, simulate(options.model, load, scheme)});
      }
    }
  }
  fmt::print(
      "{} aggregators, {} servers, {} writes each; server {:g} GB/s, link {:g} GB/s, message {:g} us, {}\n\n",
      options.aggregators, options.servers, options.writes, options.model.server_bytes_per_s / 1e9,
      options.model.link_bytes_per_s / 1e9, options.model.message_us,
      options.model.write_through ? "write-through" : "write-back");
  fmt::print("{}", table_text(rows));
  int code = save(options.json_path, json_text(options, rows));
  code = std::max(code, save(options.svg_path, svg_text(options, rows)));
  if (!options.check) return code;
  const auto floors = judge(rows);
  fmt::print("\n{}", floors_text(floors));
  const bool held = std::all_of(floors.begin(), floors.end(), [](const Floor& f) { return f.held(); });
  return held ? code : 1;
}
