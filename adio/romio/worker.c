#include "adio/romio/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct SluiceWorker {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct SluiceWork* first;
  struct SluiceWork* last;
  int ending;
};

static void* work_off(void* argument) {
  struct SluiceWorker* worker = argument;
  pthread_mutex_lock(&worker->mutex);
  while (worker->first || !worker->ending) {
    struct SluiceWork* work = worker->first;
    if (!work) {
      pthread_cond_wait(&worker->changed, &worker->mutex);
      continue;
    }
    worker->first = work->next;
    pthread_mutex_unlock(&worker->mutex);
    work->run(work);
    pthread_mutex_lock(&worker->mutex);
  }
  pthread_mutex_unlock(&worker->mutex);
  return NULL;
}

struct SluiceWorker* sluice_worker_new(void) {
  struct SluiceWorker* worker = calloc(1, sizeof *worker);
  if (!worker) {
    return NULL;
  }
  pthread_mutex_init(&worker->mutex, NULL);
  pthread_cond_init(&worker->changed, NULL);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&worker->thread, NULL, work_off, worker);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) {
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->mutex);
    free(worker);
    return NULL;
  }
  return worker;
}

void sluice_worker_add(struct SluiceWorker* worker, struct SluiceWork* work) {
  work->next = NULL;
  pthread_mutex_lock(&worker->mutex);
  if (worker->first) {
    worker->last->next = work;
  } else {
    worker->first = work;
  }
  worker->last = work;
  pthread_cond_signal(&worker->changed);
  pthread_mutex_unlock(&worker->mutex);
}

void sluice_worker_free(struct SluiceWorker* worker) {
  if (!worker) {
    return;
  }
  pthread_mutex_lock(&worker->mutex);
  worker->ending = 1;
  pthread_cond_signal(&worker->changed);
  pthread_mutex_unlock(&worker->mutex);
  pthread_join(worker->thread, NULL);
  pthread_cond_destroy(&worker->changed);
  pthread_mutex_destroy(&worker->mutex);
  free(worker);
}
