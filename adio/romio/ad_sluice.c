#include "adio/romio/ad_sluice.h"

#include <stdlib.h>

#include "adio/romio/errors.h"
#include "adio/romio/romio_names.h"

struct ADIOI_Fns_struct ADIO_SLUICE_operations = {
    .ADIOI_xxx_Open = ADIOI_SLUICE_Open,
    .ADIOI_xxx_OpenColl = ADIOI_SLUICE_OpenColl,
    .ADIOI_xxx_ReadContig = ADIOI_SLUICE_ReadContig,
    .ADIOI_xxx_WriteContig = ADIOI_SLUICE_WriteContig,
    .ADIOI_xxx_ReadStridedColl = ADIOI_SLUICE_ReadStridedColl,
    .ADIOI_xxx_WriteStridedColl = ADIOI_SLUICE_WriteStridedColl,
    .ADIOI_xxx_SeekIndividual = ADIOI_SLUICE_SeekIndividual,
    .ADIOI_xxx_Fcntl = ADIOI_SLUICE_Fcntl,
    .ADIOI_xxx_SetInfo = ADIOI_SLUICE_SetInfo,
    .ADIOI_xxx_ReadStrided = ADIOI_SLUICE_ReadStrided,
    .ADIOI_xxx_WriteStrided = ADIOI_SLUICE_WriteStrided,
    .ADIOI_xxx_Close = ADIOI_SLUICE_Close,
    .ADIOI_xxx_IreadContig = ADIOI_SLUICE_IreadContig,
    .ADIOI_xxx_IwriteContig = ADIOI_SLUICE_IwriteContig,
    .ADIOI_xxx_ReadDone = ADIOI_SLUICE_IODone,
    .ADIOI_xxx_WriteDone = ADIOI_SLUICE_IODone,
    .ADIOI_xxx_ReadComplete = ADIOI_SLUICE_IOComplete,
    .ADIOI_xxx_WriteComplete = ADIOI_SLUICE_IOComplete,
    .ADIOI_xxx_IreadStrided = ADIOI_SLUICE_IreadStrided,
    .ADIOI_xxx_IwriteStrided = ADIOI_SLUICE_IwriteStrided,
    .ADIOI_xxx_Flush = ADIOI_SLUICE_Flush,
    .ADIOI_xxx_Resize = ADIOI_SLUICE_Resize,
    .ADIOI_xxx_Delete = ADIOI_SLUICE_Delete,
    .ADIOI_xxx_Feature = ADIOI_SLUICE_Feature,
    .fsname = "SLUICE: erasure-coded array objects behind a burst buffer",
    .ADIOI_xxx_IreadStridedColl = ADIOI_SLUICE_IreadStridedColl,
    .ADIOI_xxx_IwriteStridedColl = ADIOI_SLUICE_IwriteStridedColl,
    .ADIOI_xxx_SetLock = ADIOI_SLUICE_SetLock,
};

int ADIOI_SLUICE_Feature(ADIO_File fd, int flag) {
  (void)fd;
  switch (flag) {
    case ADIO_SHARED_FP:
    case ADIO_ATOMIC_MODE:
    case ADIO_SCALABLE_OPEN:
    case ADIO_SCALABLE_RESIZE:
    case ADIO_UNLINK_AFTER_CLOSE:
    case ADIO_DATA_SIEVING_WRITES:  // never needed, and the hints about it may stay
      return 1;
    default:
      return 0;  // in particular ADIO_LOCKS: this driver takes its locks itself
  }
}

int ADIOI_SLUICE_SetLock(ADIO_File fd, int command, int type, ADIO_Offset offset, int whence,
                         ADIO_Offset length) {
  (void)fd, (void)command, (void)type, (void)offset, (void)whence, (void)length;
  return 0;  // sluice_transfer locks in atomic mode
}

ADIO_Offset ADIOI_SLUICE_SeekIndividual(ADIO_File fd, ADIO_Offset offset, int whence, int* error_code) {
  (void)whence;  // ROMIO has turned the others into SEEK_SET
  struct SluiceState* state = sluice_state(fd);
  *error_code = MPI_SUCCESS;
  pthread_mutex_lock(&state->mutex);
  fd->fp_ind = offset * fd->etype_size;
  pthread_mutex_unlock(&state->mutex);
  return sluice_view_offset(&state->view, offset * fd->etype_size);
}

void ADIOI_SLUICE_Fcntl(ADIO_File fd, int flag, ADIO_Fcntl_t* fcntl, int* error_code) {
  struct SluiceState* state = sluice_state(fd);
  struct SluiceError error = {0};
  uint64_t bytes = 0;
  sluice_queue_settle(fd);
  if (flag == ADIO_FCNTL_GET_FSIZE) {
    state->abi->size(state->file, &bytes, &error);
    fcntl->fsize = error.code ? -1 : (ADIO_Offset)bytes;
  } else {  // MPI_File_preallocate and MPI_File_set_atomicity are ours
    sluice_fail(&error, SLUICE_UNSUPPORTED, "file control %d is not known to the Sluice driver", flag);
  }
  *error_code = sluice_error_code("MPI_File", &error);
}

int sluice_flush_all(ADIO_File fd, struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  int hearsay = 0;
  sluice_queue_settle(fd);
  if (state->late_error.code != SLUICE_OK) {
    *error = state->late_error;
    hearsay = state->late_is_hearsay;
    state->late_error.code = SLUICE_OK;
  } else if (!(fd->access_mode & ADIO_RDONLY)) {
    state->abi->flush(state->file, error);
  }
  if (sluice_agree_on_cause(fd->comm, hearsay, error) == 0) {
    return 0;
  }
  sluice_queue_told(fd);
  return -1;
}

void ADIOI_SLUICE_Flush(ADIO_File fd, int* error_code) {
  struct SluiceState* state = sluice_state(fd);
  struct SluiceError error = {0};
  int rank;
  MPI_Comm_rank(fd->comm, &rank);
  if (sluice_flush_all(fd, &error) == 0) {
    if (rank == 0) {
      state->abi->sync(state->file, &error);
    }
    MPI_Bcast(&error, (int)sizeof error, MPI_BYTE, 0, fd->comm);
  }
  *error_code = sluice_error_code("MPI_File_sync", &error);
}

void ADIOI_SLUICE_Resize(ADIO_File fd, ADIO_Offset size, int* error_code) {
  struct SluiceState* state = sluice_state(fd);
  struct SluiceError error = {0};
  int rank;
  MPI_Comm_rank(fd->comm, &rank);
  // What was written before must not arrive after, and lengthen the file again.
  if (sluice_flush_all(fd, &error) == 0) {
    if (rank == 0) {
      state->abi->resize(state->file, (uint64_t)size, &error);
    }
    MPI_Bcast(&error, (int)sizeof error, MPI_BYTE, 0, fd->comm);
  }
  *error_code = sluice_error_code("MPI_File_set_size", &error);
}

void ADIOI_SLUICE_Delete(const char* filename, int* error_code) {
  const struct SluiceAbi* abi;
  struct SluiceError error = {0};
  if (sluice_abi_load(&abi, &error) == 0) {
    abi->remove(filename, &error);
  }
  *error_code = sluice_error_code("MPI_File_delete", &error);
}

// What ROMIO asks of every file, answered here for Sluice's and handed on for the others.

// A failure here would let ROMIO return from a collective call while other ranks wait; the access that
// follows reports it.
void ADIO_Get_shared_fp(ADIO_File fd, ADIO_Offset increment, ADIO_Offset* position, int* error_code) {
  if (!sluice_owns(fd)) {
    romio_ADIO_Get_shared_fp(fd, increment, position, error_code);
    return;
  }
  struct SluiceState* state = sluice_state(fd);
  int64_t before = 0;
  state->abi->counter_add(state->file, increment, &before, &state->pointer_error);
  *position = before;
  *error_code = MPI_SUCCESS;
}

void ADIO_Set_shared_fp(ADIO_File fd, ADIO_Offset position, int* error_code) {
  if (!sluice_owns(fd)) {
    romio_ADIO_Set_shared_fp(fd, position, error_code);
    return;
  }
  struct SluiceState* state = sluice_state(fd);
  struct SluiceError error = {0};
  int64_t before;
  state->abi->counter_set(state->file, position, &before, &error);
  *error_code = sluice_error_code("MPI_File_seek_shared", &error);
}

void ADIOI_Get_position(ADIO_File fd, ADIO_Offset* offset) {
  if (!sluice_owns(fd)) {
    romio_ADIOI_Get_position(fd, offset);
    return;
  }
  struct SluiceState* state = sluice_state(fd);
  pthread_mutex_lock(&state->mutex);
  *offset = fd->fp_ind / fd->etype_size;
  pthread_mutex_unlock(&state->mutex);
}

// The end may lie in a hole of the view or inside an etype: then it is the next etype.
void ADIOI_Get_eof_offset(ADIO_File fd, ADIO_Offset* offset) {
  if (!sluice_owns(fd)) {
    romio_ADIOI_Get_eof_offset(fd, offset);
    return;
  }
  struct SluiceState* state = sluice_state(fd);
  struct SluiceError error = {0};
  uint64_t bytes = 0;
  *offset = 0;
  if (state->abi->size(state->file, &bytes, &error) == 0) {
    const int64_t position = sluice_view_position(&state->view, (int64_t)bytes);
    *offset = (position + fd->etype_size - 1) / fd->etype_size;
  }
}

void ADIOI_Get_byte_offset(ADIO_File fd, ADIO_Offset offset, ADIO_Offset* disp) {
  if (!sluice_owns(fd)) {
    romio_ADIOI_Get_byte_offset(fd, offset, disp);
    return;
  }
  *disp = sluice_view_offset(&sluice_state(fd)->view, offset * fd->etype_size);
}
