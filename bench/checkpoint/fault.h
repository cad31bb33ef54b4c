#pragma once

#include "base/result.h"
#include "bench/checkpoint/options.h"
#include "bench/checkpoint/ranks.h"

// What a crash test makes of a run, at the one point where it strikes: every rank has written the first half
// of its cells of a variable, no rank has begun the second half, and nothing of the variable has been
// flushed.
namespace sluice::bench {

bool fault_strikes(const Options& options, uint64_t step, VariableIndex variable);

// Collective; call only where fault_strikes(). Rank 0 first prints, and flushes to stdout, one line:
//   KILL step 2 variable H rank 1 pid 4711 synced_variables 3
//   PAUSED step 2 variable H pids 4710 4711 synced_variables 3
// With --kill-self the chosen rank does not return; the others do, at once. With --pause-at all ranks return
// when rank 0 has read a byte from the FIFO or its last writer has gone. synced_variables is what the file
// must show after a crash here.
Result<> strike_fault(const Ranks& ranks, const Options& options, uint64_t step, VariableIndex variable);

}  // namespace sluice::bench
