#include "adio/romio/external32.h"

#include <limits.h>
#include <stdlib.h>

#include "adio/romio/errors.h"
#include "mpioimpl.h"

// Room for all that `count` instances touch, wherever they lie from their start.
static char* make_room(MPI_Count count, MPI_Datatype type, MPI_Aint* first) {
  MPI_Aint lower, extent, true_lower, true_extent;
  if (MPI_Type_get_extent(type, &lower, &extent) != MPI_SUCCESS ||
      MPI_Type_get_true_extent(type, &true_lower, &true_extent) != MPI_SUCCESS) {
    return NULL;
  }
  const MPI_Aint last = true_lower + (MPI_Aint)(count - 1) * extent;
  *first = last < true_lower ? last : true_lower;
  return malloc((size_t)((last < true_lower ? true_lower : last) + true_extent - *first) + 1);
}

// A read's copy starts as what the program's buffer has: that stays beyond what is read.
static int make_copy(const struct SluiceAccess* access, struct SluiceConversion* made) {
  MPI_Aint first = 0;
  if (access->count > INT_MAX) {
    return MPI_ERR_COUNT;
  }
  made->room = make_room(access->count, access->type, &first);
  if (!made->room) {
    return MPI_ERR_NO_MEM;
  }
  made->copy = made->room - first;
  int failed =
      MPIU_write_external32_conversion_fn(access->buffer, access->type, (int)access->count, made->copy);
  if (failed == MPI_SUCCESS && access->direction == SLUICE_FROM_FILE) {
    failed = MPI_Type_dup(access->type, &made->type);
  }
  return failed;
}

int sluice_convert(ADIO_File fd, struct SluiceAccess* access, struct SluiceConversion* conversion,
                   struct SluiceError* error) {
  *conversion = (struct SluiceConversion){.direction = access->direction, .user_buffer = access->buffer};
  if (!fd->is_external32 || access->count == 0) {
    return 0;
  }
  if (make_copy(access, conversion) != MPI_SUCCESS) {
    free(conversion->room);
    conversion->room = NULL;
    return sluice_fail(error, SLUICE_UNSUPPORTED,
                       "the buffer could not be converted to external32; use the native representation");
  }
  conversion->count = (int)access->count;
  access->buffer = conversion->copy;
  return 0;
}

void sluice_convert_back(struct SluiceConversion* conversion, int64_t done) {
  if (!conversion->room) {
    return;
  }
  if (conversion->direction == SLUICE_FROM_FILE) {
    if (done > 0) {
      MPIU_read_external32_conversion_fn(conversion->user_buffer, conversion->type, conversion->count,
                                         conversion->copy);
    }
    MPI_Type_free(&conversion->type);
  }
  free(conversion->room);
  conversion->room = NULL;
}
