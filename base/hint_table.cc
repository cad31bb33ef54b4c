#include "base/hint_table.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = kKiB * kKiB;

std::vector<HintRow> sluice_rows() {
  return {
      {.name = "sluice_object_class",
       .form = "`S1` to `S64`, `SX`, `RP_2`, `RP_3`, `EC_2P1`, `EC_4P1`, `EC_4P2`, `EC_8P2`",
       .default_value = "the pool's",
       .meaning = "class of a file when it is created; one that exists keeps its own",
       .setting = &HintSettings::object_class},
      {.name = "sluice_chunk_size",
       .kind = HintKind::kBytes,
       .least = 64 * kKiB,
       .most = 16 * kMiB,
       .default_value = "1 MiB",
       .meaning =
           "bytes of one shard of a full stripe of a file when it is created; when nobody says, a first "
           "collective write, not a nonblocking one, through a view of larger blocks makes it hold one, up "
           "to 16 MiB",
       .aliases = {{"striping_unit", {}}},
       .setting = &HintSettings::chunk_bytes},
      {.name = "striping_factor",
       .owner = HintOwner::kMpi,
       .kind = HintKind::kCount,
       .least = 2,
       .most = 64,
       .default_value = "targets of the class",
       .meaning = "without `sluice_object_class`: a created file gets the protected class that has so many "
                  "targets, data and parity (2 `RP_2`, 3 `EC_2P1`, 5 `EC_4P1`, 6 `EC_4P2`, 10 `EC_8P2`), if "
                  "the pool can hold it; otherwise it is not taken; it reads back, when given, as the number "
                  "in effect",
       .setting = &HintSettings::striping_factor},
      {.name = "sluice_lock_mode",
       .kind = HintKind::kChoice,
       .choices = {"auto", "standard", "group", "lockahead", "none"},
       .default_value = "`SLUICE_LOCK_MODE`",
       .meaning = "as that variable, for one file",
       .aliases = {{"cray_cb_write_lock_mode", {{"0", "standard"}, {"1", "group"}, {"2", "lockahead"}}},
                   {"romio_lustre_cb_lock_ahead_write",
                    {{"1", "lockahead"}, {"true", "lockahead"}, {"enable", "lockahead"}}}},
       .setting = &HintSettings::lock_mode},
      {.name = "sluice_lockahead_extents",
       .kind = HintKind::kCount,
       .least = 1,
       .most = 4096,
       .default_value = "64",
       .meaning = "locks asked for ahead at a time",
       .aliases = {{"cray_cb_lock_ahead_num_extents", {}}, {"romio_lustre_cb_lock_ahead_num_extents", {}}},
       .setting = &HintSettings::lockahead_extents},
      {.name = "sluice_visibility",
       .kind = HintKind::kChoice,
       .choices = {"commit"},
       .default_value = "commit",
       .meaning = "others see writes at sync or close"},
      {.name = "sluice_drain",
       .kind = HintKind::kChoice,
       .choices = {"immediate", "on_sync", "watermark", "idle"},
       .default_value = "the pool's",
       .meaning = "checked only: `sluice up --drain` sets for a whole pool when its hot tier is drained, and "
                  "that is what reads back"},
      {.name = "sluice_lock_reason",
       .kind = HintKind::kTold,
       .default_value = "-",
       .meaning = "why the lock mode is what it is"},
      {.name = "sluice_collective",
       .kind = HintKind::kTold,
       .default_value = "-",
       .meaning = "how the last collective access was done: `direct` or `two_phase`"},
      {.name = "sluice_collective_reason", .kind = HintKind::kTold, .default_value = "-", .meaning = "why"},
  };
}

HintRow romio_row(std::string_view name, std::string_view form, std::string_view default_value,
                  std::string_view meaning) {
  return {.name = name,
          .owner = HintOwner::kRomio,
          .form = form,
          .default_value = default_value,
          .meaning = meaning};
}

HintRow romio_number(std::string_view name, std::string_view form, std::string_view default_value,
                     std::string_view meaning) {
  HintRow row = romio_row(name, form, default_value, meaning);
  row.number = true;
  return row;
}

HintRow romio_choice(std::string_view name, std::vector<std::string_view> choices,
                     std::string_view default_value, std::string_view meaning) {
  HintRow row = romio_row(name, {}, default_value, meaning);
  row.kind = HintKind::kChoice;
  row.choices = std::move(choices);
  return row;
}

void add_romio_rows(std::vector<HintRow>& rows) {
  const std::vector<std::string_view> kSwitch = {"enable", "disable", "automatic"};
  constexpr std::string_view kNothing = 
      "no effect: bytes that nobody asked for are not moved, but that a two-phase read goes over gaps of up "
      "to 64 KiB";
  rows.push_back(
      romio_number("cb_nodes", "a number", "all ranks",
                   "ranks that aggregate in two-phase I/O: 1 to all; fewer than all are spread over "
                   "the hosts"));
  rows.push_back(romio_row("cb_config_list", "`host:ranks,...`", "`*:*`",
                           "which ranks aggregate, by host: `*:1` for one of each; no match is an error"));
  rows.push_back(romio_number("cb_buffer_size", "64 KiB to 64 MiB", "4 MiB",
                              "bytes of the file that an aggregator holds at a time, in whole chunks"));
  rows.push_back(
      romio_choice("romio_cb_write", kSwitch, "automatic",
                   "`enable`: blocking collective writes always go in two phases where they can, "
                   "`disable`: never, `automatic`: for views of pieces of less than 16 KiB that lie "
                   "close together; nonblocking ones never do"));
  rows.push_back(romio_choice("romio_cb_read", kSwitch, "automatic", "as `romio_cb_write`, for reads"));
  rows.push_back(romio_choice("romio_no_indep_rw", {"true", "false"}, "false",
                              "`true` means `romio_cb_write=enable` and `romio_cb_read=enable`"));
  rows.push_back(romio_choice("romio_ds_read", kSwitch, "automatic", kNothing));
  rows.push_back(romio_choice("romio_ds_write", kSwitch, "automatic", kNothing));
  rows.push_back(romio_row("ind_rd_buffer_size", "bytes", "4194304", kNothing));
  rows.push_back(romio_row("ind_wr_buffer_size", "bytes", "524288", kNothing));
}

std::string print_power(uint64_t bytes) {
  return bytes >= kMiB ? std::to_string(bytes / kMiB) + " MiB" : std::to_string(bytes / kKiB) + " KiB";
}

}  // namespace

std::span<const HintRow> hint_table() {
  static const std::vector<HintRow> kRows = [] {
    auto rows = sluice_rows();
    add_romio_rows(rows);
    return rows;
  }();
  return kRows;
}

const HintRow* find_hint(std::string_view name) {
  const auto rows = hint_table();
  const auto row = std::ranges::find(rows, name, &HintRow::name);
  return row == rows.end() ? nullptr : &*row;
}

AliasedHint find_aliased_hint(std::string_view name) {
  for (const HintRow& row : hint_table()) {
    const auto alias = std::ranges::find(row.aliases, name, &HintAlias::name);
    if (alias != row.aliases.end()) return {&row, &*alias};
  }
  return {};
}

std::string_view to_string(HintKind kind) {
  switch (kind) {
    case HintKind::kBytes:
      return "bytes";
    case HintKind::kCount:
      return "count";
    case HintKind::kChoice:
      return "choice";
    case HintKind::kText:
      return "text";
    case HintKind::kTold:
      return "told";
  }
  return "?";
}

std::string_view to_string(HintOwner owner) {
  switch (owner) {
    case HintOwner::kSluice:
      return "Sluice";
    case HintOwner::kMpi:
      return "MPI";
    case HintOwner::kRomio:
      return "ROMIO";
  }
  return "?";
}

std::string join_words(std::span<const std::string_view> words) {
  std::string text;
  for (const auto word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

std::string hint_values(const HintRow& row) {
  switch (row.kind) {
    case HintKind::kBytes:
      return "a power of two, " + print_power(row.least) + " to " + print_power(row.most);
    case HintKind::kCount:
      return std::to_string(row.least) + " to " + std::to_string(row.most);
    case HintKind::kChoice: {
      std::string text;
      for (const auto choice : row.choices) text += (text.empty() ? "`" : ", `") + std::string(choice) + "`";
      return text;
    }
    case HintKind::kText:
      return std::string(row.form);
    case HintKind::kTold:
      return "only read back";
  }
  return "";
}

}  // namespace sluice
