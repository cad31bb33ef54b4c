#pragma once

#include <signal.h>
#include <sys/types.h>

#include "tests/mpiio/check.h"

// For tests over a service of their own.

static inline pid_t service(void) {
  char name[4096], text[4096];
  snprintf(name, sizeof name, "%s/service.json", getenv("SLUICE_POOL"));
  FILE* file = fopen(name, "r");
  const size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
  text[bytes] = '\0';
  if (file) {
    fclose(file);
  }
  const char* pid = strstr(text, "\"pid\":");
  return pid ? (pid_t)atol(pid + 6) : 0;
}

// Collective.
static inline void signal_service(int number) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (check_rank == 0) {
    const pid_t pid = service();
    CHECK(pid > 0 && kill(pid, number) == 0, "no service to send a signal to");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}
