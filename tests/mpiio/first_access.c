// The service goes between the open and the first access of the only rank that has one: the access fails on
// all ranks, with one class, and so does the close.
//
//   first_access PREFIX

#include "tests/mpiio/check.h"
#include "tests/mpiio/held.h"

int check_failures, check_rank, check_ranks;

static void expect_same(const char* what, int code, int expected) {
  const int mine = check_class(code);
  int first = mine;
  MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
  CHECK(mine == first && mine == expected, "%s: class %d, rank 0 has %d: %s", what, mine, first,
        check_text(code));
}

int main(int argc, char** argv) {
  MPI_File file;
  MPI_Status status;
  check_start(&argc, &argv);
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  held_signal(SIGKILL);
  const int bytes = check_rank == check_ranks - 1 ? 4 : 0;
  const int code = MPI_File_write_at_all(file, 0, "word", bytes, MPI_BYTE, &status);
  expect_same("write", code, MPI_ERR_IO);
  expect_same("close", MPI_File_close(&file), MPI_ERR_IO);
  return check_finish();
}
