// To preload under MPICH where ranks outnumber cores: a rank that waits gives its core away instead of polling
// until its time slice ends. MPICH waits by calling ucp_worker_progress of UCX in a loop; here that call yields
// when it made no progress. Neither a part of the product nor needed by it: without it everything ends as
// well, and waits of milliseconds are what is measured.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

typedef unsigned (*Progress)(void*);

__attribute__((visibility("default"))) unsigned ucp_worker_progress(void* worker) {
  static Progress stock;
  if (!stock) {
    stock = (Progress)dlsym(RTLD_NEXT, "ucp_worker_progress");
  }
  const unsigned progressed = stock ? stock(worker) : 0;
  if (progressed == 0) {
    sched_yield();
  }
  return progressed;
}
