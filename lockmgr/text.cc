#include "lockmgr/text.h"

#include <charconv>
#include <optional>

namespace sluice::lockmgr {

namespace {

tl::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

std::string quoted(std::string_view word) {
  return "'" + std::string(word) + "'";
}

std::vector<std::string_view> split(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  constexpr std::string_view kBlank = " \t\r";
  for (size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlank, end);
  }
  return words;
}

std::optional<uint64_t> number(std::string_view word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || word.empty()) return std::nullopt;
  return value;
}

std::optional<Offset> offset(std::string_view word) {
  if (word == "max") return Offset(kMaxFileBytes);
  if (word.empty()) return std::nullopt;
  const size_t unit = std::string_view("kmg").find(word.back());
  const bool has_unit = unit != std::string_view::npos;
  const auto value = number(has_unit ? word.substr(0, word.size() - 1) : word);
  if (!value) return std::nullopt;
  const unsigned shift = has_unit ? 10 * (static_cast<unsigned>(unit) + 1) : 0;
  if (*value > UINT64_MAX >> shift) return std::nullopt;
  return Offset(*value << shift);
}

struct ModeWord {
  LockMode mode;
  GroupId group;
};

Result<ModeWord> parse_mode(std::string_view word) {
  if (word == "PR") return ModeWord{LockMode::kPr, GroupId(0)};
  if (word == "PW") return ModeWord{LockMode::kPw, GroupId(0)};
  constexpr std::string_view kGroup = "GROUP:";
  if (word.starts_with(kGroup)) {
    if (const auto id = number(word.substr(kGroup.size()))) return ModeWord{LockMode::kGroup, GroupId(*id)};
  }
  return bad("unknown mode " + quoted(word) + "; use PR, PW or GROUP:NUMBER");
}

Result<Extent> parse_extent(std::string_view begin, std::string_view end) {
  const auto from = offset(begin);
  const auto to = offset(end);
  if (!from) return bad(quoted(begin) + " is not an offset");
  if (!to) return bad(quoted(end) + " is not an offset");
  return Extent{*from, *to};
}

// BEGIN END, or BEGIN-END ...
Result<std::vector<Extent>> parse_extents(const std::vector<std::string_view>& words) {
  std::vector<Extent> extents;
  if (words.size() == 2 && offset(words[0]) && offset(words[1])) {
    extents.push_back({*offset(words[0]), *offset(words[1])});
    return extents;
  }
  for (const std::string_view word : words) {
    const size_t dash = word.find('-');
    if (dash == std::string_view::npos) return bad(quoted(word) + " is not an extent; write BEGIN-END");
    const auto extent = parse_extent(word.substr(0, dash), word.substr(dash + 1));
    if (!extent) return fail(extent.error());
    extents.push_back(*extent);
  }
  return extents;
}

}  // namespace

std::string TableText::run_line(std::string_view line) {
  ++line_;
  const Words words = split(line);
  if (words.empty()) return {};
  auto text = run(words);
  if (text) return *std::move(text);
  return "line " + std::to_string(line_) + ": error: " + text.error().message + "\n";
}

Result<std::string> TableText::run(const Words& words) {
  const std::string_view command = words[0];
  if (command == "grant" || command == "try") return request(words);
  if (command == "show" && words.size() == 1) return show();
  if (command == "evict" && words.size() == 2) return evict(words);
  if (command == "reclaim" && words.size() == 2) return reclaim(words);
  if (command == "cancel" && words.size() == 3) return cancel(words);
  if (command == "withdraw" && words.size() == 3) return withdraw(words);
  return bad("cannot make sense of " + quoted(command) + " with " + std::to_string(words.size() - 1) +
             " words after it; commands are grant, try, cancel, withdraw, reclaim, evict, show");
}

Result<std::string> TableText::request(const Words& words) {
  if (words.size() < 4) return bad(std::string(words[0]) + " needs an owner, a mode and extents");
  const auto mode = parse_mode(words[2]);
  if (!mode) return fail(mode.error());
  const bool noexpand = words.back() == "noexpand";
  const auto extents = parse_extents(Words(words.begin() + 3, words.end() - (noexpand ? 1 : 0)));
  if (!extents) return fail(extents.error());

  const uint32_t flags = (words[0] == "try" ? kSpeculative : kBlocking) | (noexpand ? kNoExpand : 0u);
  const OwnerId owner = owner_named(words[1]);
  LockReply reply;
  LockEvents events;
  if (auto ok = table_.request({owner, mode->mode, mode->group, flags, *extents}, reply, events); !ok) {
    return fail(ok.error());
  }
  const std::string mode_text = to_string(mode->mode, mode->group);
  if (!reply.waiting) return describe(owner, reply.extents, "", "") + describe(events);
  std::string text = name_of(owner) + " waits " + name_of(reply.ticket) + " for " + mode_text;
  for (const Extent& extent : *extents) text += " " + to_string(extent);
  return text + "\n" + describe(events);
}

Result<std::string> TableText::cancel(const Words& words) {
  const auto handle = lock_named(words[2]);
  if (!handle) return fail(handle.error());
  LockEvents events;
  if (auto ok = table_.cancel(owner_named(words[1]), *handle, events); !ok) return fail(ok.error());
  return std::string(words[1]) + " cancelled " + std::string(words[2]) + "\n" + describe(events);
}

Result<std::string> TableText::withdraw(const Words& words) {
  const auto ticket = ticket_named(words[2]);
  if (!ticket) return fail(ticket.error());
  LockEvents events;
  if (auto ok = table_.withdraw(owner_named(words[1]), *ticket, events); !ok) return fail(ok.error());
  return std::string(words[1]) + " withdrew " + std::string(words[2]) + "\n" + describe(events);
}

Result<std::string> TableText::reclaim(const Words& words) {
  const auto handle = lock_named(words[1]);
  if (!handle) return fail(handle.error());
  LockEvents events;
  if (!table_.reclaim(*handle, events))
    return bad(quoted(words[1]) + " is not held, or was asked back already");
  return describe(events);
}

Result<std::string> TableText::evict(const Words& words) {
  LockEvents events;
  const size_t freed = table_.evict(owner_named(words[1]), events);
  return std::string(words[1]) + " evicted, locks freed: " + std::to_string(freed) + "\n" + describe(events);
}

std::string TableText::show() const {
  std::string text;
  for (const LockInfo& lock : table_.locks()) {
    text += name_of(lock.handle) + " " + name_of(lock.owner) + " " + to_string(lock.mode, lock.group) + " " +
            to_string(lock.extent) + (lock.ordinary ? "" : " speculative") +
            (lock.revoked ? " revoked" : "") + "\n";
  }
  for (const LockWaiterInfo& waiter : table_.waiters()) {
    text += name_of(waiter.ticket) + " " + name_of(waiter.owner) + " " + to_string(waiter.mode, waiter.group);
    for (const Extent& extent : waiter.extents) text += " " + to_string(extent);
    text += " waiting\n";
  }
  return text + "locks " + std::to_string(table_.granted_count()) + ", waiting " +
         std::to_string(table_.waiting_count()) + ", contention " + std::to_string(table_.contention()) +
         "\n";
}

OwnerId TableText::owner_named(std::string_view name) {
  const auto at = owners_.find(name);
  if (at != owners_.end()) return at->second;
  owner_names_.emplace_back(name);
  const OwnerId owner(owner_names_.size());
  owners_.emplace(name, owner);
  return owner;
}

std::string TableText::name_of(OwnerId owner) const {
  return owner_names_.at(owner.value - 1);
}
std::string TableText::name_of(LockHandle handle) const {
  return "L" + std::to_string(lock_numbers_.at(handle));
}
// The table counts tickets from 1 on, as the script does.
std::string TableText::name_of(Ticket ticket) const {
  return "W" + std::to_string(ticket.value);
}

Result<LockHandle> TableText::lock_named(std::string_view name) const {
  const auto n = name.starts_with("L") ? number(name.substr(1)) : std::nullopt;
  if (!n || *n == 0 || *n > locks_.size()) return bad("no lock is called " + quoted(name));
  return locks_[*n - 1];
}

Result<Ticket> TableText::ticket_named(std::string_view name) const {
  const auto n = name.starts_with("W") ? number(name.substr(1)) : std::nullopt;
  if (!n) return bad("no request is called " + quoted(name));
  return Ticket(*n);
}

std::string TableText::describe(OwnerId owner, const std::vector<ExtentAnswer>& answers,
                                std::string_view before, std::string_view after) {
  std::string text;
  for (const ExtentAnswer& a : answers) {
    if (a.answer == LockAnswer::kGranted) {
      locks_.push_back(a.handle);
      lock_numbers_[a.handle] = locks_.size();
    }
    text.append(before).append(name_of(owner)).append(" ").append(to_string(a.answer)).append(" ");
    if (a.answer == LockAnswer::kDropped) {
      text.append(to_string(a.extent)).append(" by a ").append(to_string(a.blocker));
    } else {
      const LockInfo lock = *table_.find(a.handle);
      text.append(name_of(a.handle)).append(" ").append(to_string(lock.mode, lock.group));
      text.append(" ").append(to_string(a.extent));
    }
    text.append(after).append("\n");
  }
  return text;
}

std::string TableText::describe(const LockEvents& events) {
  std::string text;
  for (const LockGrant& grant : events.grants) {
    text += describe(grant.owner, grant.extents, "  ", " after " + name_of(grant.ticket));
  }
  for (const LockRevoke& revoke : events.revokes) {
    text += "  " + name_of(revoke.owner) + " revoke " + name_of(revoke.handle) + " " +
            to_string(revoke.extent) + "\n";
  }
  return text;
}

std::string run_script(std::string_view script) {
  TableText table;
  std::string text;
  while (!script.empty()) {
    const size_t end = script.find('\n');
    text += table.run_line(script.substr(0, end));
    script.remove_prefix(end == std::string_view::npos ? script.size() : end + 1);
  }
  return text;
}

}  // namespace sluice::lockmgr
