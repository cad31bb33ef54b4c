// Collective accesses, in which a rank whose arguments are wrong must not leave the others waiting;
// nonblocking ones, of which ROMIO counts what was asked for in atomic mode, not what was there; and accesses
// with large counts.
//
// ROMIO serves independent blocking accesses of Sluice files through the driver's slots, and all accesses of
// other files.

#include <limits.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"
#include "adio/romio/romio_names.h"
#include "mpioimpl.h"

static int check_access(ADIO_File fd, const struct SluiceAccess* access, struct SluiceError* error) {
  if (access->count < 0) {
    return sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_COUNT), "the count %lld is negative",
                       (long long)access->count);
  }
  if (access->type == MPI_DATATYPE_NULL) {
    return sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_TYPE), "the datatype is MPI_DATATYPE_NULL");
  }
  if (access->pointer == ADIO_EXPLICIT_OFFSET && access->offset < 0) {
    return sluice_fail(error, SLUICE_INVALID_ARGUMENT, "the offset %lld is negative",
                       (long long)access->offset);
  }
  if (access->direction == SLUICE_TO_FILE && (fd->access_mode & ADIO_RDONLY)) {
    return sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_READ_ONLY), "%.200s is open for reading only",
                       fd->filename);
  }
  if (access->direction == SLUICE_FROM_FILE && (fd->access_mode & ADIO_WRONLY)) {
    return sluice_fail(error, SLUICE_ACCESS, "%.200s is open for writing only", fd->filename);
  }
  if (access->pointer != ADIO_SHARED && (fd->access_mode & ADIO_SEQUENTIAL)) {
    return sluice_fail(error, SLUICE_UNSUPPORTED,
                       "%.200s is open in MPI_MODE_SEQUENTIAL, which has accesses by the shared pointer only",
                       fd->filename);
  }
  MPI_Count size;
  MPI_Type_size_x(access->type, &size);
  if (size > 0 && access->count > LLONG_MAX / 4 / size) {
    return sluice_fail(error, SLUICE_TOO_LARGE, "%lld elements of %lld bytes are more than any file holds",
                       (long long)access->count, (long long)size);
  }
  if (access->count * size % fd->etype_size != 0) {
    return sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_IO),
                       "%lld bytes are no whole number of the view's etypes of %lld bytes",
                       (long long)(access->count * size), (long long)fd->etype_size);
  }
  return 0;
}

// Collective: gives every rank its slot behind those of the lower ranks. The last rank knows the sum and
// moves the pointer.
static int order_by_rank(ADIO_File fd, struct SluiceAccess* access, struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  struct {
    struct SluiceError error;
    int64_t base;
  } moved = {0};
  int rank, ranks;
  MPI_Comm_rank(fd->comm, &rank);
  MPI_Comm_size(fd->comm, &ranks);
  if (sluice_agree(fd->comm, error)) {
    return -1;
  }
  MPI_Count size;
  MPI_Type_size_x(access->type, &size);
  const long long mine = access->count * size / fd->etype_size;
  long long before = 0;
  MPI_Exscan(&mine, &before, 1, MPI_LONG_LONG, MPI_SUM, fd->comm);
  before = rank == 0 ? 0 : before;
  if (rank == ranks - 1) {
    state->abi->counter_add(state->file, before + mine, &moved.base, &moved.error);
  }
  MPI_Bcast(&moved, (int)sizeof moved, MPI_BYTE, ranks - 1, fd->comm);
  *error = moved.error;
  access->pointer = ADIO_EXPLICIT_OFFSET;
  access->offset = moved.base + before;
  return error->code == SLUICE_OK ? 0 : -1;
}

// The buffer as the file shall have it: itself, or in external32 a converted copy.
static int convert(ADIO_File fd, struct SluiceAccess* access, void** copy, struct SluiceError* error) {
  *copy = NULL;
  if (!fd->is_external32 || access->count == 0) {
    return 0;
  }
  MPI_Aint size = 0;
  int failed = MPI_SUCCESS;
  if (access->count > INT_MAX) {
    failed = MPI_ERR_COUNT;
  } else if (access->direction == SLUICE_TO_FILE) {
    failed = MPIU_external32_buffer_setup(access->buffer, (int)access->count, access->type, copy);
  } else {
    failed = MPIU_datatype_full_size(access->type, &size);
    *copy = failed == MPI_SUCCESS ? ADIOI_Malloc((size_t)(size * access->count) + 1) : NULL;
  }
  if (failed != MPI_SUCCESS) {
    return sluice_fail(error, SLUICE_UNSUPPORTED,
                       "the buffer could not be converted to external32; use the native representation");
  }
  access->buffer = *copy;
  return 0;
}

static void convert_back(const struct SluiceAccess* access, void* user_buffer, void* copy) {
  if (copy) {
    if (access->direction == SLUICE_FROM_FILE) {
      MPIU_read_external32_conversion_fn(user_buffer, access->type, (int)access->count, copy);
    }
    ADIOI_Free(copy);
  }
}

// Collective. The status is set also on failure: by what was transferred.
static int run(ADIO_File fd, struct SluiceAccess access, MPI_Status* status, struct SluiceError* error) {
  void* user_buffer = access.buffer;
  void* copy = NULL;
  int64_t done = 0;
  if (error->code == SLUICE_OK && check_access(fd, &access, error) == 0) {
    convert(fd, &access, &copy, error);
  }
  if (access.pointer != ADIO_SHARED || order_by_rank(fd, &access, error) == 0) {
    sluice_transfer_all(fd, &access, &done, error);
  }
  convert_back(&access, user_buffer, copy);
  MPIR_Status_set_bytes(status, MPI_BYTE, done);
  return sluice_error_code(access.where, error);
}

static int collective(MPI_File fh, struct SluiceAccess access, MPI_Status* status) {
  struct SluiceError error = {0};
  const int error_code = run(fh, access, status, &error);
  return error_code == MPI_SUCCESS ? MPI_SUCCESS : MPIO_Err_return_file(fh, error_code);
}

// The data has moved when this returns; what MPI_File_..._end answers is kept in the file, where ROMIO's end
// finds it.
static int begin(MPI_File fh, struct SluiceAccess access) {
  struct SluiceError error = {0};
  if (fh->split_coll_count) {
    sluice_fail(&error, SLUICE_MPI_CLASS(MPI_ERR_IO),
                "a split collective access of %.200s is not ended yet; only one may be open", fh->filename);
  }
  const int error_code = run(fh, access, &fh->split_status, &error);
  if (error_code != MPI_SUCCESS) {
    return MPIO_Err_return_file(fh, error_code);
  }
  fh->split_coll_count = 1;
  fh->split_datatype = access.type;
  return MPI_SUCCESS;
}

// Independent: gives the access its slot behind all earlier ones by the shared pointer.
static int take_slot(ADIO_File fd, struct SluiceAccess* access, struct SluiceError* error) {
  struct SluiceState* state = sluice_state(fd);
  MPI_Count size;
  MPI_Type_size_x(access->type, &size);
  int64_t base = 0;
  const int failed =
      state->abi->counter_add(state->file, access->count * size / fd->etype_size, &base, error);
  access->pointer = ADIO_EXPLICIT_OFFSET;
  access->offset = base;
  return failed;
}

// Without the other ranks. The data has moved when this returns.
static void move(MPI_File fh, struct SluiceAccess access, int64_t* done, struct SluiceError* error) {
  void* user_buffer = access.buffer;
  void* copy = NULL;
  if (check_access(fh, &access, error) == 0 && convert(fh, &access, &copy, error) == 0 &&
      (access.pointer != ADIO_SHARED || take_slot(fh, &access, error) == 0)) {
    sluice_transfer(fh, &access, done, error);
  }
  convert_back(&access, user_buffer, copy);
}

// Independent.
static int start_alone(MPI_File fh, struct SluiceAccess access, MPI_Request* request) {
  struct SluiceError error = {0};
  int64_t done = 0;
  *request = MPI_REQUEST_NULL;
  move(fh, access, &done, &error);
  int error_code = sluice_error_code(access.where, &error);
  if (error_code == MPI_SUCCESS) {
    error_code = sluice_completed_request(done, request);
  }
  return error_code == MPI_SUCCESS ? MPI_SUCCESS : MPIO_Err_return_file(fh, error_code);
}

// Collective. Does not wait for the other ranks: the request does.
static int start(MPI_File fh, struct SluiceAccess access, MPI_Request* request) {
  struct SluiceError error = {0};
  int64_t done = 0;
  move(fh, access, &done, &error);
  const int error_code = sluice_agreeing_request(fh, &access, done, &error, request);
  return error_code == MPI_SUCCESS ? MPI_SUCCESS : MPIO_Err_return_file(fh, error_code);
}

// ROMIO counts elements in an int; more of them are one element of a longer type. A nonblocking collective
// access of ROMIO's uses the type after its call, when nobody could free it.
static int lengthen(MPI_File fh, const char* where, int used_later, MPI_Count count, MPI_Datatype type,
                    MPI_Datatype* longer) {
  const MPI_Aint at_start = 0;
  if (!used_later && ADIOI_Type_create_hindexed_x(1, &count, &at_start, type, longer) == MPI_SUCCESS &&
      MPI_Type_commit(longer) == MPI_SUCCESS) {
    return MPI_SUCCESS;
  }
  return MPIO_Err_return_file(
      fh,
      sluice_error_code_of_class(
          where, MPI_ERR_COUNT,
          "a count this large cannot be given to this file system in this call; use several blocking ones"));
}

#define SLUICE_UNPACK(...) __VA_ARGS__

// name: as in MPI_File_name. params and args: those before buf. pointer and offset: of SluiceAccess.
// mutability: of buf. tail: the last parameter's type and name. on_sluice: the function above that serves
// Sluice's files.
#define SLUICE_ACCESS_OF(name, direction, pointer, offset, count) \
  ((struct SluiceAccess){"MPI_File_" #name, direction, (void*)buf, count, datatype, pointer, offset, 0})

#define SLUICE_DEFINE(name, direction, mutability, params, args, pointer, offset, tail_param, tail_arg,      \
                      on_sluice)                                                                             \
  SLUICE_MPI_ALIAS(File_##name)                                                                              \
  SLUICE_MPI_ALIAS(File_##name##_c)                                                                          \
  int romio_File_##name(MPI_File fh SLUICE_UNPACK params, mutability void* buf, int count,                   \
                        MPI_Datatype datatype SLUICE_UNPACK tail_param);                                     \
  int PMPI_File_##name(MPI_File fh SLUICE_UNPACK params, mutability void* buf, int count,                    \
                       MPI_Datatype datatype SLUICE_UNPACK tail_param) {                                     \
    if (sluice_owns(fh)) {                                                                                   \
      return on_sluice(fh,                                                                                   \
                       SLUICE_ACCESS_OF(name, direction, pointer, offset, count) SLUICE_UNPACK tail_arg);    \
    }                                                                                                        \
    return romio_File_##name(fh SLUICE_UNPACK args, buf, count, datatype SLUICE_UNPACK tail_arg);            \
  }                                                                                                          \
  int PMPI_File_##name##_c(MPI_File fh SLUICE_UNPACK params, mutability void* buf, MPI_Count count,          \
                           MPI_Datatype datatype SLUICE_UNPACK tail_param) {                                 \
    if (sluice_owns(fh)) {                                                                                   \
      return on_sluice(fh,                                                                                   \
                       SLUICE_ACCESS_OF(name, direction, pointer, offset, count) SLUICE_UNPACK tail_arg);    \
    }                                                                                                        \
    if (count <= INT_MAX) {                                                                                  \
      return romio_File_##name(fh SLUICE_UNPACK args, buf, (int)count, datatype SLUICE_UNPACK tail_arg);     \
    }                                                                                                        \
    MPI_Datatype longer;                                                                                     \
    int error_code = lengthen(fh, "MPI_File_" #name "_c",                                                    \
                              (void (*)(void))on_sluice == (void (*)(void))start, count, datatype, &longer); \
    if (error_code == MPI_SUCCESS) {                                                                         \
      error_code = romio_File_##name(fh SLUICE_UNPACK args, buf, 1, longer SLUICE_UNPACK tail_arg);          \
      MPI_Type_free(&longer);                                                                                \
    }                                                                                                        \
    return error_code;                                                                                       \
  }

#define SLUICE_AT (, MPI_Offset offset), (, offset), ADIO_EXPLICIT_OFFSET, offset
#define SLUICE_INDIVIDUAL (), (), ADIO_INDIVIDUAL, 0
#define SLUICE_ORDERED (), (), ADIO_SHARED, 0
#define SLUICE_STATUS (, MPI_Status * status), (, status), collective
#define SLUICE_BEGIN (), (), begin
#define SLUICE_REQUEST (, MPI_Request * request), (, request), start
#define SLUICE_ALONE (, MPI_Request * request), (, request), start_alone
// The arguments above are several each; one more expansion takes them apart.
#define SLUICE_EXPAND(...) SLUICE_DEFINE(__VA_ARGS__)

SLUICE_EXPAND(read_all, SLUICE_FROM_FILE, , SLUICE_INDIVIDUAL, SLUICE_STATUS)
SLUICE_EXPAND(read_at_all, SLUICE_FROM_FILE, , SLUICE_AT, SLUICE_STATUS)
SLUICE_EXPAND(read_ordered, SLUICE_FROM_FILE, , SLUICE_ORDERED, SLUICE_STATUS)
SLUICE_EXPAND(write_all, SLUICE_TO_FILE, const, SLUICE_INDIVIDUAL, SLUICE_STATUS)
SLUICE_EXPAND(write_at_all, SLUICE_TO_FILE, const, SLUICE_AT, SLUICE_STATUS)
SLUICE_EXPAND(write_ordered, SLUICE_TO_FILE, const, SLUICE_ORDERED, SLUICE_STATUS)

SLUICE_EXPAND(read_all_begin, SLUICE_FROM_FILE, , SLUICE_INDIVIDUAL, SLUICE_BEGIN)
SLUICE_EXPAND(read_at_all_begin, SLUICE_FROM_FILE, , SLUICE_AT, SLUICE_BEGIN)
SLUICE_EXPAND(read_ordered_begin, SLUICE_FROM_FILE, , SLUICE_ORDERED, SLUICE_BEGIN)
SLUICE_EXPAND(write_all_begin, SLUICE_TO_FILE, const, SLUICE_INDIVIDUAL, SLUICE_BEGIN)
SLUICE_EXPAND(write_at_all_begin, SLUICE_TO_FILE, const, SLUICE_AT, SLUICE_BEGIN)
SLUICE_EXPAND(write_ordered_begin, SLUICE_TO_FILE, const, SLUICE_ORDERED, SLUICE_BEGIN)

SLUICE_EXPAND(iread_all, SLUICE_FROM_FILE, , SLUICE_INDIVIDUAL, SLUICE_REQUEST)
SLUICE_EXPAND(iread_at_all, SLUICE_FROM_FILE, , SLUICE_AT, SLUICE_REQUEST)
SLUICE_EXPAND(iwrite_all, SLUICE_TO_FILE, const, SLUICE_INDIVIDUAL, SLUICE_REQUEST)
SLUICE_EXPAND(iwrite_at_all, SLUICE_TO_FILE, const, SLUICE_AT, SLUICE_REQUEST)

SLUICE_EXPAND(iread, SLUICE_FROM_FILE, , SLUICE_INDIVIDUAL, SLUICE_ALONE)
SLUICE_EXPAND(iread_at, SLUICE_FROM_FILE, , SLUICE_AT, SLUICE_ALONE)
SLUICE_EXPAND(iread_shared, SLUICE_FROM_FILE, , SLUICE_ORDERED, SLUICE_ALONE)
SLUICE_EXPAND(iwrite, SLUICE_TO_FILE, const, SLUICE_INDIVIDUAL, SLUICE_ALONE)
SLUICE_EXPAND(iwrite_at, SLUICE_TO_FILE, const, SLUICE_AT, SLUICE_ALONE)
SLUICE_EXPAND(iwrite_shared, SLUICE_TO_FILE, const, SLUICE_ORDERED, SLUICE_ALONE)

// Independent blocking accesses: only the large count is ours, the rest goes the usual way.
#define SLUICE_LARGE(name, mutability, params, args, pointer, offset, tail_param, tail_arg)             \
  SLUICE_MPI_ALIAS(File_##name##_c)                                                                     \
  int PMPI_File_##name##_c(MPI_File fh SLUICE_UNPACK params, mutability void* buf, MPI_Count count,     \
                           MPI_Datatype datatype SLUICE_UNPACK tail_param) {                            \
    if (count <= INT_MAX) {                                                                             \
      return PMPI_File_##name(fh SLUICE_UNPACK args, buf, (int)count, datatype SLUICE_UNPACK tail_arg); \
    }                                                                                                   \
    MPI_Datatype longer;                                                                                \
    int error_code = lengthen(fh, "MPI_File_" #name "_c", 0, count, datatype, &longer);                 \
    if (error_code == MPI_SUCCESS) {                                                                    \
      error_code = PMPI_File_##name(fh SLUICE_UNPACK args, buf, 1, longer SLUICE_UNPACK tail_arg);      \
      MPI_Type_free(&longer);                                                                           \
    }                                                                                                   \
    return error_code;                                                                                  \
  }
#define SLUICE_EXPAND_LARGE(...) SLUICE_LARGE(__VA_ARGS__)
#define SLUICE_BLOCKING (, MPI_Status * status), (, status)

SLUICE_EXPAND_LARGE(read, , SLUICE_INDIVIDUAL, SLUICE_BLOCKING)
SLUICE_EXPAND_LARGE(read_at, , SLUICE_AT, SLUICE_BLOCKING)
SLUICE_EXPAND_LARGE(read_shared, , SLUICE_ORDERED, SLUICE_BLOCKING)
SLUICE_EXPAND_LARGE(write, const, SLUICE_INDIVIDUAL, SLUICE_BLOCKING)
SLUICE_EXPAND_LARGE(write_at, const, SLUICE_AT, SLUICE_BLOCKING)
SLUICE_EXPAND_LARGE(write_shared, const, SLUICE_ORDERED, SLUICE_BLOCKING)
