// The chunk of a new file follows the first collective write's view, and all ranks are told the same.
//
//   shape PREFIX

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

static void expect_chunk(MPI_File file, const char* expected) {
  static const char* const kKeys[] = {"striping_unit", "sluice_chunk_size"};
  MPI_Info info;
  CHECK_OK(MPI_File_get_info(file, &info));
  for (int i = 0; i < 2; i++) {
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int found = 0;
    MPI_Info_get(info, kKeys[i], MPI_MAX_INFO_VAL, value, &found);
    CHECK(found && strcmp(value, expected) == 0, "%s is \"%s\", not %s", kKeys[i], value, expected);
  }
  MPI_Info_free(&info);
}

// Each rank's block of every row; rank 0's view has none of the large blocks.
static void write_blocks(MPI_File file, int block, int split) {
  MPI_Datatype view;
  MPI_Status status;
  const int bytes = check_rank == 0 ? 0 : 2 * block;
  char* memory = calloc(1, (size_t)bytes + 1);
  MPI_Type_create_hvector(2, check_rank == 0 ? 100 : block, (MPI_Aint)block * check_ranks, MPI_BYTE, &view);
  MPI_Type_commit(&view);
  CHECK_OK(MPI_File_set_view(file, (MPI_Offset)block * check_rank, MPI_BYTE, view, "native", MPI_INFO_NULL));
  if (split) {
    CHECK_OK(MPI_File_write_at_all_begin(file, 0, memory, bytes, MPI_BYTE));
    CHECK_OK(MPI_File_write_at_all_end(file, memory, &status));
  } else {
    CHECK_OK(MPI_File_write_at_all(file, 0, memory, bytes, MPI_BYTE, &status));
  }
  CHECK_EQ(check_count(&status, MPI_BYTE), bytes);
  MPI_Type_free(&view);
  free(memory);
}

static void new_file(const char* path, const char* hint, int block, int split, const char* expected) {
  MPI_File file;
  MPI_Info info;
  MPI_Info_create(&info);
  if (hint) {
    MPI_Info_set(info, "striping_unit", hint);
  }
  if (split) {
    MPI_Info_set(info, "romio_cb_write", "disable");  // in two phases it is done when it begins
  }
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
  write_blocks(file, block, split);
  expect_chunk(file, expected);
  write_blocks(file, 3 * block, split);  // a second view changes nothing
  expect_chunk(file, expected);
  CHECK_OK(MPI_File_close(&file));
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
  expect_chunk(file, expected);
  CHECK_OK(MPI_File_close(&file));
  MPI_Info_free(&info);
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  new_file(check_path(argv[1], "large"), NULL, 3 << 20, 0, "4194304");
  new_file(check_path(argv[1], "split"), NULL, 3 << 20, 1, "4194304");
  new_file(check_path(argv[1], "small"), NULL, 300 << 10, 0, "1048576");
  new_file(check_path(argv[1], "asked"), "65536", 3 << 20, 0, "65536");
  return check_finish();
}
