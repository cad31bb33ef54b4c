#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockmgr/lock_table.h"

namespace sluice::lockmgr {

// A lock table driven by text: for tests, for `sluice locktable`, and for trying out what a pattern of
// requests does. Pure; not thread-safe. The same script gives the same text.
//
// One command a line; `#` begins a comment.
//
//   grant OWNER MODE EXTENTS [noexpand]   a blocking request
//   try OWNER MODE EXTENTS [noexpand]     a speculative request
//   cancel OWNER LOCK                     OWNER gives a lock back
//   withdraw OWNER REQUEST                OWNER stops waiting
//   reclaim LOCK                          asks for a lock back though nobody waits for it
//   evict OWNER                           frees all that OWNER holds and waits for
//   show                                  all locks and waiting requests
//
//   OWNER    any word; it is an owner from its first use on
//   MODE     PR | PW | GROUP:NUMBER
//   EXTENTS  BEGIN END, or BEGIN-END once or more often: half-open, in bytes; a number may end in k, m
//            or g (1024, ...), and END may be `max`, the largest file
//   LOCK     L1, L2, ... in the order of granting
//   REQUEST  W1, W2, ... in the order in which requests had to wait
//
// Answers: one line for each extent ("a granted L1 PW [0, max)"), then what it brought about for others,
// indented ("  a revoke L1 [0, max)"). A line that cannot be carried out answers "line N: error: ..." and
// changes nothing.
class TableText {
 public:
  // Carries out one line and answers its text, each line of it ended by a newline; empty for a blank line.
  std::string run_line(std::string_view line);

 private:
  using Words = std::vector<std::string_view>;

  Result<std::string> run(const Words& words);
  Result<std::string> request(const Words& words);
  Result<std::string> cancel(const Words& words);
  Result<std::string> withdraw(const Words& words);
  Result<std::string> reclaim(const Words& words);
  Result<std::string> evict(const Words& words);
  std::string show() const;

  OwnerId owner_named(std::string_view name);
  std::string name_of(OwnerId owner) const;
  std::string name_of(LockHandle handle) const;
  std::string name_of(Ticket ticket) const;
  Result<LockHandle> lock_named(std::string_view name) const;
  Result<Ticket> ticket_named(std::string_view name) const;
  std::string describe(OwnerId owner, const std::vector<ExtentAnswer>& answers, std::string_view before,
                       std::string_view after);
  std::string describe(const LockEvents& events);

  LockTable table_;
  uint64_t line_ = 0;
  std::map<std::string, OwnerId, std::less<>> owners_;
  std::vector<std::string> owner_names_;       // by OwnerId - 1
  std::vector<LockHandle> locks_;              // L1 is the first
  std::map<LockHandle, size_t> lock_numbers_;  // and back
};

// Carries out a whole script, line by line, and answers all its text.
std::string run_script(std::string_view script);

}  // namespace sluice::lockmgr
