#include "bench/lock_modes/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace sluice::bench::lock_modes {
namespace {

constexpr uint64_t kSmall = 64 << 10;
constexpr uint64_t kLarge = 1 << 20;

template <class T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

double waited_us(const Outcome& o) {
  return o.waits == 0 ? 0 : o.wait_us / static_cast<double>(o.waits);
}

std::optional<double> of_file_per_process(const std::vector<Row>& rows, const Row& row) {
  const Row* own = find_row(rows, row.delay_us, row.transfer_bytes, Scheme::kFilePerProcess);
  if (own == nullptr) return std::nullopt;
  return row.outcome.bytes_per_s() / own->outcome.bytes_per_s();
}

}  // namespace

std::string size_text(uint64_t bytes) {
  if (bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

const Row* find_row(const std::vector<Row>& rows, uint64_t delay_us, uint64_t transfer_bytes, Scheme scheme) {
  const auto at = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
    return row.delay_us == delay_us && row.transfer_bytes == transfer_bytes && row.scheme == scheme;
  });
  return at == rows.end() ? nullptr : &*at;
}

std::string table_text(const std::vector<Row>& rows) {
  std::string text =
      fmt::format("{:>8} {:>9}  {:<17} {:>9} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9}\n", "delay", "transfer",
                  "mode", "GB/s", "of f-p-p", "messages", "lock", "waited", "for", "revokes");
  text += fmt::format("{:>8} {:>9}  {:<17} {:>9} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9}\n", "us", "", "", "",
                      "", "per write", "messages", "% writes", "us", "per write");
  uint64_t last = UINT64_MAX;
  for (const Row& row : rows) {
    if (row.transfer_bytes != last) text += "\n";
    last = row.transfer_bytes;
    const Outcome& o = row.outcome;
    const auto writes = static_cast<double>(o.writes);
    const auto share = of_file_per_process(rows, row);
    text += fmt::format("{:>8} {:>9}  {:<17} {:>9.3f} {:>8} {:>10.2f} {:>9.2f} {:>9.1f} {:>9.0f} {:>9.3f}\n",
                        row.delay_us, size_text(row.transfer_bytes), to_string(row.scheme),
                        o.bytes_per_s() / 1e9, share ? fmt::format("{:.3f}", *share) : "-",
                        o.messages_per_write(), static_cast<double>(o.lock_messages) / writes,
                        100.0 * static_cast<double>(o.waits) / writes, waited_us(o),
                        static_cast<double>(o.revokes) / writes);
  }
  return text;
}

std::string json_text(const Options& options, const std::vector<Row>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows) {
    const Outcome& o = row.outcome;
    nlohmann::json one = {{"delay_us", row.delay_us},
                          {"transfer_bytes", row.transfer_bytes},
                          {"mode", to_string(row.scheme)},
                          {"bytes", o.bytes},
                          {"seconds", o.seconds},
                          {"bytes_per_s", o.bytes_per_s()},
                          {"writes", o.writes},
                          {"messages", o.messages},
                          {"lock_messages", o.lock_messages},
                          {"messages_per_write", o.messages_per_write()},
                          {"waits", o.waits},
                          {"mean_wait_us", waited_us(o)},
                          {"revokes", o.revokes},
                          {"dropped_ahead", o.dropped}};
    if (const auto share = of_file_per_process(rows, row)) one["of_file_per_process"] = *share;
    list.push_back(std::move(one));
  }
  const Model& m = options.model;
  return nlohmann::json{{"benchmark", "lock_modes"},
                        {"aggregators", options.aggregators},
                        {"servers", options.servers},
                        {"writes", options.writes},
                        {"model",
                         {{"server_bytes_per_s", m.server_bytes_per_s},
                          {"link_bytes_per_s", m.link_bytes_per_s},
                          {"message_us", m.message_us},
                          {"dirty_bytes", m.dirty_bytes},
                          {"write_through", m.write_through},
                          {"window_extents", m.window_extents}}},
                        {"rows", std::move(list)}}
             .dump(2) +
         "\n";
}

bool covers_floors(const Options& options) {
  return options.aggregators == 8 && options.servers == 2 && contains(options.delays_us, kFloorDelayUs) &&
         contains(options.sizes_bytes, kSmall) && contains(options.sizes_bytes, kLarge) &&
         contains(options.schemes, Scheme::kStandard) && contains(options.schemes, Scheme::kLockahead) &&
         contains(options.schemes, Scheme::kFilePerProcess);
}

std::vector<Floor> judge(const std::vector<Row>& rows) {
  std::vector<Floor> floors = {{kSmall, Scheme::kStandard, 3.0}, {kLarge, Scheme::kStandard, 2.0}};
  std::set<uint64_t> sizes;
  for (const Row& row : rows) sizes.insert(row.transfer_bytes);
  for (const uint64_t size : sizes) floors.push_back({size, Scheme::kFilePerProcess, 0.95});
  for (Floor& floor : floors) {
    const Row* ahead = find_row(rows, kFloorDelayUs, floor.transfer_bytes, Scheme::kLockahead);
    const Row* other = find_row(rows, kFloorDelayUs, floor.transfer_bytes, floor.than);
    if (ahead == nullptr || other == nullptr) continue;  // the ratio stays 0, which no floor takes
    floor.ratio = ahead->outcome.bytes_per_s() / other->outcome.bytes_per_s();
  }
  return floors;
}

std::string floors_text(const std::vector<Floor>& floors) {
  std::string text;
  for (const Floor& floor : floors) {
    text += fmt::format("lockahead at {}, {} us: {:.2f} x {} (floor {:.2f}) {}\n",
                        size_text(floor.transfer_bytes), kFloorDelayUs, floor.ratio, to_string(floor.than),
                        floor.wanted, floor.held() ? "held" : "MISSED");
  }
  return text;
}

}  // namespace sluice::bench::lock_modes
