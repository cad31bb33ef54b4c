// Opens and closes files, one after the other:
//
//   open_cost PREFIX COUNT WRITERS
//
// The last WRITERS ranks write a piece into each; the others do nothing with it. One rank's writes are not
// collective.

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const int files = argc == 4 ? atoi(argv[2]) : 0;
  const int writes = argc == 4 && check_rank >= check_ranks - atoi(argv[3]);
  for (int i = 0; i < files; i++) {
    char path[600];
    MPI_File file;
    MPI_Status status;
    snprintf(path, sizeof path, "%s/file%d", argv[1], i);
    CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    if (writes) {
      CHECK_OK(MPI_File_write_at(file, 4 * check_rank, "word", 4, MPI_BYTE, &status));
    }
    CHECK_OK(MPI_File_close(&file));
  }
  CHECK(files > 0, "usage: open_cost PREFIX COUNT WRITERS");
  return check_finish();
}
