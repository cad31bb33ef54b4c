// Requests of nonblocking accesses. The data has moved when they are made; what may be left is to hear of the
// other ranks.

#include <stdlib.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"

struct Pending {
  MPI_Request self;
  MPI_Request agreement;  // MPI_REQUEST_NULL when it is over
  const char* where;
  struct SluiceError error;
  int32_t mine;
  int32_t worst;
  int error_code;
  int64_t done;
};

// What the program learns from Wait and Test.
static int query(void* state, MPI_Status* status) {
  struct Pending* pending = state;
  MPI_Status_set_elements_x(status, MPI_BYTE, pending->done);
  MPI_Status_set_cancelled(status, 0);
  return pending->error_code;
}

static int release(void* state) {
  free(state);
  return MPI_SUCCESS;
}

static int cancel(void* state, int complete) {
  (void)state, (void)complete;  // the data has moved: too late
  return MPI_SUCCESS;
}

static void conclude(struct Pending* pending) {
  if (pending->error.code == SLUICE_OK && pending->worst != SLUICE_OK) {
    sluice_fail(&pending->error, pending->worst,
                "another rank failed in this collective access; its own error says why");
  }
  pending->error_code = sluice_error_code(pending->where, &pending->error);
  MPI_Grequest_complete(pending->self);
}

static int poll(void* state, MPI_Status* status) {
  (void)status;
  struct Pending* pending = state;
  int over = 0;
  if (pending->agreement != MPI_REQUEST_NULL) {
    MPI_Test(&pending->agreement, &over, MPI_STATUS_IGNORE);
    if (over) {
      conclude(pending);
    }
  }
  return MPI_SUCCESS;
}

static int wait_for(int count, void** states, double timeout, MPI_Status* status) {
  (void)timeout, (void)status;
  for (int i = 0; i < count; i++) {
    struct Pending* pending = states[i];
    if (pending->agreement != MPI_REQUEST_NULL) {
      MPI_Wait(&pending->agreement, MPI_STATUS_IGNORE);
      conclude(pending);
    }
  }
  return MPI_SUCCESS;
}

static struct Pending* new_pending(int64_t done) {
  struct Pending* pending = calloc(1, sizeof *pending);
  if (pending) {
    pending->agreement = MPI_REQUEST_NULL;
    pending->done = done;
  }
  return pending;
}

int sluice_completed_request(int64_t done, int error_code, MPI_Request* request) {
  struct Pending* pending = new_pending(done);
  if (!pending) {
    return MPI_ERR_NO_MEM;
  }
  pending->error_code = error_code;
  const int failed = MPI_Grequest_start(query, release, cancel, pending, request);
  if (failed != MPI_SUCCESS) {
    free(pending);
    return failed;
  }
  return MPI_Grequest_complete(*request);
}

int sluice_agreeing_request(ADIO_File fd, const char* where, int64_t done, const struct SluiceError* error,
                            MPI_Request* request) {
  struct Pending* pending = new_pending(done);
  if (!pending) {
    return MPI_ERR_NO_MEM;
  }
  pending->where = where;
  pending->error = *error;
  pending->mine = error->code;
  int failed = MPIX_Grequest_start(query, release, cancel, poll, wait_for, pending, &pending->self);
  if (failed != MPI_SUCCESS) {
    free(pending);
    return failed;
  }
  *request = pending->self;
  return MPI_Iallreduce(&pending->mine, &pending->worst, 1, MPI_INT32_T, MPI_MAX, fd->comm,
                        &pending->agreement);
}
