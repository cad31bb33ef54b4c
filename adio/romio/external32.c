#include "adio/romio/external32.h"

#include <limits.h>

#include "adio/romio/errors.h"
#include "mpioimpl.h"

static int make_copy(const struct SluiceAccess* access, struct SluiceConversion* made) {
  MPI_Aint size = 0;
  if (access->count > INT_MAX) {
    return MPI_ERR_COUNT;
  }
  if (access->direction == SLUICE_TO_FILE) {
    return MPIU_external32_buffer_setup(access->buffer, (int)access->count, access->type, &made->copy);
  }
  int failed = MPIU_datatype_full_size(access->type, &size);
  if (failed == MPI_SUCCESS) {
    failed = MPI_Type_dup(access->type, &made->type);
  }
  if (failed == MPI_SUCCESS) {
    made->copy = ADIOI_Malloc((size_t)(size * access->count) + 1);
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
    conversion->copy = NULL;
    return sluice_fail(error, SLUICE_UNSUPPORTED,
                       "the buffer could not be converted to external32; use the native representation");
  }
  conversion->count = (int)access->count;
  access->buffer = conversion->copy;
  return 0;
}

void sluice_convert_back(struct SluiceConversion* conversion, int64_t done) {
  if (!conversion->copy) {
    return;
  }
  if (conversion->direction == SLUICE_FROM_FILE) {
    if (done > 0) {
      MPIU_read_external32_conversion_fn(conversion->user_buffer, conversion->type, conversion->count,
                                         conversion->copy);
    }
    MPI_Type_free(&conversion->type);
  }
  ADIOI_Free(conversion->copy);
  conversion->copy = NULL;
}
