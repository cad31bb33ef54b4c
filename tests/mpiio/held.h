#pragma once

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/mpiio/check.h"

// Stops the service of the test, so that nothing that needs it can be over, and lets it go on when the
// program is seen to wait.

static inline pid_t held_service(void) {
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

// Whether every thread of a process has stopped: some may run on for a while behind the signal.
static inline int held_has_stopped(pid_t pid) {
  char name[300];
  int stopped = 1;
  snprintf(name, sizeof name, "/proc/%d/task", (int)pid);
  DIR* tasks = opendir(name);
  for (struct dirent* task; tasks && (task = readdir(tasks));) {
    char state = 'T';
    snprintf(name, sizeof name, "/proc/%d/task/%.20s/stat", (int)pid, task->d_name);
    FILE* file = task->d_name[0] != '.' ? fopen(name, "r") : NULL;
    if (file) {
      stopped &= fscanf(file, "%*d (%*[^)]) %c", &state) != 1 || state == 'T';
      fclose(file);
    }
  }
  if (tasks) {
    closedir(tasks);
  }
  return stopped;
}

// Collective.
static inline void held_signal(int number) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (check_rank == 0) {
    const pid_t pid = held_service();
    CHECK(pid > 0 && kill(pid, number) == 0, "no service to send a signal to");
    while (number == SIGSTOP && !held_has_stopped(pid)) {
      sched_yield();
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// Whether a thread of this process sleeps: for another thread of it, or for an answer.
static inline int held_sleeps(pid_t thread) {
  char name[64], text[64] = "running";
  snprintf(name, sizeof name, "/proc/self/task/%d/syscall", (int)thread);
  FILE* file = fopen(name, "r");
  const int known = file && fgets(text, sizeof text, file) && text[0] != 'r';
  if (file) {
    fclose(file);
  }
  return known && (atol(text) == SYS_futex || atol(text) == SYS_ppoll);
}

static inline void* held_watch(void* thread) {
  // One look could meet a mutex that a thread beside it holds.
  for (int seen = 0; seen < 20; seen++) {
    if (!held_sleeps((pid_t)(intptr_t)thread)) {
      seen = -1;
    }
    sched_yield();
  }
  kill(held_service(), SIGCONT);
  return NULL;
}

// Collective: the service goes on when rank 0's calling thread sleeps in what it does next.
static inline void held_go_on_when_asleep(pthread_t* watcher) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (check_rank == 0) {
    pthread_create(watcher, NULL, held_watch, (void*)(intptr_t)syscall(SYS_gettid));
  }
}

static inline void held_join(pthread_t watcher) {
  if (check_rank == 0) {
    pthread_join(watcher, NULL);
  }
}
