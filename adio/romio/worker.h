#pragma once

// A thread that does pieces of work in the order in which they were added, while the program goes on. It
// calls no MPI function, and runs none of the program's signal handlers.
//
// Thread rule: any thread may add; one ends it, when nobody adds any more.

struct SluiceWork {
  void (*run)(struct SluiceWork* work);
  struct SluiceWork* next;  // the worker's, until run() is called
};

struct SluiceWorker;

// NULL when there is no memory, or no thread, to be had.
struct SluiceWorker* sluice_worker_new(void);
void sluice_worker_add(struct SluiceWorker* worker, struct SluiceWork* work);
// Returns when all that was added is done and the thread has ended. NULL is no worker.
void sluice_worker_free(struct SluiceWorker* worker);
