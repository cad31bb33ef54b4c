#include "server/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "storage/object_class.h"

namespace sluice::server {
namespace {

using nlohmann::json;

// In the label values of the text format, backslash, quote and line feed are escaped.
std::string label_value(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

class MetricsText {
 public:
  void gauge(std::string_view name, std::string_view help, uint64_t value) {
    single(name, help, "gauge", value);
  }
  void counter(std::string_view name, std::string_view help, uint64_t value) {
    single(name, help, "counter", value);
  }

  void head(std::string_view name, std::string_view help, std::string_view type) {
    fmt::format_to(std::back_inserter(text_), "# HELP sluice_{0} {1}\n# TYPE sluice_{0} {2}\n", name, help,
                   type);
  }
  void sample(std::string_view name, std::string_view labels, uint64_t value) {
    fmt::format_to(std::back_inserter(text_), "sluice_{}{{{}}} {}\n", name, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  void single(std::string_view name, std::string_view help, std::string_view type, uint64_t value) {
    head(name, help, type);
    fmt::format_to(std::back_inserter(text_), "sluice_{} {}\n", name, value);
  }

  std::string text_;
};

void add_target_metrics(MetricsText& text, const std::vector<storage::TargetStatus>& targets) {
  const auto labels = [](const storage::TargetStatus& target) {
    return fmt::format("target=\"{}\",path=\"{}\"", target.id.value, label_value(target.path));
  };
  text.head("target_up", "1 when the target can be used.", "gauge");
  for (const auto& target : targets) text.sample("target_up", labels(target), target.state == "up" ? 1 : 0);
  text.head("target_used_bytes", "Bytes of shards on the target.", "gauge");
  for (const auto& target : targets) text.sample("target_used_bytes", labels(target), target.bytes_used);
  text.head("target_free_bytes", "Bytes free for shards on the target.", "gauge");
  for (const auto& target : targets) text.sample("target_free_bytes", labels(target), target.bytes_free);
}

json locks_json(const std::vector<engine::LockCounters>& files) {
  json list = json::array();
  for (const auto& file : files) {
    list.push_back({{"file", file.path},
                    {"held", file.held},
                    {"waiting", file.waiting},
                    {"grants", file.grants},
                    {"expansions", file.expansions},
                    {"revokes", file.revokes},
                    {"dropped_ahead", file.ahead_dropped},
                    {"waits", file.waits},
                    {"wait_s", static_cast<double>(file.wait_ms) / 1000}});
  }
  return list;
}

}  // namespace

std::string service_state(const StatusSnapshot& snapshot) {
  std::string why;
  for (const auto& target : snapshot.targets) {
    if (target.state == "up") continue;
    if (!why.empty()) why += "; ";
    why += target.why.empty()
               ? fmt::format("target {} ({}) is {}", target.id.value, target.path, target.state)
               : target.why;
  }
  const auto gone = std::count_if(snapshot.targets.begin(), snapshot.targets.end(),
                                  [](const auto& target) { return target.gone(); });
  const auto object_class = storage::ObjectClass::parse(snapshot.object_class);
  if (object_class && gone > static_cast<ptrdiff_t>(object_class->m()))
    fmt::format_to(std::back_inserter(why),
                   "; most files of class {} cannot be read before {} of them are back",
                   snapshot.object_class, gone - static_cast<ptrdiff_t>(object_class->m()));
  const uint64_t lost = std::min(snapshot.lost_shards, snapshot.missing_shards);
  if (snapshot.missing_shards > lost)
    fmt::format_to(std::back_inserter(why), "{}{} shards are to be put back on their targets",
                   why.empty() ? "" : "; ", snapshot.missing_shards - lost);
  if (lost > 0)
    fmt::format_to(std::back_inserter(why),
                   "{}{} shards cannot be rebuilt, so files are damaged; sluiced.log names them",
                   why.empty() ? "" : "; ", lost);
  if (snapshot.drain.state.starts_with("blocked"))
    fmt::format_to(std::back_inserter(why), "{}the drain is {}", why.empty() ? "" : "; ",
                   snapshot.drain.state);
  return why.empty() ? "ok" : "degraded: " + why;
}

std::string status_json(const StatusSnapshot& snapshot) {
  json targets = json::array();
  for (const auto& target : snapshot.targets)
    targets.push_back({{"id", target.id.value},
                       {"path", target.path},
                       {"state", target.state},
                       {"why", target.why},
                       {"bytes_used", target.bytes_used},
                       {"bytes_free", target.bytes_free}});
  const engine::Counters& counters = snapshot.counters;
  const json status{
      {"pool", snapshot.pool},
      {"class", snapshot.object_class},
      {"version", snapshot.version},
      {"state", service_state(snapshot)},
      {"private", snapshot.private_service},
      {"servers",
       {{{"id", 0},
         {"address", snapshot.address},
         {"pid", snapshot.pid},
         {"state", "up"},
         {"uptime", snapshot.uptime_s}}}},
      {"settings",
       {{"targets", snapshot.config.targets.size()},
        {"class", snapshot.config.object_class.name()},
        {"hot_dir", snapshot.config.hot_file.parent_path().string()},
        {"hot_size", snapshot.config.hot_bytes},
        {"listen", snapshot.config.listen},
        {"drain", snapshot.config.drain}}},
      {"targets", std::move(targets)},
      {"missing_shards", snapshot.missing_shards},
      {"lost_shards", snapshot.lost_shards},
      {"locks", locks_json(counters.locks)},
      {"hot",
       {{"path", snapshot.hot_path},
        {"medium", snapshot.hot_medium},
        {"survives", snapshot.hot_survives},
        {"bytes_total", snapshot.hot.bytes_total},
        {"bytes_used", snapshot.hot.bytes_used},
        {"bytes_clean", snapshot.hot.bytes_clean},
        {"bytes_undrained", snapshot.hot.bytes_undrained}}},
      {"files", snapshot.files},
      {"drain",
       {{"state", snapshot.drain.state},
        {"bytes_left", snapshot.drain.bytes_left},
        {"bytes_drained", snapshot.drain.bytes_drained}}},
      {"counters",
       {{"sessions", counters.sessions},
        {"clients", counters.clients},
        {"open_files", counters.open_files},
        {"bytes_written", counters.bytes_written},
        {"bytes_read", counters.bytes_read},
        {"writes", counters.writes},
        {"reads", counters.reads},
        {"syncs", counters.syncs},
        {"requests", counters.requests},
        {"opens", counters.opens},
        {"attaches", counters.attaches},
        {"closes", counters.closes},
        {"sessions_evicted", counters.sessions_evicted},
        {"requests_refused", counters.requests_refused},
        {"degraded_blocks", counters.degraded_blocks}}},
  };
  // Paths need not be UTF-8; JSON must be.
  return status.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string metrics_text(const StatusSnapshot& snapshot) {
  MetricsText text;
  const engine::Counters& counters = snapshot.counters;
  text.head("build_info", "The running version.", "gauge");
  text.sample("build_info", fmt::format("version=\"{}\"", label_value(snapshot.version)), 1);
  text.gauge("uptime_seconds", "Since the service became ready.", snapshot.uptime_s);
  text.gauge("missing_shards", "Shards to be put back on their targets.", snapshot.missing_shards);
  text.gauge("lost_shards", "Of those, beyond rebuilding.", snapshot.lost_shards);
  text.gauge("degraded", "1 while a target is missing, a shard is to be put back, or the drain is blocked.",
             service_state(snapshot) == "ok" ? 0 : 1);
  text.gauge("files", "Files in the pool.", snapshot.files);
  text.gauge("sessions", "Clients connected.", counters.sessions);
  text.gauge("open_files", "Open file handles.", counters.open_files);
  text.counter("written_bytes_total", "Bytes of acknowledged writes.", counters.bytes_written);
  text.counter("read_bytes_total", "Bytes given to readers.", counters.bytes_read);
  text.counter("writes_total", "Write requests.", counters.writes);
  text.counter("reads_total", "Read requests.", counters.reads);
  text.counter("syncs_total", "Committed transactions.", counters.syncs);
  text.counter("requests_total", "Messages of clients.", counters.requests);
  text.counter("opens_total", "Files opened.", counters.opens);
  text.counter("attaches_total", "Processes that came to use a file that another opened.", counters.attaches);
  text.counter("closes_total", "Files closed.", counters.closes);
  text.counter("sessions_evicted_total", "Sessions whose lease ended.", counters.sessions_evicted);
  text.counter("requests_refused_total", "Messages that the protocol does not allow.",
               counters.requests_refused);
  text.counter("degraded_blocks_total", "Blocks rebuilt from the others.", counters.degraded_blocks);
  text.gauge("hot_total_bytes", "Size of the hot tier.", snapshot.hot.bytes_total);
  text.gauge("hot_used_bytes", "Bytes in use in the hot tier.", snapshot.hot.bytes_used);
  text.gauge("hot_clean_bytes", "Drained bytes that the hot tier keeps for readers; their room is free.",
             snapshot.hot.bytes_clean);
  text.gauge("hot_undrained_bytes", "Bytes that only the hot tier has.", snapshot.hot.bytes_undrained);
  text.gauge("drain_left_bytes", "Committed bytes to be drained.", snapshot.drain.bytes_left);
  text.counter("drained_bytes_total", "Bytes carried to the storage tier.", snapshot.drain.bytes_drained);
  text.gauge("drain_blocked", "1 while the drain cannot go on.",
             snapshot.drain.state.starts_with("blocked") ? 1 : 0);
  add_target_metrics(text, snapshot.targets);
  return text.take();
}

}  // namespace sluice::server
