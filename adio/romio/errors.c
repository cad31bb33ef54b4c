#define _GNU_SOURCE

#include "adio/romio/errors.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "adio/romio/ad_sluice.h"

// Exported by libmpich and used by its own ROMIO. MPI_Add_error_code is no substitute: for a code of a
// standard class libmpich then answers either the class or the text, not both. NULL in a libmpich without it:
// codes are bare classes then.
typedef int (*CreateCode)(int last_code, int fatal, const char* function, int line, int error_class,
                          const char* generic, const char* specific, ...);

static CreateCode create_code(void) {
  void* symbol = dlsym(RTLD_DEFAULT, "MPIR_Err_create_code");
  CreateCode function = NULL;
  memcpy(&function, &symbol, sizeof function);
  return function;
}

int sluice_fail(struct SluiceError* error, int32_t code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  error->code = code;
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  return -1;
}

static int mpi_class(int32_t code) {
  if (code >= SLUICE_MPI_CLASS(0)) {
    return code - SLUICE_MPI_CLASS(0);
  }
  switch (code) {
    case SLUICE_INVALID_ARGUMENT:
      return MPI_ERR_ARG;
    case SLUICE_NOT_FOUND:
      return MPI_ERR_NO_SUCH_FILE;
    case SLUICE_EXISTS:
      return MPI_ERR_FILE_EXISTS;
    case SLUICE_ACCESS:
      return MPI_ERR_ACCESS;
    case SLUICE_NO_SPACE:
      return MPI_ERR_NO_SPACE;
    case SLUICE_CONFLICT:
    case SLUICE_BUSY:
      return MPI_ERR_FILE_IN_USE;
    case SLUICE_TOO_LARGE:
      return MPI_ERR_ARG;
    case SLUICE_UNSUPPORTED:
      return MPI_ERR_UNSUPPORTED_OPERATION;
    case SLUICE_HINT_NAME:
      return MPI_ERR_INFO_NOKEY;
    case SLUICE_HINT_VALUE:
      return MPI_ERR_INFO_VALUE;
    default:
      return MPI_ERR_IO;
  }
}

int sluice_error_code_of_class(const char* where, int error_class, const char* sentence) {
  const CreateCode create = create_code();
  if (!create) {
    return error_class;
  }
  return create(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, where, 0, error_class, "**io", "%s", sentence);
}

int sluice_error_code(const char* where, const struct SluiceError* error) {
  if (error->code == SLUICE_OK) {
    return MPI_SUCCESS;
  }
  return sluice_error_code_of_class(where, mpi_class(error->code), error->message);
}

int sluice_agree_on_cause(MPI_Comm comm, int hearsay, struct SluiceError* error) {
  int rank, ranks, lowest;
  sluice_start_agreements();
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  // Those who know the cause stand before all others.
  const int mine = error->code == SLUICE_OK ? INT_MAX : hearsay ? ranks + rank : rank;
  MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, comm);
  if (lowest == INT_MAX) {
    return 0;
  }
  MPI_Bcast(error, (int)sizeof *error, MPI_BYTE, lowest % ranks, comm);
  return -1;
}

int sluice_agree(MPI_Comm comm, struct SluiceError* error) {
  return sluice_agree_on_cause(comm, 0, error);
}

// What follows takes the place of ROMIO's error glue, which prints and aborts.

int MPIO_Err_create_code(int last_code, int fatal, const char function[], int line, int error_class,
                         const char generic[], const char specific[], ...) {
  (void)fatal;  // which errors are fatal is for the program's error handler to say
  const CreateCode create = create_code();
  if (!create) {
    return error_class;
  }
  if (!specific) {
    return create(last_code, MPIR_ERR_RECOVERABLE, function, line, error_class, generic, NULL);
  }
  // ROMIO's texts are keys into libmpich's catalogue with at most a string and a number to fill in.
  va_list args;
  va_start(args, specific);
  const char* text = "";
  int number = 0;
  const char* string_at = strstr(specific, "%s");
  const char* number_at = strstr(specific, "%d");
  if (string_at) {
    text = va_arg(args, const char*);
  }
  if (number_at) {
    number = va_arg(args, int);
  }
  va_end(args);
  if (string_at) {
    return create(last_code, MPIR_ERR_RECOVERABLE, function, line, error_class, generic, specific, text,
                  number);
  }
  return create(last_code, MPIR_ERR_RECOVERABLE, function, line, error_class, generic, specific, number);
}

int MPIO_Err_return_file(MPI_File file, int error_code) {
  MPI_File_call_errhandler(file, error_code);
  return error_code;
}

int MPIO_Err_return_comm(MPI_Comm comm, int error_code) {
  MPI_Comm_call_errhandler(comm, error_code);
  return error_code;
}
