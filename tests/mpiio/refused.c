// Collective accesses of which one rank's part fails: what is told to whom, what of the file stays, and where
// the pointers stand.
//
//   refused arguments PREFIX
//   refused no_space PREFIX     the substitute of the client library fails rank 1's writes

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

static const char kBytes[8] = "1234567";

static void expect_position(MPI_File file, MPI_Offset expected) {
  MPI_Offset position = -1;
  CHECK_OK(MPI_File_get_position(file, &position));
  CHECK_EQ(position, expected);
}

// An argument that was refused by the call costs nothing that was written before, whichever call it was.
static void arguments(const char* path) {
  MPI_File file = check_create(path);
  MPI_Request request;
  MPI_Offset size;
  const int wrong = check_rank == 1;
  CHECK_OK(MPI_File_write_at_all(file, 8 * check_rank, kBytes, 8, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_EQ(check_class(MPI_File_write_at_all(file, wrong ? -1 : 100, kBytes, 8, MPI_BYTE, MPI_STATUS_IGNORE)),
           MPI_ERR_ARG);
  int code = MPI_File_iwrite_at_all(file, wrong ? -1 : 200, kBytes, 8, MPI_BYTE, &request);
  CHECK_EQ(check_class(code), wrong ? MPI_ERR_ARG : MPI_SUCCESS);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK_OK(MPI_File_sync(file));
  code = MPI_File_iwrite_at_all(file, wrong ? -1 : 300, kBytes, 8, MPI_BYTE, &request);
  CHECK_EQ(check_class(code), wrong ? MPI_ERR_ARG : MPI_SUCCESS);
  CHECK_OK(MPI_Request_free(&request));
  // A split access that does not begin moves no pointer.
  CHECK_OK(MPI_File_seek(file, 4, MPI_SEEK_SET));
  CHECK_EQ(check_class(MPI_File_write_all_begin(file, kBytes, wrong ? -1 : 8, MPI_BYTE)), MPI_ERR_COUNT);
  expect_position(file, 4);
  CHECK_OK(MPI_File_close(&file));
  file = check_create(path);
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, 308);
  CHECK_OK(MPI_File_close(&file));
}

// The write's own reason is what all ranks are told by the sync, and by the close.
static void no_space(const char* path) {
  for (int closes = 0; closes < 2; closes++) {
    MPI_File file = check_create(path);
    MPI_Request request;
    CHECK_OK(MPI_File_iwrite_at_all(file, 8 * check_rank, kBytes, 8, MPI_BYTE, &request));
    const int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQ(check_class(code), MPI_ERR_NO_SPACE);
    const int later = closes ? MPI_File_close(&file) : MPI_File_sync(file);
    CHECK_EQ(check_class(later), MPI_ERR_NO_SPACE);
    CHECK(strstr(check_text(later), "write fails as the test asked"), "the reason is lost: %s",
          check_text(later));
    if (!closes) {
      CHECK_OK(MPI_File_close(&file));  // it was told
    }
  }
  // A failed exchange wrote nobody's bytes for certain: no pointer moves.
  MPI_File file = check_create(path);
  MPI_Datatype pieces;
  MPI_Type_vector(2000, 4, 4 * check_ranks, MPI_BYTE, &pieces);
  MPI_Type_commit(&pieces);
  char* memory = calloc(2000, 4);
  CHECK_OK(MPI_File_set_view(file, 4 * check_rank, MPI_BYTE, pieces, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_seek(file, 12, MPI_SEEK_SET));
  // Only rank 1 aggregates what lies in its chunk.
  CHECK_EQ(check_class(MPI_File_write_all(file, memory, 8000, MPI_BYTE, MPI_STATUS_IGNORE)), MPI_SUCCESS);
  expect_position(file, 8012);
  CHECK_OK(MPI_File_seek(file, 70000 / check_ranks, MPI_SEEK_SET));
  CHECK_EQ(check_class(MPI_File_write_all(file, memory, 8000, MPI_BYTE, MPI_STATUS_IGNORE)),
           MPI_ERR_NO_SPACE);
  expect_position(file, 70000 / check_ranks);
  CHECK_OK(MPI_File_close(&file));
  MPI_Type_free(&pieces);
  free(memory);
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const char* path = check_path(argv[2], "refused");
  if (strcmp(argv[1], "arguments") == 0) {
    arguments(path);
  } else {
    no_space(path);
  }
  return check_finish();
}
