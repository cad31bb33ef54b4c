// A file needs one communicator of the program's MPI library, of which there are some thousand, also when it
// is accessed without waiting; that there is none left is an error of the open on all ranks.
//
//   communicators PREFIX

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

enum { kFiles = 10, kMostCommunicators = 1 << 16, kBytes = 1000 };

// All that there are. Answers how many those were.
static int take_all(MPI_Comm* taken) {
  int count = 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  while (count < kMostCommunicators && MPI_Comm_dup(MPI_COMM_WORLD, &taken[count]) == MPI_SUCCESS) {
    count++;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  return count;
}

static int open_file(const char* prefix, int number, MPI_File* file) {
  char name[32];
  snprintf(name, sizeof name, "file%d", number);
  return MPI_File_open(MPI_COMM_WORLD, check_path(prefix, name), MPI_MODE_CREATE | MPI_MODE_RDWR,
                       MPI_INFO_NULL, file);
}

int main(int argc, char** argv) {
  static MPI_Comm taken[kMostCommunicators];
  static char bytes[kFiles][kBytes];
  MPI_File files[kFiles + 1];
  MPI_Request requests[kFiles];
  check_start(&argc, &argv);
  const char* prefix = argv[argc - 1];
  int left = take_all(taken);
  CHECK(left > kFiles && left < kMostCommunicators, "%d communicators were to be had", left);
  for (int i = 0; i < kFiles; i++) {
    MPI_Comm_free(&taken[--left]);
  }
  for (int i = 0; i < kFiles; i++) {
    CHECK_OK(open_file(prefix, i, &files[i]));
  }
  // In another order on each rank: they are different files.
  for (int i = 0; i < kFiles; i++) {
    const int which = (i + check_rank * 3) % kFiles;
    CHECK_OK(MPI_File_iwrite_at_all(files[which], check_rank * kBytes, bytes[which], kBytes, MPI_BYTE,
                                    &requests[which]));
  }
  for (int i = 0; i < kFiles; i++) {
    CHECK_OK(MPI_Wait(&requests[(i + check_rank * 7) % kFiles], MPI_STATUS_IGNORE));
  }
  const int code = open_file(prefix, kFiles, &files[kFiles]);
  CHECK_EQ(check_class(code), MPI_ERR_OTHER);
  CHECK(strstr(check_text(code), "no communicator left"), "the reason is not told: %s", check_text(code));
  CHECK_OK(MPI_File_close(&files[0]));
  CHECK_OK(open_file(prefix, kFiles, &files[kFiles]));
  for (int i = 1; i <= kFiles; i++) {
    MPI_Offset size = -1;
    CHECK_OK(MPI_File_get_size(files[i], &size));
    CHECK_EQ(size, i < kFiles ? kBytes * check_ranks : 0);
    CHECK_OK(MPI_File_close(&files[i]));
  }
  for (int i = 0; i < left; i++) {
    MPI_Comm_free(&taken[i]);
  }
  return check_finish();
}
