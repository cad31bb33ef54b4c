// Requests of nonblocking accesses. The data has moved when they are made; what may be left is to hear of the
// other ranks.
//
// A rank's own error is the answer of the call that made the request. Another rank's comes when the request
// finishes: to the file's error handler, and as the answer of MPI_Wait or MPI_Test, unless the program left
// MPI_COMM_WORLD with MPI_ERRORS_ARE_FATAL, which libmpich applies to any request: errors of files do not end
// programs. Because it may be overlooked there, the next sync or close reports it once more and commits
// nothing.

#include <stdlib.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"

struct Pending {
  MPI_File file;
  MPI_Request self;
  MPI_Request agreement;  // MPI_REQUEST_NULL when it is over
  const char* where;
  enum SluiceDirection direction;
  struct SluiceError error;
  int32_t mine;
  int32_t worst;
  int error_code;
  int64_t done;
};

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

// What the program learns from Wait and Test.
static int query(void* state, MPI_Status* status) {
  struct Pending* pending = state;
  MPI_Status_set_elements_x(status, MPI_BYTE, pending->done);
  MPI_Status_set_cancelled(status, 0);
  return pending->error_code != MPI_SUCCESS && errors_end_the_program() ? MPI_SUCCESS : pending->error_code;
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
  if (pending->worst != SLUICE_OK) {
    const int own = pending->error.code != SLUICE_OK;
    if (!own) {
      sluice_fail(&pending->error, pending->worst,
                  "another rank failed in this collective access; its own error says why");
    }
    pending->error_code = sluice_error_code(pending->where, &pending->error);
    if (pending->direction == SLUICE_TO_FILE) {
      sluice_state(pending->file)->late_error = pending->error;
    }
    if (!own) {
      MPIO_Err_return_file(pending->file, pending->error_code);
    }
  }
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

int sluice_completed_request(int64_t done, MPI_Request* request) {
  struct Pending* pending = calloc(1, sizeof *pending);
  if (!pending) {
    return MPI_ERR_NO_MEM;
  }
  pending->agreement = MPI_REQUEST_NULL;
  pending->done = done;
  const int failed = MPI_Grequest_start(query, release, cancel, pending, request);
  if (failed != MPI_SUCCESS) {
    free(pending);
    return failed;
  }
  return MPI_Grequest_complete(*request);
}

int sluice_agreeing_request(ADIO_File fd, const struct SluiceAccess* access, int64_t done,
                            const struct SluiceError* error, MPI_Request* request) {
  struct Pending* pending = calloc(1, sizeof *pending);
  if (!pending) {
    return MPI_ERR_NO_MEM;
  }
  *pending = (struct Pending){.file = fd,
                              .agreement = MPI_REQUEST_NULL,
                              .where = access->where,
                              .direction = access->direction,
                              .error = *error,
                              .mine = error->code,
                              .done = done};
  int failed = MPIX_Grequest_start(query, release, cancel, poll, wait_for, pending, &pending->self);
  if (failed != MPI_SUCCESS) {
    free(pending);
    return failed;
  }
  *request = pending->self;
  failed =
      MPI_Iallreduce(&pending->mine, &pending->worst, 1, MPI_INT32_T, MPI_MAX, fd->comm, &pending->agreement);
  return failed != MPI_SUCCESS ? failed : sluice_error_code(access->where, error);
}
