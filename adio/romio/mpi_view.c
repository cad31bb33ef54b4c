// MPI_File functions whose ROMIO versions would leave ranks waiting, or lose an error, when one rank fails;
// and those that talk to other ranks before the driver is asked, which first has to start what those may wait
// for (sluice_start_agreements). Of the collective ones only sync is left to ROMIO, which talks to nobody.

#include <strings.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"
#include "adio/romio/romio_names.h"

SLUICE_MPI_ALIAS(File_set_view)
SLUICE_MPI_ALIAS(File_set_info)
SLUICE_MPI_ALIAS(File_set_size)
SLUICE_MPI_ALIAS(File_set_atomicity)
SLUICE_MPI_ALIAS(File_preallocate)
SLUICE_MPI_ALIAS(File_seek)
SLUICE_MPI_ALIAS(File_seek_shared)
SLUICE_MPI_ALIAS(File_get_position_shared)

// To the program's error handler, when there is an error.
static int answer(MPI_File fh, const char* where, const struct SluiceError* error) {
  return error->code == SLUICE_OK ? MPI_SUCCESS : MPIO_Err_return_file(fh, sluice_error_code(where, error));
}

static int check_view_words(ADIO_File fd, MPI_Offset disp, const char* datarep, int* external32,
                            struct SluiceError* error) {
  const int sequential = (fd->access_mode & ADIO_SEQUENTIAL) != 0;
  if (disp < 0 && disp != MPI_DISPLACEMENT_CURRENT) {
    return sluice_fail(error, SLUICE_INVALID_ARGUMENT, "the file view's displacement %lld is negative",
                       (long long)disp);
  }
  if (sequential != (disp == MPI_DISPLACEMENT_CURRENT)) {
    return sluice_fail(error, SLUICE_INVALID_ARGUMENT,
                       "a file view needs MPI_DISPLACEMENT_CURRENT when the file is open in "
                       "MPI_MODE_SEQUENTIAL, and only then");
  }
  *external32 = datarep && strcasecmp(datarep, "external32") == 0;
  if (!datarep ||
      (!*external32 && strcasecmp(datarep, "native") != 0 && strcasecmp(datarep, "internal") != 0)) {
    return sluice_fail(
        error, SLUICE_MPI_CLASS(MPI_ERR_UNSUPPORTED_DATAREP),
        "the data representation \"%.100s\" is not supported; use native, internal or external32",
        datarep ? datarep : "(null)");
  }
  return 0;
}

// Every rank reads the pointer before any goes on to move it: the agreement that follows sees to that.
static MPI_Offset current_displacement(ADIO_File fd, struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  int64_t etypes = 0;
  state->abi->counter_add(state->file, 0, &etypes, error);
  return sluice_view_offset(&state->view, etypes * fd->etype_size);
}

static int set_shared_pointer(ADIO_File fd, int64_t etypes, struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  int64_t before;
  int rank;
  MPI_Comm_rank(fd->comm, &rank);
  if (rank == 0) {
    state->abi->counter_set(state->file, etypes, &before, error);
  }
  return sluice_agree(fd->comm, error);
}

int PMPI_File_set_view(MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                       const char* datarep, MPI_Info info) {
  static const char kWhere[] = "MPI_File_set_view";
  if (!sluice_owns(fh)) {
    return romio_File_set_view(fh, disp, etype, filetype, datarep, info);
  }
  struct SluiceError error = {0};
  int external32 = 0;
  int error_code = MPI_SUCCESS;
  sluice_queue_settle(fh);                      // they use the old view
  ADIOI_SLUICE_SetInfo(fh, info, &error_code);  // agreed on by all
  if (error_code != MPI_SUCCESS) {
    return MPIO_Err_return_file(fh, error_code);
  }
  if (check_view_words(fh, disp, datarep, &external32, &error) == 0 && disp == MPI_DISPLACEMENT_CURRENT) {
    disp = current_displacement(fh, &error);
  }
  if (sluice_set_view(fh, disp, etype, filetype, &error) == 0) {
    fh->is_external32 = external32;
    set_shared_pointer(fh, 0, &error);
  }
  return answer(fh, kWhere, &error);
}

int PMPI_File_set_info(MPI_File fh, MPI_Info info) {
  if (!sluice_owns(fh)) {
    return romio_File_set_info(fh, info);
  }
  int error_code = MPI_SUCCESS;
  ADIOI_SLUICE_SetInfo(fh, info, &error_code);
  return error_code == MPI_SUCCESS ? MPI_SUCCESS : MPIO_Err_return_file(fh, error_code);
}

enum { kMostNumbers = 2 };

// Collective: whether all ranks gave the same numbers. `what` names them in the error.
static int check_same(ADIO_File fd, int count, const MPI_Offset* numbers, const char* what,
                      struct SluiceError* error) {
  MPI_Offset mine[2 * kMostNumbers], largest[2 * kMostNumbers];
  int same = 1;
  for (int i = 0; i < count; i++) {
    mine[2 * i] = numbers[i];
    mine[2 * i + 1] = ~numbers[i];  // falls as the number rises, for all numbers
  }
  sluice_start_agreements();
  MPI_Allreduce(mine, largest, 2 * count, ADIO_OFFSET, MPI_MAX, fd->comm);
  for (int i = 0; i < count; i++) {
    same &= largest[2 * i] == ~largest[2 * i + 1];
  }
  return same ? 0
              : sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_NOT_SAME),
                            "the ranks gave different %s for %.200s; give all the same", what, fd->filename);
}

// Collective: what makes a size wrong is the same on all ranks.
static int check_size(ADIO_File fd, MPI_Offset size, struct SluiceError* error) {
  if (check_same(fd, 1, &size, "sizes", error)) {
    return -1;
  }
  if (size < 0) {
    return sluice_fail(error, SLUICE_INVALID_ARGUMENT,
                       "the size %lld for %.200s is negative; give a number of bytes", (long long)size,
                       fd->filename);
  }
  if (fd->access_mode & ADIO_RDONLY) {
    return sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_READ_ONLY),
                       "%.200s is open for reading only; open it for writing to give it a size",
                       fd->filename);
  }
  return 0;
}

int PMPI_File_set_size(MPI_File fh, MPI_Offset size) {
  if (!sluice_owns(fh)) {
    return romio_File_set_size(fh, size);
  }
  struct SluiceError error = {0};
  int error_code = MPI_SUCCESS;
  if (fh->access_mode & ADIO_SEQUENTIAL) {
    sluice_fail(&error, SLUICE_UNSUPPORTED, "%.200s is open in MPI_MODE_SEQUENTIAL, which sets no size",
                fh->filename);
  } else if (check_size(fh, size, &error) == 0) {
    ADIOI_SLUICE_Resize(fh, size, &error_code);  // agreed on by all
    return error_code == MPI_SUCCESS ? MPI_SUCCESS : MPIO_Err_return_file(fh, error_code);
  }
  return answer(fh, "MPI_File_set_size", &error);
}

int PMPI_File_set_atomicity(MPI_File fh, int flag) {
  if (!sluice_owns(fh)) {
    return romio_File_set_atomicity(fh, flag);
  }
  struct SluiceError error = {0};
  const MPI_Offset atomic = flag != 0;
  if (check_same(fh, 1, &atomic, "atomicity", &error) == 0) {
    fh->atomicity = (int)atomic;
  }
  return answer(fh, "MPI_File_set_atomicity", &error);
}

int PMPI_File_preallocate(MPI_File fh, MPI_Offset size) {
  if (!sluice_owns(fh)) {
    return romio_File_preallocate(fh, size);
  }
  struct SluiceError error = {0};
  int rank;
  MPI_Comm_rank(fh->comm, &rank);
  if (check_size(fh, size, &error) == 0 && sluice_flush_all(fh, &error) == 0) {
    if (rank == 0) {
      struct SluiceState* state = sluice_state(fh);
      state->abi->preallocate(state->file, (uint64_t)size, &error);
    }
    MPI_Bcast(&error, (int)sizeof error, MPI_BYTE, 0, fh->comm);
  }
  return answer(fh, "MPI_File_preallocate", &error);
}

// Where the end of the file is in the view, in etypes; ROMIO's question has no room for an error.
static int end_of_file(ADIO_File fd, MPI_Offset* etypes, struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  uint64_t bytes = 0;
  sluice_queue_settle(fd);
  if (state->abi->size(state->file, &bytes, error)) {
    return -1;
  }
  ADIOI_Get_eof_offset(fd, etypes);
  return 0;
}

int PMPI_File_seek(MPI_File fh, MPI_Offset offset, int whence) {
  if (sluice_owns(fh) && whence == MPI_SEEK_END) {
    struct SluiceError error = {0};
    MPI_Offset end;
    if (end_of_file(fh, &end, &error)) {
      return answer(fh, "MPI_File_seek", &error);
    }
    if (end + offset < 0) {
      sluice_fail(&error, SLUICE_INVALID_ARGUMENT,
                  "seeking %lld from the end, at %lld, leads before the start of the view", (long long)offset,
                  (long long)end);
      return answer(fh, "MPI_File_seek", &error);
    }
    return romio_File_seek(fh, end + offset, MPI_SEEK_SET);
  }
  return romio_File_seek(fh, offset, whence);
}

// Where the shared pointer shall go, in etypes; rank 0 only.
static int shared_target(ADIO_File fd, MPI_Offset offset, int whence, int64_t* target,
                         struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  int64_t base = 0;
  MPI_Offset end;
  if (whence == MPI_SEEK_CUR && state->abi->counter_add(state->file, 0, &base, error)) {
    return -1;
  }
  if (whence == MPI_SEEK_END) {
    if (end_of_file(fd, &end, error)) {
      return -1;
    }
    base = end;
  }
  *target = base + offset;
  if (*target < 0) {
    return sluice_fail(error, SLUICE_INVALID_ARGUMENT,
                       "seeking %lld from %lld leads before the start of the view", (long long)offset,
                       (long long)base);
  }
  return 0;
}

int PMPI_File_seek_shared(MPI_File fh, MPI_Offset offset, int whence) {
  if (!sluice_owns(fh)) {
    return romio_File_seek_shared(fh, offset, whence);
  }
  struct SluiceError error = {0};
  const MPI_Offset place[2] = {offset, whence};
  int64_t target = 0;
  int rank;
  MPI_Comm_rank(fh->comm, &rank);
  if (check_same(fh, 2, place, "places to seek to", &error)) {
    return answer(fh, "MPI_File_seek_shared", &error);
  }
  if (whence != MPI_SEEK_SET && whence != MPI_SEEK_CUR && whence != MPI_SEEK_END) {
    sluice_fail(&error, SLUICE_INVALID_ARGUMENT,
                "whence is %d; use MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END", whence);
  } else if (fh->access_mode & ADIO_SEQUENTIAL) {
    sluice_fail(&error, SLUICE_UNSUPPORTED, "%.200s is open in MPI_MODE_SEQUENTIAL, which has no seeking",
                fh->filename);
  } else {
    if (rank == 0) {
      shared_target(fh, offset, whence, &target, &error);
    }
    if (sluice_agree(fh->comm, &error) == 0) {
      set_shared_pointer(fh, target, &error);
    }
  }
  return answer(fh, "MPI_File_seek_shared", &error);
}

int PMPI_File_get_position_shared(MPI_File fh, MPI_Offset* offset) {
  if (!sluice_owns(fh) || (fh->access_mode & ADIO_SEQUENTIAL)) {
    return romio_File_get_position_shared(fh, offset);
  }
  struct SluiceState* state = sluice_state(fh);
  struct SluiceError error = {0};
  int64_t before = 0;
  state->abi->counter_add(state->file, 0, &before, &error);
  *offset = before;
  return answer(fh, "MPI_File_get_position_shared", &error);
}
