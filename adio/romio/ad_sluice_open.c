// Opening, viewing and closing Sluice files: rank 0 acts, the others share its handle, all agree on the
// outcome.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"

static const char kOpen[] = "MPI_File_open";

// Reads "name\0value\0..." into an array for the client library; the strings stay where they are.
static struct SluiceHint* list_hints(const struct SluiceState* state, size_t* count) {
  *count = 0;
  struct SluiceHint* hints = calloc(state->hints_bytes / 2 + 1, sizeof *hints);
  const char* end = state->hints + state->hints_bytes;
  for (const char* at = state->hints; hints && at < end;) {
    const char* value = at + strlen(at) + 1;
    hints[(*count)++] = (struct SluiceHint){at, value};
    at = value + strlen(value) + 1;
  }
  return hints;
}

static uint32_t open_flags(int access_mode) {
  uint32_t flags = 0;
  flags |= access_mode & (ADIO_RDONLY | ADIO_RDWR) ? SLUICE_READ : 0;
  flags |= access_mode & (ADIO_WRONLY | ADIO_RDWR) ? SLUICE_WRITE : 0;
  flags |= access_mode & ADIO_CREATE ? SLUICE_CREATE : 0;
  flags |= access_mode & ADIO_EXCL ? SLUICE_EXCLUSIVE : 0;
  return flags;
}

// What rank 0 tells the others about the file that it opened.
struct Opened {
  struct SluiceError error;
  uint64_t size;  // to append to
  char handle[SLUICE_HANDLE_BYTES];
  char hints[SLUICE_HINTS_BYTES];
};

static void open_first(ADIO_File fd, struct Opened* opened) {
  struct SluiceState* state = sluice_state(fd);
  const struct SluiceAbi* abi = state->abi;
  size_t count;
  struct SluiceHint* hints = list_hints(state, &count);
  if (!hints) {
    sluice_fail(&opened->error, SLUICE_INTERNAL, "out of memory for the hints of %.200s", fd->filename);
    return;
  }
  const uint32_t mode = fd->perm == ADIO_PERM_NULL ? 0666 : (uint32_t)fd->perm;
  const int failed =
      abi->open(fd->filename, open_flags(fd->access_mode), mode, hints, count, &state->file, &opened->error);
  free(hints);
  if (!failed && abi->share(state->file, opened->handle, sizeof opened->handle, &opened->error) == 0) {
    abi->effective_hints(state->file, opened->hints, sizeof opened->hints, &opened->error);
  }
  if (opened->error.code == SLUICE_OK && (fd->access_mode & ADIO_APPEND)) {
    abi->size(state->file, &opened->size, &opened->error);
  }
}

// Adds lines "name=value" to the file's info; what does not fit MPI's limits is cut.
static void show_hints(ADIO_File fd, char* text) {
  char* rest = NULL;
  for (char* line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char* equals = strchr(line, '=');
    if (!equals || equals - line >= MPI_MAX_INFO_KEY) {
      continue;
    }
    *equals = '\0';
    char* value = equals + 1;
    if (strlen(value) >= MPI_MAX_INFO_VAL) {
      value[MPI_MAX_INFO_VAL - 1] = '\0';
    }
    MPI_Info_set(fd->info, line, value);
    if (strcmp(line, "striping_unit") == 0) {
      fd->blksize = strtol(value, NULL, 10);
      fd->hints->striping_unit = (int)fd->blksize;
    }
  }
}

// After a failure nobody keeps the file. One that was made just now is taken away again.
static void undo_open(ADIO_File fd, int rank) {
  struct SluiceState* state = sluice_state(fd);
  struct SluiceError ignored = {0};
  if (state && state->file) {
    state->abi->close(state->file, 0, &ignored);
    state->file = NULL;
    if (rank == 0 && (fd->access_mode & ADIO_CREATE) && (fd->access_mode & ADIO_EXCL)) {
      state->abi->remove(fd->filename, &ignored);
    }
  }
}

static int open_together(ADIO_File fd, int rank, struct Opened* opened) {
  struct SluiceState* state = sluice_state(fd);
  if (state) {
    opened->error = state->open_error;
  } else {
    sluice_fail(&opened->error, SLUICE_INTERNAL, "out of memory to open %.200s", fd->filename);
  }
  if (sluice_agree(fd->comm, &opened->error)) {
    return -1;
  }
  if (rank == 0) {
    open_first(fd, opened);
  }
  MPI_Bcast(opened, (int)sizeof *opened, MPI_BYTE, 0, fd->comm);
  if (opened->error.code != SLUICE_OK) {
    return -1;
  }
  if (rank != 0) {
    state->abi->attach(opened->handle, &state->file, &opened->error);
  }
  if (sluice_agree(fd->comm, &opened->error)) {
    return -1;
  }
  fd->fp_ind = (ADIO_Offset)opened->size;
  return 0;
}

// Append starts both pointers at the end; the counter is the group's, so that one rank sets it.
static int start_shared_pointer(ADIO_File fd, int rank, struct SluiceError* error) {
  int64_t before;
  if (!(fd->access_mode & ADIO_APPEND)) {
    return 0;
  }
  if (rank == 0) {
    sluice_state(fd)->abi->counter_set(sluice_state(fd)->file, fd->fp_ind, &before, error);
  }
  return sluice_agree(fd->comm, error);
}

void ADIOI_SLUICE_OpenColl(ADIO_File fd, int rank, int access_mode, int* error_code) {
  struct Opened opened = {0};
  fd->access_mode = access_mode;
  fd->blksize = 1 << 20;
  *error_code = MPI_SUCCESS;
  if (open_together(fd, rank, &opened) == 0 && start_shared_pointer(fd, rank, &opened.error) == 0) {
    show_hints(fd, opened.hints);
    sluice_settle_hints(fd);
    fd->is_open = 1;
    return;
  }
  undo_open(fd, rank);
  sluice_state_free(fd);
  *error_code = sluice_error_code(kOpen, &opened.error);
}

// ROMIO opens a file alone only when it put the open off, which this driver does not let it do.
void ADIOI_SLUICE_Open(ADIO_File fd, int* error_code) {
  *error_code = fd->is_open
                    ? MPI_SUCCESS
                    : sluice_error_code_of_class(kOpen, MPI_ERR_INTERN,
                                                 "a Sluice file was opened by one rank alone; open it with "
                                                 "MPI_File_open on a communicator");
}

void sluice_state_free(ADIO_File fd) {
  struct SluiceState* state = sluice_state(fd);
  if (!state) {
    return;
  }
  sluice_queue_close(fd);
  fd->fs_ptr = NULL;
  sluice_type_map_release(state->view.filetype);
  sluice_type_map_release(state->byte_map);
  pthread_mutex_destroy(&state->mutex);
  free(state->hints);
  free(state);
}

void ADIOI_SLUICE_Close(ADIO_File fd, int* error_code) {
  struct SluiceState* state = sluice_state(fd);
  struct SluiceError error = {0};
  int rank;
  *error_code = MPI_SUCCESS;
  if (!state) {
    return;  // MPI_File_close did it already, to report its errors in time
  }
  MPI_Comm_rank(fd->comm, &rank);
  sluice_queue_close(fd);
  const int writable = !(fd->access_mode & ADIO_RDONLY);
  // When one rank's writes did not arrive, nobody's are committed.
  const int commit = sluice_flush_all(fd, &error) == 0 && writable;
  if (rank == 0) {
    struct SluiceError close_error = {0};
    if (state->abi->close(state->file, commit, &close_error) && error.code == SLUICE_OK) {
      error = close_error;
    }
  }
  // That ended the file for all. The others leave after it, so that none is taken for one who died before.
  MPI_Bcast(&error, (int)sizeof error, MPI_BYTE, 0, fd->comm);
  if (rank != 0) {
    struct SluiceError ignored = {0};
    state->abi->close(state->file, 0, &ignored);
  }
  state->file = NULL;
  if (error.code == SLUICE_OK) {
    error = state->late_read_error;
  }
  sluice_state_free(fd);
  *error_code = sluice_error_code("MPI_File_close", &error);
}

// A view keeps types of its own, which outlive the program's.
static int keep_type(MPI_Datatype type, MPI_Datatype* kept) {
  MPI_Count integers, addresses, large, types;
  int combiner;
  int failed = MPI_Type_get_envelope_c(type, &integers, &addresses, &large, &types, &combiner);
  if (failed == MPI_SUCCESS && combiner == MPI_COMBINER_NAMED) {
    *kept = type;
    return MPI_SUCCESS;
  }
  if (failed == MPI_SUCCESS) {
    failed = MPI_Type_contiguous(1, type, kept);
  }
  return failed == MPI_SUCCESS ? MPI_Type_commit(kept) : failed;
}

static void drop_type(MPI_Datatype* type) {
  MPI_Count integers, addresses, large, types;
  int combiner;
  if (*type != MPI_DATATYPE_NULL &&
      MPI_Type_get_envelope_c(*type, &integers, &addresses, &large, &types, &combiner) == MPI_SUCCESS &&
      combiner != MPI_COMBINER_NAMED) {
    MPI_Type_free(type);
  }
}

static int prepare_view(ADIO_File fd, MPI_Datatype etype, MPI_Datatype filetype,
                        const struct TypeMap** etype_map, const struct TypeMap** filetype_map,
                        struct SluiceError* error) {
  const int writable = !(fd->access_mode & ADIO_RDONLY);
  if (etype == MPI_DATATYPE_NULL || filetype == MPI_DATATYPE_NULL) {
    return sluice_fail(error, SLUICE_INVALID_ARGUMENT,
                       "the file view's etype and filetype must be datatypes, not MPI_DATATYPE_NULL");
  }
  if (sluice_type_map(etype, etype_map, error) || sluice_type_map(filetype, filetype_map, error) ||
      sluice_check_view_type(*etype_map, "etype", writable, error) ||
      sluice_check_view_type(*filetype_map, "filetype", writable, error)) {
    return -1;
  }
  if ((*etype_map)->size == 0 || (*filetype_map)->size % (*etype_map)->size != 0) {
    return sluice_fail(
        error, SLUICE_INVALID_ARGUMENT,
        "the file view's filetype has %lld bytes of data, which is no multiple of its etype's %lld; build "
        "the filetype from etypes",
        (long long)(*filetype_map)->size, (long long)(*etype_map)->size);
  }
  return 0;
}

int sluice_set_view(ADIO_File fd, ADIO_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                    struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  const struct TypeMap* etype_map = NULL;
  const struct TypeMap* filetype_map = NULL;
  MPI_Datatype kept_etype = MPI_DATATYPE_NULL;
  MPI_Datatype kept_filetype = MPI_DATATYPE_NULL;
  if (error->code == SLUICE_OK && prepare_view(fd, etype, filetype, &etype_map, &filetype_map, error) == 0 &&
      (keep_type(etype, &kept_etype) != MPI_SUCCESS || keep_type(filetype, &kept_filetype) != MPI_SUCCESS)) {
    sluice_fail(error, SLUICE_INVALID_ARGUMENT,
                "the file view's datatypes could not be kept; are they committed?");
  }
  const int64_t etype_size = etype_map ? etype_map->size : 0;
  sluice_type_map_release(etype_map);
  if (sluice_agree(fd->comm, error)) {
    drop_type(&kept_etype);
    drop_type(&kept_filetype);
    sluice_type_map_release(filetype_map);
    return -1;
  }
  drop_type(&fd->etype);
  drop_type(&fd->filetype);
  sluice_type_map_release(state->view.filetype);
  fd->etype = kept_etype;
  fd->filetype = kept_filetype;
  fd->etype_size = etype_size;
  fd->disp = disp;
  fd->fp_ind = 0;
  state->view = (struct View){disp, filetype_map};
  sluice_plan_view_facts(fd);
  return 0;
}
