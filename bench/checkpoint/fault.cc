#include "bench/checkpoint/fault.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/os.h"

namespace sluice::bench {
namespace {

bool same(const FaultPoint& point, uint64_t step, VariableIndex variable) {
  return point.step == step && point.variable == variable;
}

void print_line(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

std::vector<int> every_pid(const Ranks& ranks) {
  const int mine = static_cast<int>(getpid());
  std::vector<int> pids(ranks.size);
  MPI_Allgather(&mine, 1, MPI_INT, pids.data(), 1, MPI_INT, ranks.comm);
  return pids;
}

Result<> wait_for_byte(const std::string& fifo) {
  const auto fd = open_file(fifo, O_RDONLY);
  if (!fd) return fail(fd.error());
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(fd->get(), &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return fail(errno_error(errno, "read", fifo));
  return {};
}

// A barrier whose waiters sleep: a pause may last, and the machine belongs to the test meanwhile.
void patient_barrier(const Ranks& ranks) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(ranks.comm, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<> kill_one(const Ranks& ranks, const KillSelf& kill_self, const std::string& place,
                  uint32_t synced_variables) {
  const std::vector<int> pids = every_pid(ranks);
  if (ranks.first()) {
    print_line(fmt::format("KILL {} rank {} pid {} synced_variables {}", place, kill_self.rank,
                           pids.at(kill_self.rank), synced_variables));
  }
  // The line is out before anyone dies.
  MPI_Barrier(ranks.comm);
  if (ranks.rank == kill_self.rank) kill(getpid(), SIGKILL);
  return {};
}

Result<> pause_all(const Ranks& ranks, const PauseAt& pause_at, const std::string& place,
                   uint32_t synced_variables) {
  const std::vector<int> pids = every_pid(ranks);
  Result<> waited;
  if (ranks.first()) {
    print_line(
        fmt::format("PAUSED {} pids {} synced_variables {}", place, fmt::join(pids, " "), synced_variables));
    waited = wait_for_byte(pause_at.fifo);
  }
  patient_barrier(ranks);
  return agree(ranks, waited);
}

}  // namespace

bool fault_strikes(const Options& options, uint64_t step, VariableIndex variable) {
  return (options.kill_self && same(options.kill_self->at, step, variable)) ||
         (options.pause_at && same(options.pause_at->at, step, variable));
}

Result<> strike_fault(const Ranks& ranks, const Options& options, uint64_t step, VariableIndex variable) {
  const std::string place = fmt::format("step {} variable {}", step, variable_at(variable).name);
  const uint32_t synced_variables = synced_variables_during(options.flush, variable);
  // No rank may still be in its first half when another dies or the test looks.
  MPI_Barrier(ranks.comm);
  if (options.kill_self) return kill_one(ranks, *options.kill_self, place, synced_variables);
  return pause_all(ranks, *options.pause_at, place, synced_variables);
}

}  // namespace sluice::bench
