// Every collective call meets ranks that wait for an access first, of the same file or of another: rank 0
// makes the call and then waits, the others wait and then make the call. The service is stopped until rank
// 0's thread sleeps in the call, so that the access cannot be over before.
//
//   waits PREFIX

#include <pthread.h>

#include "tests/mpiio/check.h"
#include "tests/mpiio/held.h"

int check_failures, check_rank, check_ranks;

enum { kBytes = 100000 };

static char memory[2][kBytes];

static void set_size(MPI_File file) {
  CHECK_OK(MPI_File_set_size(file, 4 * kBytes));
}

static void preallocate(MPI_File file) {
  CHECK_OK(MPI_File_preallocate(file, kBytes));
}

static void set_atomicity(MPI_File file) {
  CHECK_OK(MPI_File_set_atomicity(file, 0));
}

static void set_info(MPI_File file) {
  CHECK_OK(MPI_File_set_info(file, MPI_INFO_NULL));
}

static void set_view(MPI_File file) {
  CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
}

static void seek_shared(MPI_File file) {
  CHECK_OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
}

static void sync_file(MPI_File file) {
  CHECK_OK(MPI_File_sync(file));
}

static void write_all(MPI_File file) {
  CHECK_OK(
      MPI_File_write_at_all(file, 0, memory[1], check_rank == 0 ? kBytes : 0, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void read_all(MPI_File file) {
  CHECK_OK(MPI_File_read_all(file, memory[1], kBytes, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void write_ordered(MPI_File file) {
  CHECK_OK(MPI_File_write_ordered(file, memory[1], 10, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void read_ordered(MPI_File file) {
  CHECK_OK(MPI_File_read_ordered(file, memory[1], 10, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void split_read(MPI_File file) {
  CHECK_OK(MPI_File_read_at_all_begin(file, 0, memory[1], kBytes, MPI_BYTE));
  CHECK_OK(MPI_File_read_at_all_end(file, memory[1], MPI_STATUS_IGNORE));
}

static void split_ordered(MPI_File file) {
  CHECK_OK(MPI_File_write_ordered_begin(file, memory[1], 10, MPI_BYTE));
  CHECK_OK(MPI_File_write_ordered_end(file, memory[1], MPI_STATUS_IGNORE));
}

static const struct {
  const char* name;
  void (*run)(MPI_File file);
} kCalls[] = {
    {"set_size", set_size},
    {"preallocate", preallocate},
    {"set_atomicity", set_atomicity},
    {"set_info", set_info},
    {"set_view", set_view},
    {"seek_shared", seek_shared},
    {"sync", sync_file},
    {"write_all", write_all},
    {"read_all", read_all},
    {"write_ordered", write_ordered},
    {"read_ordered", read_ordered},
    {"read_all_begin", split_read},
    {"write_ordered_begin", split_ordered},
};

static const char* other_path;

static MPI_File open_file(const char* path) {
  MPI_File file = MPI_FILE_NULL;
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  return file;
}

static void open_another(MPI_File file) {
  (void)file;
  MPI_File another = open_file(other_path);
  CHECK_OK(MPI_File_close(&another));
}

static void close_other(MPI_File file) {
  CHECK_OK(MPI_File_close(&file));
}

static void meet(const char* name, void (*run)(MPI_File), MPI_File file, MPI_File busy) {
  MPI_Request request;
  pthread_t thread;
  if (check_rank == 0) {
    printf("%s\n", name);
    fflush(stdout);
  }
  held_signal(SIGSTOP);
  CHECK_OK(MPI_File_iread_at_all(busy, check_rank * kBytes, memory[0], kBytes, MPI_BYTE, &request));
  held_go_on_when_asleep(&thread);
  if (check_rank == 0) {
    run(file);
    CHECK_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  } else {
    CHECK_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    run(file);
  }
  held_join(thread);
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  MPI_File busy = open_file(check_path(argv[argc - 1], "busy"));
  MPI_File other = open_file(check_path(argv[argc - 1], "other"));
  other_path = check_path(argv[argc - 1], "another");
  CHECK_OK(MPI_File_write_at_all(busy, check_rank * kBytes, memory[0], kBytes, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_sync(busy));
  for (size_t i = 0; i < sizeof kCalls / sizeof *kCalls; i++) {
    meet(kCalls[i].name, kCalls[i].run, busy, busy);
    meet(kCalls[i].name, kCalls[i].run, other, busy);
  }
  MPI_Datatype pieces;  // small ones: two-phase I/O
  MPI_Type_vector(kBytes / 4, 4, 4 * check_ranks, MPI_BYTE, &pieces);
  MPI_Type_commit(&pieces);
  for (int i = 0; i < 2; i++) {
    MPI_File file = i ? busy : other;
    CHECK_OK(MPI_File_set_view(file, 4 * check_rank, MPI_BYTE, pieces, "native", MPI_INFO_NULL));
    meet("read_all in two phases", read_all, file, busy);
    meet("write_all in two phases", write_all, file, busy);
  }
  meet("open", open_another, other, busy);
  meet("close", close_other, other, busy);
  CHECK_OK(MPI_File_close(&busy));
  MPI_Type_free(&pieces);
  return check_finish();
}
