// Error handlers of files: none, the program's own, and the one that ends the program.
//
//   errhandlers PREFIX [fatal]

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

static int calls;
static int last_class;
static MPI_File last_file;

static void own_handler(MPI_File* file, int* code, ...) {
  calls++;
  last_file = *file;
  MPI_Error_class(*code, &last_class);
}

static void expect_call(int class, MPI_File file) {
  CHECK_EQ(calls, 1);
  CHECK_EQ(last_class, class);
  CHECK(last_file == file, "the handler got another file");
  calls = 0;
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const char* path = check_path(argv[1], "errhandlers");
  const char* missing = check_path(argv[1], "missing");
  const int ways = MPI_MODE_CREATE | MPI_MODE_RDWR;
  MPI_File file, other;
  MPI_Errhandler own, got;
  char byte = 0;

  CHECK_EQ(check_class(MPI_File_open(MPI_COMM_WORLD, missing, MPI_MODE_RDONLY, MPI_INFO_NULL, &file)),
           MPI_ERR_NO_SUCH_FILE);
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, ways, MPI_INFO_NULL, &file));
  CHECK_OK(MPI_File_get_errhandler(file, &got));
  CHECK(got == MPI_ERRORS_RETURN, "files start with another handler");
  CHECK_EQ(check_class(MPI_File_write_at(file, -1, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE)), MPI_ERR_ARG);

  CHECK_OK(MPI_File_create_errhandler(own_handler, &own));
  CHECK_OK(MPI_File_set_errhandler(file, own));
  CHECK_EQ(check_class(MPI_File_write_at(file, -1, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE)), MPI_ERR_ARG);
  expect_call(MPI_ERR_ARG, file);
  CHECK_EQ(check_class(MPI_File_write_at_all(file, -1, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE)), MPI_ERR_ARG);
  expect_call(MPI_ERR_ARG, file);
  CHECK_OK(MPI_File_close(&file));
  CHECK(file == MPI_FILE_NULL, "a closed file keeps its handle");

  // The handler of MPI_FILE_NULL serves opens, and every file opened after.
  CHECK_OK(MPI_File_set_errhandler(MPI_FILE_NULL, own));
  CHECK_EQ(check_class(MPI_File_open(MPI_COMM_WORLD, missing, MPI_MODE_RDONLY, MPI_INFO_NULL, &file)),
           MPI_ERR_NO_SUCH_FILE);
  expect_call(MPI_ERR_NO_SUCH_FILE, MPI_FILE_NULL);
  CHECK_EQ(check_class(MPI_File_delete(missing, MPI_INFO_NULL)), MPI_ERR_NO_SUCH_FILE);
  expect_call(MPI_ERR_NO_SUCH_FILE, MPI_FILE_NULL);
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, ways, MPI_INFO_NULL, &other));
  CHECK_EQ(check_class(MPI_File_seek(other, -1, MPI_SEEK_SET)), MPI_ERR_ARG);
  expect_call(MPI_ERR_ARG, other);
  CHECK_OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
  CHECK_OK(MPI_Errhandler_free(&own));
  CHECK_EQ(check_class(MPI_File_seek(other, -1, MPI_SEEK_SET)), MPI_ERR_ARG);
  expect_call(MPI_ERR_ARG, other);

  if (argc > 2) {
    CHECK_OK(MPI_File_set_errhandler(other, MPI_ERRORS_ARE_FATAL));
    MPI_File_seek(other, -1, MPI_SEEK_SET);
    printf("an error that should be fatal was not\n");
  }
  CHECK_OK(MPI_File_close(&other));
  return check_finish();
}
