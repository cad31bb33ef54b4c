// A rank that has no memory for its part takes part all the same: the others are told, and nobody waits. What
// was written before is there.
//
//   no_memory PREFIX
//
// The program's calloc and MPIX_Grequest_start stand before the libraries' and fail on rank 1 when told to.

#define _GNU_SOURCE

#include <dlfcn.h>

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

enum { kLarge = 600 };  // bytes, of what the driver asks for a file and for an access

static int passes = -1;  // large ones of the library until one fails; -1: none does
static int requests_fail;

extern void* __libc_calloc(size_t count, size_t bytes);

void* calloc(size_t count, size_t bytes) {
  if (passes >= 0 && count * bytes >= kLarge) {
    Dl_info info;
    if (dladdr(__builtin_return_address(0), &info) && strstr(info.dli_fname, "libsluice_romio") &&
        passes-- == 0) {
      passes = -1;
      return NULL;
    }
  }
  return __libc_calloc(count, bytes);
}

int MPIX_Grequest_start(MPI_Grequest_query_function* query, MPI_Grequest_free_function* release,
                        MPI_Grequest_cancel_function* cancel, MPIX_Grequest_poll_function* poll,
                        MPIX_Grequest_wait_function* wait, void* state, MPI_Request* request) {
  if (requests_fail > 0) {
    requests_fail--;
    return MPI_ERR_NO_MEM;
  }
  return PMPIX_Grequest_start(query, release, cancel, poll, wait, state, request);
}

static const char kBytes[8] = "1234567";

// Two accesses in a row for which rank 1 has no memory, and one for which it has.
static void nonblocking(MPI_File file, int requests) {
  enum { kAccesses = 3 };
  MPI_Request request[kAccesses];
  for (int i = 0; i < kAccesses; i++) {
    const int fails = check_rank == 1 && i < kAccesses - 1;
    passes = fails && !requests ? 0 : -1;
    requests_fail = fails && requests;
    const int code = MPI_File_iwrite_at_all(file, 100 * i + 8 * check_rank, kBytes, 8, MPI_BYTE, &request[i]);
    CHECK_EQ(check_class(code), fails ? MPI_ERR_NO_MEM : MPI_SUCCESS);
    CHECK((request[i] == MPI_REQUEST_NULL) == fails, "access %d has the wrong request", i);
  }
  for (int i = 0; i < kAccesses; i++) {
    const int told = check_rank != 1 && i < kAccesses - 1;
    CHECK_EQ(check_class(MPI_Wait(&request[i], MPI_STATUS_IGNORE)), told ? MPI_ERR_NO_MEM : MPI_SUCCESS);
  }
}

static void split(MPI_File file) {
  MPI_Offset position;
  passes = check_rank == 1 ? 0 : -1;
  CHECK_EQ(check_class(MPI_File_write_all_begin(file, kBytes, 8, MPI_BYTE)), MPI_ERR_NO_MEM);
  CHECK_OK(MPI_File_get_position(file, &position));
  CHECK_EQ(position, 0);
}

static void alone(MPI_File file) {
  MPI_Request request;
  passes = 0;
  CHECK_EQ(check_class(MPI_File_iwrite_at(file, 0, kBytes, 8, MPI_BYTE, &request)), MPI_ERR_NO_MEM);
  requests_fail = 1;
  CHECK_EQ(check_class(MPI_File_iwrite_at(file, 0, kBytes, 8, MPI_BYTE, &request)), MPI_ERR_NO_MEM);
  CHECK_EQ(requests_fail, 0);
}

// Whatever part of the open has no memory.
static void opening(const char* path) {
  int failed = 0;
  MPI_File file;
  for (int code = !MPI_SUCCESS; code != MPI_SUCCESS && failed < 20;) {
    passes = check_rank == 1 ? failed : -1;
    code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    passes = -1;
    int same = code != MPI_SUCCESS;
    MPI_Bcast(&same, 1, MPI_INT, 0, MPI_COMM_WORLD);
    CHECK_EQ(code != MPI_SUCCESS, same);
    failed += same;
    if (same) {
      CHECK(strstr(check_text(code), "out of memory"), "the reason is not told: %s", check_text(code));
    }
  }
  CHECK(failed >= 2 && failed < 20, "%d opens failed", failed);
  CHECK_OK(MPI_File_close(&file));
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const char* path = check_path(argv[1], "no_memory");
  MPI_File file = check_create(path);
  MPI_Offset size;
  CHECK_OK(MPI_File_write_at_all(file, 10000 + 8 * check_rank, kBytes, 8, MPI_BYTE, MPI_STATUS_IGNORE));
  nonblocking(file, 0);
  nonblocking(file, 1);
  split(file);
  alone(file);
  CHECK_OK(MPI_File_sync(file));
  CHECK_OK(MPI_File_close(&file));
  file = check_create(path);
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, 10000 + 8 * check_ranks);
  CHECK_OK(MPI_File_close(&file));
  opening(check_path(argv[1], "opening"));
  return check_finish();
}
