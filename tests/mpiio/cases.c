// cases NUMBER PREFIX

#include "tests/mpiio/cases.h"

int check_failures, check_rank, check_ranks;

MPI_File case_create(const char* path) {
  MPI_File file = MPI_FILE_NULL;
  if (check_rank == 0) {
    MPI_File_delete(path, MPI_INFO_NULL);  // left by a run that was ended
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  return file;
}

void case_remove(MPI_File* file, const char* path) {
  CHECK_OK(MPI_File_close(file));
  if (check_rank == 0) {
    CHECK_OK(MPI_File_delete(path, MPI_INFO_NULL));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  static void (*const kCases[])(const char*) = {
      NULL,
      case_01_short_collective_reads,
      case_02_short_strided_read,
      case_03_effective_hints_given_back,
      case_04_plain_names_with_colons,
      case_05_resized_lower_bound,
      case_06_error_on_one_rank,
      case_07_beyond_two_gib,
      case_08_aggregators_hint,
      case_09_neighbours_keep_their_bytes,
      case_10_views_that_overlap,
      case_11_leading_empty_blocks,
      case_12_shared_pointer,
      case_13_no_file_locks,
      case_14_pointers,
      case_15_short_write,
      case_16_unknown_hints,
      case_17_open_fails_for_all,
      case_18_read_only_users,
  };
  check_start(&argc, &argv);
  const int number = argc > 2 ? atoi(argv[1]) : 0;
  if (number < 1 || number >= (int)(sizeof kCases / sizeof kCases[0])) {
    fprintf(stderr, "usage: cases NUMBER PREFIX\n");
    MPI_Finalize();
    return 2;
  }
  kCases[number](argv[2]);
  return check_finish();
}
