// Reads and writes of Sluice files: blocking ones here, the others are started (ad_sluice_request.c).

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"
#include "adio/romio/external32.h"

static const char kRead[] = "MPI_File_read";
static const char kWrite[] = "MPI_File_write";

// The position of the access, moving the individual pointer on by what was asked for, as the standard wants.
static int64_t take_position(ADIO_File fd, const struct SluiceAccess* access, int64_t bytes) {
  if (access->pointer != ADIO_INDIVIDUAL) {
    return access->absolute ? access->offset : access->offset * fd->etype_size;
  }
  struct SluiceState* state = sluice_state(fd);
  pthread_mutex_lock(&state->mutex);
  const int64_t position = fd->fp_ind;
  fd->fp_ind += bytes;
  pthread_mutex_unlock(&state->mutex);
  return position;
}

static void put_position(ADIO_File fd, const struct SluiceAccess* access, int64_t position) {
  if (access->pointer == ADIO_INDIVIDUAL) {
    pthread_mutex_lock(&sluice_state(fd)->mutex);
    fd->fp_ind = position;
    pthread_mutex_unlock(&sluice_state(fd)->mutex);
  }
}

// A range that holds every byte of the access.
static struct SluiceExtent hull(const struct View* view, int64_t position, int64_t bytes) {
  const struct TypeMap* map = view->filetype;
  const int64_t first = position / map->size;
  const int64_t last = (position + bytes - 1) / map->size;
  return (struct SluiceExtent){(uint64_t)(view->displacement + first * map->extent + map->first),
                               (uint64_t)(view->displacement + last * map->extent + map->last)};
}

static int move_batches(struct SluiceState* state, enum SluiceDirection direction, struct Walk* walk,
                        int64_t* done, struct SluiceError* error) {
  struct Batch* batch = sluice_batch_new(walk);
  if (!batch) {
    return sluice_fail(error, SLUICE_INTERNAL, "out of memory for a list of extents");
  }
  int failed = 0;
  while (!failed && sluice_walk_next(walk, batch)) {
    uint64_t moved = 0;
    failed = (direction == SLUICE_TO_FILE ? state->abi->write : state->abi->read)(
        state->file, batch->extents, batch->extent_count, batch->pieces, batch->piece_count, &moved, error);
    *done += (int64_t)moved;
    if ((int64_t)moved < batch->bytes) {
      break;  // the end of the file, or an error
    }
  }
  sluice_batch_free(batch);
  return failed;
}

// In atomic mode nobody sees half of the access: under a lock, and with the writes handed over before it is
// given back.
static int move_locked(ADIO_File fd, enum SluiceDirection direction, struct Walk* walk,
                       struct SluiceExtent range, int64_t* done, struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  uint64_t lock;
  if (state->abi->lock(state->file, range, direction == SLUICE_TO_FILE, &lock, error)) {
    return -1;
  }
  int failed = move_batches(state, direction, walk, done, error);
  if (!failed && direction == SLUICE_TO_FILE) {
    failed = state->abi->flush(state->file, error);
  }
  struct SluiceError unlock_error = {0};
  if (state->abi->unlock(state->file, lock, &unlock_error) && !failed) {
    *error = unlock_error;
    failed = -1;
  }
  return failed;
}

int sluice_prepare(ADIO_File fd, const struct SluiceAccess* access, struct SluiceRequest* request,
                   struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  *request = (struct SluiceRequest){
      .direction = access->direction, .atomic = fd->atomicity, .buffer = access->buffer, .view = state->view};
  if (state->pointer_error.code != SLUICE_OK) {
    *error = state->pointer_error;
    state->pointer_error.code = SLUICE_OK;
    return -1;
  }
  if (sluice_type_map(access->type, &request->memory, error)) {
    return -1;
  }
  if (access->absolute && access->pointer != ADIO_INDIVIDUAL && state->view.filetype->contiguous) {
    request->view = (struct View){0, state->byte_map};
  }
  request->bytes = access->count * request->memory->size;
  request->position = take_position(fd, access, request->bytes);
  struct Walk walk;
  if (sluice_walk_start(&walk, &request->view, request->position, request->memory, 0, request->buffer,
                        request->bytes, error)) {
    request->bytes = 0;
    return -1;
  }
  return 0;
}

int sluice_carry_out(ADIO_File fd, const struct SluiceRequest* request, int64_t* done,
                     struct SluiceError* error) {
  struct Walk walk;
  *done = 0;
  if (request->bytes == 0) {
    return 0;
  }
  sluice_walk_start(&walk, &request->view, request->position, request->memory, 0, request->buffer,
                    request->bytes, error);
  if (request->atomic) {
    const struct SluiceExtent range = hull(&request->view, request->position, request->bytes);
    return move_locked(fd, request->direction, &walk, range, done, error);
  }
  return move_batches(sluice_state(fd), request->direction, &walk, done, error);
}

void sluice_end_access(ADIO_File fd, const struct SluiceAccess* access, const struct SluiceRequest* request,
                       int64_t done, const struct SluiceError* error) {
  if (error->code != SLUICE_OK && request->memory) {
    put_position(fd, access, request->position + done);
  }
  sluice_type_map_release(request->memory);
}

int sluice_transfer(ADIO_File fd, const struct SluiceAccess* access, int64_t* done,
                    struct SluiceError* error) {
  struct SluiceRequest request;
  *done = 0;
  if (sluice_prepare(fd, access, &request, error) == 0) {
    sluice_carry_out(fd, &request, done, error);
  }
  sluice_end_access(fd, access, &request, *done, error);
  return error->code != SLUICE_OK ? -1 : 0;
}

int sluice_transfer_all(ADIO_File fd, const struct SluiceAccess* access, int64_t* done,
                        struct SluiceError* error) {
  // A rank whose arguments are wrong takes part with no bytes.
  struct SluiceRequest request = {.direction = access->direction};
  struct SluiceError own = *error;
  struct SluiceDomains domains;
  struct SluiceMoved moved = {0};
  if (own.code == SLUICE_OK) {
    sluice_prepare(fd, access, &request, &own);
  }
  sluice_shape(fd, access->direction);
  const enum SluicePlanReason plan = sluice_plan(fd, &request, access->direction, &domains);
  const int two_phase = sluice_plan_is_two_phase(plan);
  if (two_phase) {
    sluice_two_phase(fd, &domains, &request, &moved, &own);
  } else if (own.code == SLUICE_OK) {
    sluice_carry_out(fd, &request, &moved.done, &own);
  }
  sluice_show_plan(fd, plan, moved.exchanged);
  *error = own;
  const int failed = sluice_agree(fd->comm, error);
  // Which ranks' bytes a rank that failed had to write is not known.
  *done = failed && two_phase && access->direction == SLUICE_TO_FILE ? 0 : moved.done;
  sluice_end_access(fd, access, &request, *done, error);
  return failed;
}

static void blocking(ADIO_File fd, const struct SluiceAccess* access, int collective, ADIO_Status* status,
                     int* error_code) {
  struct SluiceError error = {0};
  int64_t done;
  (collective ? sluice_transfer_all : sluice_transfer)(fd, access, &done, &error);
  MPIR_Status_set_bytes(status, access->type, done);
  *error_code = sluice_error_code(access->where, &error);
}

static void nonblocking(ADIO_File fd, const struct SluiceAccess* access, int collective,
                        ADIO_Request* request, int* error_code) {
  struct SluiceError error = {0};
  const struct SluiceConversion none = {0};
  *error_code = sluice_start(fd, access, &none, collective, &error, request);
}

void ADIOI_SLUICE_ReadContig(ADIO_File fd, void* buf, int count, MPI_Datatype datatype, int file_ptr_type,
                             ADIO_Offset offset, ADIO_Status* status, int* error_code) {
  const struct SluiceAccess access = {kRead,    SLUICE_FROM_FILE, buf,    count,
                                      datatype, file_ptr_type,    offset, 1};
  blocking(fd, &access, 0, status, error_code);
}

void ADIOI_SLUICE_WriteContig(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                              int file_ptr_type, ADIO_Offset offset, ADIO_Status* status, int* error_code) {
  const struct SluiceAccess access = {kWrite,   SLUICE_TO_FILE, (void*)buf, count,
                                      datatype, file_ptr_type,  offset,     1};
  blocking(fd, &access, 0, status, error_code);
}

void ADIOI_SLUICE_ReadStrided(ADIO_File fd, void* buf, int count, MPI_Datatype datatype, int file_ptr_type,
                              ADIO_Offset offset, ADIO_Status* status, int* error_code) {
  const struct SluiceAccess access = {kRead,    SLUICE_FROM_FILE, buf,    count,
                                      datatype, file_ptr_type,    offset, 0};
  blocking(fd, &access, 0, status, error_code);
}

void ADIOI_SLUICE_WriteStrided(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                               int file_ptr_type, ADIO_Offset offset, ADIO_Status* status, int* error_code) {
  const struct SluiceAccess access = {kWrite,   SLUICE_TO_FILE, (void*)buf, count,
                                      datatype, file_ptr_type,  offset,     0};
  blocking(fd, &access, 0, status, error_code);
}

void ADIOI_SLUICE_ReadStridedColl(ADIO_File fd, void* buf, int count, MPI_Datatype datatype,
                                  int file_ptr_type, ADIO_Offset offset, ADIO_Status* status,
                                  int* error_code) {
  const struct SluiceAccess access = {kRead,    SLUICE_FROM_FILE, buf,    count,
                                      datatype, file_ptr_type,    offset, 0};
  blocking(fd, &access, 1, status, error_code);
}

void ADIOI_SLUICE_WriteStridedColl(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                                   int file_ptr_type, ADIO_Offset offset, ADIO_Status* status,
                                   int* error_code) {
  const struct SluiceAccess access = {kWrite,   SLUICE_TO_FILE, (void*)buf, count,
                                      datatype, file_ptr_type,  offset,     0};
  blocking(fd, &access, 1, status, error_code);
}

void ADIOI_SLUICE_IreadContig(ADIO_File fd, void* buf, int count, MPI_Datatype datatype, int file_ptr_type,
                              ADIO_Offset offset, ADIO_Request* request, int* error_code) {
  const struct SluiceAccess access = {kRead,    SLUICE_FROM_FILE, buf,    count,
                                      datatype, file_ptr_type,    offset, 1};
  nonblocking(fd, &access, 0, request, error_code);
}

void ADIOI_SLUICE_IwriteContig(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                               int file_ptr_type, ADIO_Offset offset, ADIO_Request* request,
                               int* error_code) {
  const struct SluiceAccess access = {kWrite,   SLUICE_TO_FILE, (void*)buf, count,
                                      datatype, file_ptr_type,  offset,     1};
  nonblocking(fd, &access, 0, request, error_code);
}

void ADIOI_SLUICE_IreadStrided(ADIO_File fd, void* buf, int count, MPI_Datatype datatype, int file_ptr_type,
                               ADIO_Offset offset, ADIO_Request* request, int* error_code) {
  const struct SluiceAccess access = {kRead,    SLUICE_FROM_FILE, buf,    count,
                                      datatype, file_ptr_type,    offset, 0};
  nonblocking(fd, &access, 0, request, error_code);
}

void ADIOI_SLUICE_IwriteStrided(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                                int file_ptr_type, ADIO_Offset offset, ADIO_Request* request,
                                int* error_code) {
  const struct SluiceAccess access = {kWrite,   SLUICE_TO_FILE, (void*)buf, count,
                                      datatype, file_ptr_type,  offset,     0};
  nonblocking(fd, &access, 0, request, error_code);
}

void ADIOI_SLUICE_IreadStridedColl(ADIO_File fd, void* buf, int count, MPI_Datatype datatype,
                                   int file_ptr_type, ADIO_Offset offset, ADIO_Request* request,
                                   int* error_code) {
  const struct SluiceAccess access = {kRead,    SLUICE_FROM_FILE, buf,    count,
                                      datatype, file_ptr_type,    offset, 0};
  nonblocking(fd, &access, 1, request, error_code);
}

void ADIOI_SLUICE_IwriteStridedColl(ADIO_File fd, const void* buf, int count, MPI_Datatype datatype,
                                    int file_ptr_type, ADIO_Offset offset, ADIO_Request* request,
                                    int* error_code) {
  const struct SluiceAccess access = {kWrite,   SLUICE_TO_FILE, (void*)buf, count,
                                      datatype, file_ptr_type,  offset,     0};
  nonblocking(fd, &access, 1, request, error_code);
}

// Requests of this driver are MPI requests, which libmpich completes; ROMIO does not call these for them.
int ADIOI_SLUICE_IODone(ADIO_Request* request, ADIO_Status* status, int* error_code) {
  int done = 0;
  *error_code = MPI_Test(request, &done, status);
  return done;
}

void ADIOI_SLUICE_IOComplete(ADIO_Request* request, ADIO_Status* status, int* error_code) {
  *error_code = MPI_Wait(request, status);
}
