// Accesses that move their bytes while the program computes: those of nonblocking calls and of split
// collectives. A worker thread of the file carries them out in the order of their calls. MPI is called by the
// program's threads only: when the program tests or waits, they start the agreement of a collective access
// whose bytes have moved here. Agreements are collective calls on the file's communicator. They are started
// in the order of the accesses, and before whatever a later collective call on the file says there, so that
// the ranks may test in any order. Whoever tests or waits for one access starts the agreements of all, and a
// collective call of Sluice's does so before it waits for other ranks, who may have the file in question or
// another in mind: a direct access when it has moved its own bytes. A rank that does neither holds up those
// that wait, as with the stock library.
//
// An error that the call itself finds is its answer; as with a blocking access, nothing else comes of it. One
// that comes later, or another rank's, comes when the request finishes: to the file's error handler, and as
// the answer of MPI_Wait or MPI_Test, unless the program left MPI_COMM_WORLD with MPI_ERRORS_ARE_FATAL, which
// libmpich applies to any request: errors of files do not end programs. Because it may be overlooked there,
// the next sync or close reports a failed write once more and commits nothing, and the close a failed read.

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"
#include "adio/romio/external32.h"
#include "adio/romio/worker.h"

struct SluiceStarted {
  struct SluiceWork work;  // first, so that the worker's handle on it is one on the access
  ADIO_File file;
  struct SluiceStarted* before;  // on the same file, by their calls
  struct SluiceStarted* after;
  struct SluiceStarted* next_to_agree;
  const char* where;
  MPI_Request self;  // MPI_REQUEST_NULL: of a split collective access, or none could be made
  int collective;
  int refused;  // the call told its error
  int spare;    // of the queue
  struct SluiceRequest request;
  struct SluiceConversion conversion;
  int references;     // atomic: the queue's, and the request's or the split access's
  int given_up;       // atomic: the program freed its request, or never had one
  uint64_t asked_ns;  // when the program last tested in vain
  // With the mutex:
  int moved;      // this rank's part is over
  int agreeing;   // the agreement was started
  int concluded;  // somebody has taken it on to tell the program
  MPI_Request agreement;
  int64_t done;
  struct SluiceError error;
  int32_t mine;
  int32_t worst;
  // Of whoever concludes it:
  int told;   // the program knows the error
  int noted;  // a sync or close will tell it
  int error_code;
};

struct SluiceQueue {
  struct SluiceWorker* worker;  // from the first access on
  // The part in the agreement of a collective access for which there was no memory. With references it is in
  // use.
  struct SluiceStarted spare;
  struct SluiceStarted* first;
  struct SluiceStarted* last;
  struct SluiceStarted* first_to_agree;  // collective, and its agreement not started yet
  struct SluiceStarted* last_to_agree;
  struct SluiceQueue* next;
};

// Guards the queues. A thread that has it calls no MPI function that waits.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_moved = PTHREAD_COND_INITIALIZER;
static struct SluiceQueue* queues;  // of all open files

static int errors_end_the_program(void) {
  MPI_Errhandler handler;
  if (MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler) != MPI_SUCCESS) {
    return 1;
  }
  const int fatal = handler == MPI_ERRORS_ARE_FATAL || handler == MPI_ERRORS_ABORT;
  if (!fatal && handler != MPI_ERRORS_RETURN) {
    MPI_Errhandler_free(&handler);
  }
  return fatal;
}

static void drop(struct SluiceStarted* started) {
  const int spare = started->spare;  // then nobody looks at it without a reference but who wants it anew
  if (__atomic_sub_fetch(&started->references, 1, __ATOMIC_ACQ_REL) == 0 && !spare) {
    free(started);
  }
}

// What a rank tells the others of its part: 0, or the code of its error, and that an error came after the
// call.
enum { kLate = 1 << 16 };

static int32_t told_to_others(const struct SluiceStarted* started) {
  const int32_t code = started->error.code;
  return code == SLUICE_OK || started->refused ? code : code + kLate;
}

// --- with the mutex ---

static void start_agreements(void) {
  for (struct SluiceQueue* queue = queues; queue; queue = queue->next) {
    while (queue->first_to_agree && queue->first_to_agree->moved) {
      struct SluiceStarted* started = queue->first_to_agree;
      started->mine = told_to_others(started);
      started->agreeing = 1;
      if (MPI_Iallreduce(&started->mine, &started->worst, 1, MPI_INT32_T, MPI_MAX, started->file->comm,
                         &started->agreement) != MPI_SUCCESS) {
        started->agreement = MPI_REQUEST_NULL;
        started->worst = SLUICE_INTERNAL + kLate;
      }
      queue->first_to_agree = started->next_to_agree;
    }
  }
}

static int is_over(struct SluiceStarted* started) {
  int over = started->moved && (!started->collective || started->agreeing);
  if (over && started->agreement != MPI_REQUEST_NULL &&
      MPI_Test(&started->agreement, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
    started->agreement = MPI_REQUEST_NULL;
    started->worst = SLUICE_INTERNAL + kLate;
    over = 1;
  }
  return over;
}

static void append(struct SluiceQueue* queue, struct SluiceStarted* started) {
  started->before = queue->last;
  *(queue->last ? &queue->last->after : &queue->first) = started;
  queue->last = started;
  if (started->collective) {
    *(queue->first_to_agree ? &queue->last_to_agree->next_to_agree : &queue->first_to_agree) = started;
    queue->last_to_agree = started;
  }
}

// Takes an access that is over out of its queue. Answers 1 to the one who shall conclude it.
static int claim(struct SluiceQueue* queue, struct SluiceStarted* started) {
  if (started->concluded || !is_over(started)) {
    return 0;
  }
  started->concluded = 1;
  *(started->before ? &started->before->after : &queue->first) = started->after;
  *(started->after ? &started->after->before : &queue->last) = started->before;
  return 1;
}

static int all_moved(const struct SluiceQueue* queue) {
  const struct SluiceStarted* at = queue->first;
  while (at && at->moved) {
    at = at->after;
  }
  return !at;
}

// Claims it, or sleeps until some access has moved its bytes, or for a moment, so that what others wait for
// goes on meanwhile.
static int claim_or_wait(struct SluiceQueue* queue, struct SluiceStarted* started) {
  enum { kMomentNs = 1000 * 1000, kSecondNs = 1000 * 1000 * 1000 };
  start_agreements();
  if (claim(queue, started)) {
    return 1;
  }
  if (!started->moved) {
    for (struct SluiceQueue* other = queues; other; other = other->next) {
      if (other->first && other->first->agreeing) {
        is_over(other->first);
      }
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += kMomentNs;
    until.tv_sec += until.tv_nsec / kSecondNs;
    until.tv_nsec %= kSecondNs;
    pthread_cond_timedwait(&one_moved, &mutex, &until);
  } else {
    pthread_mutex_unlock(&mutex);
    sched_yield();
    pthread_mutex_lock(&mutex);
  }
  return 0;
}

// --- the worker's part ---

static void carry_out(struct SluiceWork* work) {
  struct SluiceStarted* started = (struct SluiceStarted*)work;
  struct SluiceError error = {0};
  int64_t done = 0;
  sluice_carry_out(started->file, &started->request, &done, &error);
  pthread_mutex_lock(&mutex);
  started->done = done;
  started->error = error;
  started->moved = 1;
  pthread_cond_broadcast(&one_moved);
  pthread_mutex_unlock(&mutex);
}

// --- the end of an access ---

// With the mutex. `hearsay`: another rank's error is the cause, which that rank knows better. The first error
// stays, but does not stand in for a cause.
static void note_for_later(struct SluiceStarted* started, int hearsay) {
  struct SluiceState* state = sluice_state(started->file);
  if (started->noted) {
    return;
  }
  started->noted = 1;
  if (started->request.direction == SLUICE_FROM_FILE) {
    state->late_read_error = started->error;
  } else if (state->late_error.code == SLUICE_OK || (state->late_is_hearsay && !hearsay)) {
    state->late_error = started->error;
    state->late_is_hearsay = hearsay;
  }
}

// The claimer's, without the mutex.
static void conclude(struct SluiceStarted* started) {
  const int32_t worst = started->collective ? started->worst : told_to_others(started);
  sluice_convert_back(&started->conversion, started->done);
  sluice_type_map_release(started->request.memory);
  started->request.memory = NULL;
  if (worst != SLUICE_OK) {
    const int own = started->error.code != SLUICE_OK;
    if (!own) {
      sluice_fail(&started->error, worst % kLate,
                  "another rank failed in this collective access; its own error says why");
    }
    started->error_code = sluice_error_code(started->where, &started->error);
    const int lost = started->request.direction == SLUICE_TO_FILE && worst >= kLate;
    if (lost || (own && !started->told && errors_end_the_program())) {
      pthread_mutex_lock(&mutex);
      note_for_later(started, !own || started->refused);
      pthread_mutex_unlock(&mutex);
    }
    if (!started->told) {
      MPIO_Err_return_file(started->file, started->error_code);
    }
  }
  if (started->self != MPI_REQUEST_NULL) {
    MPI_Grequest_complete(started->self);
  }
  drop(started);
}

// --- what libmpich calls ---

// What the program learns from Wait and Test.
static int query(void* state, MPI_Status* status) {
  struct SluiceStarted* started = state;
  MPI_Status_set_elements_x(status, MPI_BYTE, started->done);
  MPI_Status_set_cancelled(status, 0);
  return started->error_code != MPI_SUCCESS && errors_end_the_program() ? MPI_SUCCESS : started->error_code;
}

// libmpich may have its lock here, so that ours is not to be waited for; poll() and wait_for() it calls
// without.
static int release(void* state) {
  struct SluiceStarted* started = state;
  __atomic_store_n(&started->given_up, 1, __ATOMIC_RELEASE);
  drop(started);
  return MPI_SUCCESS;
}

static int cancel(void* state, int complete) {
  (void)state, (void)complete;  // what was handed to the service cannot be taken back
  return MPI_SUCCESS;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// Does not wait, not even for the mutex: a test is not to. libmpich waits by calling this again and again: a
// program that does nothing between two calls has a processor to spare for the worker.
static int poll(void* state, MPI_Status* status) {
  enum { kIdleNs = 20 * 1000 };
  (void)status;
  struct SluiceStarted* started = state;
  if (pthread_mutex_trylock(&mutex) == 0) {
    int mine = 0;
    if (!started->concluded) {  // else the file may be closed
      start_agreements();
      mine = claim(sluice_state(started->file)->queue, started);
    }
    const int over = started->concluded;
    pthread_mutex_unlock(&mutex);
    if (mine) {
      conclude(started);
    }
    if (over) {
      return MPI_SUCCESS;
    }
  }
  if (now_ns() - started->asked_ns < kIdleNs) {
    sched_yield();
  }
  started->asked_ns = now_ns();
  return MPI_SUCCESS;
}

static void wait_until_concluded(struct SluiceStarted* started) {
  int mine = 0;
  pthread_mutex_lock(&mutex);
  while (!started->concluded && !mine) {
    mine = claim_or_wait(sluice_state(started->file)->queue, started);
  }
  pthread_mutex_unlock(&mutex);
  if (mine) {
    conclude(started);
  }
}

static int wait_for(int count, void** states, double timeout, MPI_Status* status) {
  (void)timeout, (void)status;
  for (int i = 0; i < count; i++) {
    wait_until_concluded(states[i]);
  }
  return MPI_SUCCESS;
}

// --- the start of an access ---

// Concludes those at the head of the queue that the program has given up.
static void reap(struct SluiceQueue* queue) {
  struct SluiceStarted* first;
  do {
    pthread_mutex_lock(&mutex);
    first = queue->first;
    if (first && (!__atomic_load_n(&first->given_up, __ATOMIC_ACQUIRE) || !claim(queue, first))) {
      first = NULL;
    }
    pthread_mutex_unlock(&mutex);
    if (first) {
      conclude(first);
    }
  } while (first);
}

static void enqueue(struct SluiceStarted* started) {
  struct SluiceQueue* queue = sluice_state(started->file)->queue;
  struct SluiceWorker* worker = NULL;
  reap(queue);
  pthread_mutex_lock(&mutex);
  started->moved = started->error.code != SLUICE_OK || started->request.bytes == 0;
  const int moves = !started->moved;
  append(queue, started);
  if (moves) {
    queue->worker = queue->worker ? queue->worker : sluice_worker_new();
    worker = queue->worker;
    // Within the mutex, so that the worker's order is the queue's.
    if (worker) {
      sluice_worker_add(worker, &started->work);
    }
  }
  start_agreements();
  pthread_mutex_unlock(&mutex);
  if (moves && !worker) {
    carry_out(&started->work);  // without a thread the call does the work
  }
}

// Zeros. NULL for an independent access when memory ran out; a collective one gets a record in any case, and
// `*error`. A second one in need waits until the first is over on all ranks.
static struct SluiceStarted* new_record(ADIO_File fd, int collective, struct SluiceError* error) {
  struct SluiceStarted* spare = &sluice_state(fd)->queue->spare;
  struct SluiceStarted* started = calloc(1, sizeof *started);
  if (started) {
    return started;
  }
  sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_NO_MEM),
              "out of memory to start an access to %.200s; wait for those under way first", fd->filename);
  if (!collective) {
    return NULL;
  }
  while (__atomic_load_n(&spare->references, __ATOMIC_ACQUIRE) > 0) {
    wait_until_concluded(spare);
  }
  *spare = (struct SluiceStarted){.spare = 1};
  return spare;
}

// `*error` is the call's own. Never NULL for a collective access.
static struct SluiceStarted* prepare(ADIO_File fd, const struct SluiceAccess* access,
                                     const struct SluiceConversion* conversion, int collective,
                                     struct SluiceError* error) {
  struct SluiceStarted* started = new_record(fd, collective, error);
  if (!started) {
    return NULL;
  }
  started->work.run = carry_out;
  started->file = fd;
  started->where = access->where;
  started->self = MPI_REQUEST_NULL;
  started->agreement = MPI_REQUEST_NULL;
  started->collective = collective;
  started->conversion = *conversion;
  started->request.direction = access->direction;
  if (error->code == SLUICE_OK && sluice_prepare(fd, access, &started->request, error)) {
    sluice_end_access(fd, access, &started->request, 0, error);
    started->request.memory = NULL;
  }
  return started;
}

// After an error: nothing is done, and the pointer stands where it stood.
static void give_up(ADIO_File fd, const struct SluiceAccess* access, struct SluiceStarted* started,
                    const struct SluiceError* error) {
  sluice_convert_back(&started->conversion, 0);
  sluice_end_access(fd, access, &started->request, 0, error);
  started->request.memory = NULL;
  started->request.bytes = 0;
  started->error = *error;
  started->refused = started->told = 1;
}

static void make_request(struct SluiceStarted* started, struct SluiceError* error) {
  const int failed = MPIX_Grequest_start(query, release, cancel, poll, wait_for, started, &started->self);
  if (failed != MPI_SUCCESS) {
    started->self = MPI_REQUEST_NULL;
    sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_NO_MEM),
                "MPI made no request for an access to %.200s; wait for those under way first",
                started->file->filename);
  }
}

int sluice_start(ADIO_File fd, const struct SluiceAccess* access, const struct SluiceConversion* conversion,
                 int collective, struct SluiceError* error, MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  struct SluiceStarted* started = prepare(fd, access, conversion, collective, error);
  if (!started) {
    struct SluiceConversion unused = *conversion;
    sluice_convert_back(&unused, 0);
    return sluice_error_code(access->where, error);
  }
  if (!started->spare && (collective || error->code == SLUICE_OK)) {
    make_request(started, error);
  }
  if (error->code != SLUICE_OK) {
    give_up(fd, access, started, error);
  }
  if (collective) {
    sluice_show_started(fd, access->direction);
  }
  *request = started->self;
  started->given_up = started->self == MPI_REQUEST_NULL;
  started->references = started->given_up ? 1 : 2;
  if (started->given_up && !collective) {
    drop(started);
  } else {
    enqueue(started);
  }
  return sluice_error_code(access->where, error);
}

int sluice_split_begin(ADIO_File fd, const struct SluiceAccess* access,
                       const struct SluiceConversion* conversion, struct SluiceError* error) {
  struct SluiceStarted* started = prepare(fd, access, conversion, 1, error);
  started->references = 2;
  if (sluice_agree(fd->comm, error)) {
    give_up(fd, access, started, error);
    started->references = 1;
    drop(started);
    return -1;
  }
  sluice_shape(fd, access->direction);
  sluice_show_started(fd, access->direction);
  sluice_state(fd)->split = started;
  enqueue(started);
  return 0;
}

int sluice_split_end(ADIO_File fd, MPI_Status* status) {
  struct SluiceStarted* started = sluice_state(fd)->split;
  sluice_state(fd)->split = NULL;
  started->told = started->noted = 1;  // now
  wait_until_concluded(started);
  MPIR_Status_set_bytes(status, MPI_BYTE, started->done);
  const int error_code = started->error_code;
  drop(started);
  return error_code;
}

void sluice_start_agreements(void) {
  pthread_mutex_lock(&mutex);
  start_agreements();
  for (const struct SluiceQueue* queue = queues; queue;) {
    if (queue->first_to_agree) {
      pthread_cond_wait(&one_moved, &mutex);
      start_agreements();
      queue = queues;
    } else {
      queue = queue->next;
    }
  }
  pthread_mutex_unlock(&mutex);
}

// --- of a whole file ---

struct SluiceQueue* sluice_queue_new(void) {
  struct SluiceQueue* queue = calloc(1, sizeof *queue);
  if (queue) {
    pthread_mutex_lock(&mutex);
    queue->next = queues;
    queues = queue;
    pthread_mutex_unlock(&mutex);
  }
  return queue;
}

void sluice_queue_settle(ADIO_File fd) {
  const struct SluiceQueue* queue = sluice_state(fd)->queue;
  if (!queue) {
    return;
  }
  pthread_mutex_lock(&mutex);
  while (!all_moved(queue)) {
    pthread_cond_wait(&one_moved, &mutex);
  }
  for (struct SluiceStarted* at = queue->first; at; at = at->after) {
    if (told_to_others(at) >= kLate && at->request.direction == SLUICE_TO_FILE) {
      note_for_later(at, 0);
    }
  }
  pthread_mutex_unlock(&mutex);
}

void sluice_queue_told(ADIO_File fd) {
  const struct SluiceQueue* queue = sluice_state(fd)->queue;
  pthread_mutex_lock(&mutex);
  for (struct SluiceStarted* at = queue ? queue->first : NULL; at; at = at->after) {
    at->noted |= at->request.direction == SLUICE_TO_FILE;
  }
  pthread_mutex_unlock(&mutex);
}

void sluice_queue_close(ADIO_File fd) {
  struct SluiceState* state = sluice_state(fd);
  struct SluiceQueue* queue = state->queue;
  if (!queue) {
    return;
  }
  pthread_mutex_lock(&mutex);
  while (queue->first) {
    struct SluiceStarted* started = queue->first;
    if (!claim_or_wait(queue, started)) {
      continue;
    }
    if (told_to_others(started) >= kLate) {
      note_for_later(started, 0);
    }
    pthread_mutex_unlock(&mutex);
    started->told = 1;  // by the close
    conclude(started);
    pthread_mutex_lock(&mutex);
  }
  struct SluiceQueue** link = &queues;
  while (*link != queue) {
    link = &(*link)->next;
  }
  *link = queue->next;
  pthread_mutex_unlock(&mutex);
  if (state->split) {
    drop(state->split);
    state->split = NULL;
  }
  sluice_worker_free(queue->worker);
  free(queue);
  state->queue = NULL;
}
