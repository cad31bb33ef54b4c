// Collective accesses, in which a rank whose arguments are wrong must not leave the others waiting;
// nonblocking ones, of which ROMIO counts what was asked for in atomic mode, not what was there; and accesses
// with large counts.
//
// ROMIO serves independent blocking accesses of Sluice files through the driver's slots, and all accesses of
// other files.

#include <limits.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"
#include "adio/romio/external32.h"
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

// Checks the access and finds its place and buffer. Collective when `together`: then the others take part
// also when this rank's arguments are wrong.
static void make_ready(MPI_File fh, int together, struct SluiceAccess* access,
                       struct SluiceConversion* conversion, struct SluiceError* error) {
  if (error->code == SLUICE_OK && check_access(fh, access, error) == 0) {
    sluice_convert(fh, access, conversion, error);
  }
  if (access->pointer == ADIO_SHARED && together) {
    order_by_rank(fh, access, error);
  } else if (access->pointer == ADIO_SHARED && error->code == SLUICE_OK) {
    take_slot(fh, access, error);
  }
}

// Collective. The status is set also on failure: by what was transferred.
static int move_together(MPI_File fh, const struct SluiceAccess* access, struct SluiceConversion* conversion,
                         MPI_Status* status, struct SluiceError* error) {
  int64_t done = 0;
  sluice_transfer_all(fh, access, &done, error);
  sluice_convert_back(conversion, done);
  MPIR_Status_set_bytes(status, MPI_BYTE, done);
  return error->code == SLUICE_OK ? 0 : -1;
}

static int answer(MPI_File fh, const char* where, const struct SluiceError* error) {
  return error->code == SLUICE_OK ? MPI_SUCCESS : MPIO_Err_return_file(fh, sluice_error_code(where, error));
}

static int collective(MPI_File fh, struct SluiceAccess access, MPI_Status* status) {
  struct SluiceError error = {0};
  struct SluiceConversion conversion = {0};
  make_ready(fh, 1, &access, &conversion, &error);
  move_together(fh, &access, &conversion, status, &error);
  return answer(fh, access.where, &error);
}

// Goes on until the end. With two-phase I/O, in which the ranks need each other, the data has moved when this
// returns; the status is kept in the file, where ROMIO's end finds it.
static int begin(MPI_File fh, struct SluiceAccess access) {
  struct SluiceError error = {0};
  struct SluiceConversion conversion = {0};
  if (fh->split_coll_count) {
    sluice_fail(&error, SLUICE_MPI_CLASS(MPI_ERR_IO),
                "a split collective access of %.200s is not ended yet; only one may be open", fh->filename);
  }
  make_ready(fh, 1, &access, &conversion, &error);
  if (sluice_may_exchange(fh, access.direction)) {
    move_together(fh, &access, &conversion, &fh->split_status, &error);
  } else {
    sluice_split_begin(fh, &access, &conversion, &error);
  }
  if (error.code == SLUICE_OK) {
    fh->split_coll_count = 1;
    fh->split_datatype = access.type;
  }
  return answer(fh, access.where, &error);
}

static int end(MPI_File fh, MPI_Status* status) {
  fh->split_coll_count = 0;
  const int error_code = sluice_split_end(fh, status);
  return error_code == MPI_SUCCESS ? MPI_SUCCESS : MPIO_Err_return_file(fh, error_code);
}

static int start_access(MPI_File fh, int together, struct SluiceAccess access, MPI_Request* request) {
  struct SluiceError error = {0};
  struct SluiceConversion conversion = {0};
  make_ready(fh, 0, &access, &conversion, &error);
  const int error_code = sluice_start(fh, &access, &conversion, together, &error, request);
  return error_code == MPI_SUCCESS ? MPI_SUCCESS : MPIO_Err_return_file(fh, error_code);
}

// Independent.
static int start_alone(MPI_File fh, struct SluiceAccess access, MPI_Request* request) {
  return start_access(fh, 0, access, request);
}

// Collective.
static int start(MPI_File fh, struct SluiceAccess access, MPI_Request* request) {
  return start_access(fh, 1, access, request);
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

// The end of a split access, of either kind: what two-phase I/O has moved is for ROMIO to end.
#define SLUICE_END(name, mutability)                                                        \
  SLUICE_MPI_ALIAS(File_##name)                                                             \
  int romio_File_##name(MPI_File fh, mutability void* buf, MPI_Status* status);             \
  int PMPI_File_##name(MPI_File fh, mutability void* buf, MPI_Status* status) {             \
    return sluice_owns(fh) && sluice_state(fh)->split ? end(fh, status)                     \
                                                      : romio_File_##name(fh, buf, status); \
  }

SLUICE_END(read_all_end, )
SLUICE_END(read_at_all_end, )
SLUICE_END(read_ordered_end, )
SLUICE_END(write_all_end, const)
SLUICE_END(write_at_all_end, const)
SLUICE_END(write_ordered_end, const)

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
