// Access modes, sizes, and a profiling tool in between: file_modes PREFIX

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

// A tool's MPI_File_write_at, in front of the library's, which it reaches by the profiling name.
static int profiled;
int MPI_File_write_at(MPI_File fh, MPI_Offset offset, const void* buf, int count, MPI_Datatype datatype,
                      MPI_Status* status) {
  profiled++;
  return PMPI_File_write_at(fh, offset, buf, count, datatype, status);
}

static MPI_File open_as(const char* path, int mode) {
  MPI_File file = MPI_FILE_NULL;
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file));
  return file;
}

static void delete_on_close(const char* path) {
  MPI_File file = open_as(path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
  CHECK_OK(MPI_File_write_at_all(file, 0, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_close(&file));
  CHECK_EQ(check_class(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file)),
           MPI_ERR_NO_SUCH_FILE);
}

static void sizes(MPI_File file) {
  MPI_Offset size;
  char byte = 1;
  CHECK_OK(MPI_File_set_size(file, 1000));
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, 1000);
  CHECK_OK(MPI_File_preallocate(file, 5000));
  CHECK_OK(MPI_File_preallocate(file, 3000));
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, 5000);
  CHECK_OK(MPI_File_read_at_all(file, 4999, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_EQ(byte, 0);
  CHECK_OK(MPI_File_set_size(file, 10));
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, 10);
  CHECK_EQ(check_class(MPI_File_preallocate(file, -1)), MPI_ERR_ARG);
  CHECK_EQ(check_class(MPI_File_set_size(file, -1)), MPI_ERR_ARG);
  // What one rank has wrong all are told, and nobody waits.
  CHECK_EQ(check_class(MPI_File_set_size(file, check_rank == 0 ? -1 : 10)), MPI_ERR_NOT_SAME);
  CHECK_EQ(check_class(MPI_File_preallocate(file, check_rank == 0 ? -1 : 10)), MPI_ERR_NOT_SAME);
  CHECK_EQ(check_class(MPI_File_set_atomicity(file, check_rank == 0)), MPI_ERR_NOT_SAME);
}

static void sequential(const char* path) {
  MPI_File file = open_as(path, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
  MPI_Offset size;
  const int number = check_rank;
  CHECK_EQ(check_class(MPI_File_write_at_all(file, 0, &number, 1, MPI_INT, MPI_STATUS_IGNORE)),
           MPI_ERR_UNSUPPORTED_OPERATION);
  CHECK_EQ(check_class(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL)), MPI_ERR_ARG);
  CHECK_OK(MPI_File_write_ordered(file, &number, 1, MPI_INT, MPI_STATUS_IGNORE));
  // From here on: the view starts behind what was written.
  CHECK_OK(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_write_ordered(file, &number, 1, MPI_INT, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_close(&file));
  file = open_as(path, MPI_MODE_RDONLY);
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, 8 * check_ranks);
  for (int half = 0; half < 2; half++) {
    int got = -1;
    CHECK_OK(MPI_File_read_at_all(file, 4 * (half * check_ranks + check_rank), &got, 1, MPI_INT,
                                  MPI_STATUS_IGNORE));
    CHECK_EQ(got, check_rank);
  }
  CHECK_OK(MPI_File_close(&file));
}

// Every rank alone with its own file, and all ranks alone with the same one.
static void communicator_of_one(const char* prefix) {
  char name[64];
  MPI_File file;
  MPI_Offset size;
  snprintf(name, sizeof name, "own.%d", check_rank);
  const char* path = check_path(prefix, name);
  CHECK_OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  CHECK_OK(MPI_File_write_all(file, name, check_rank + 1, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_close(&file));
  CHECK_OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, check_rank + 1);
  CHECK_OK(MPI_File_close(&file));
  CHECK_OK(MPI_File_delete(path, MPI_INFO_NULL));
}

// A collective access whose ranks start it one after the other: the request must not make a rank wait at its
// start.
static void nonblocking_in_turn(MPI_File file) {
  MPI_Request request;
  MPI_Status status;
  int token = 0, got = -1;
  const int number = 7 * check_rank;
  if (check_rank > 0) {
    MPI_Recv(&token, 1, MPI_INT, check_rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  CHECK_OK(MPI_File_iwrite_at_all(file, 4 * check_rank, &number, 1, MPI_INT, &request));
  if (check_rank < check_ranks - 1) {
    MPI_Send(&token, 1, MPI_INT, check_rank + 1, 0, MPI_COMM_WORLD);
  }
  CHECK_OK(MPI_Wait(&request, &status));
  CHECK_EQ(check_count(&status, MPI_INT), 1);
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(
      MPI_File_read_at_all(file, 4 * ((check_rank + 1) % check_ranks), &got, 1, MPI_INT, MPI_STATUS_IGNORE));
  CHECK_EQ(got, 7 * ((check_rank + 1) % check_ranks));
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const char* path = check_path(argv[1], "modes");
  delete_on_close(path);
  sequential(check_path(argv[1], "sequential"));
  communicator_of_one(argv[1]);
  MPI_File file = open_as(path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_UNIQUE_OPEN);
  int amode;
  CHECK_OK(MPI_File_get_amode(file, &amode));
  CHECK_EQ(amode, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_UNIQUE_OPEN);
  sizes(file);
  nonblocking_in_turn(file);
  CHECK_OK(MPI_File_write_at(file, 0, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_EQ(profiled, 1);
  CHECK_OK(MPI_File_close(&file));
  return check_finish();
}
