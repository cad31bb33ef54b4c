// Accesses that go on while the program computes. While the service is stopped nothing of them can be over,
// so what returns then did not wait, and what has to wait is seen to.
//
//   nonblocking CASE PREFIX       CASE: held, ends, gone, failed, beside

#include "tests/mpiio/check.h"
#include "tests/mpiio/held.h"

int check_failures, check_rank, check_ranks;

enum { kPart = 200000, kParts = 6 };

static unsigned char stamp(int rank, int part, int at) {
  return (unsigned char)(1 + (rank * 67 + part * 29 + at) % 251);
}

static void fill(unsigned char* bytes, int rank, int part) {
  for (int at = 0; at < kPart; at++) {
    bytes[at] = stamp(rank, part, at);
  }
}

static void expect_part(const char* what, const unsigned char* bytes, int rank, int part) {
  int wrong = 0;
  for (int at = 0; at < kPart; at++) {
    wrong += bytes[at] != stamp(rank, part, at);
  }
  CHECK(wrong == 0, "%s, part %d of rank %d: %d bytes are wrong", what, part, rank, wrong);
}

static MPI_Offset place(int rank, int part) {
  return ((MPI_Offset)part * check_ranks + rank) * kPart;
}

// A program that asks again and again goes on, and hears that nothing is over.
static void expect_under_way(const char* what, int count, MPI_Request* requests) {
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < count; i++) {
      int over = 0;
      CHECK_OK(MPI_Test(&requests[i], &over, MPI_STATUS_IGNORE));
      CHECK(!over, "%s %d is over while the service is stopped", what, i);
    }
  }
}

static unsigned char memory[4 * kParts][kPart];

// Reads of two files under way at once, ended in another order on each rank.
static void held_reads(MPI_File first, MPI_File second) {
  MPI_Request requests[2 * kParts];
  MPI_Status status;
  memset(memory, 0, sizeof memory);
  fill(memory[2 * kParts], check_rank, kParts);
  held_signal(SIGSTOP);
  for (int part = 0; part < kParts; part++) {
    CHECK_OK(MPI_File_iread_at_all(first, place(check_rank, part), memory[part], kPart, MPI_BYTE,
                                   &requests[part]));
    CHECK_OK(MPI_File_iread_at(second, place(check_rank, part), memory[kParts + part], kPart, MPI_BYTE,
                               &requests[kParts + part]));
  }
  expect_under_way("read", 2 * kParts, requests);
  held_signal(SIGCONT);
  // Rank 0 waits before a collective call, the others after it.
  for (int part = 0; part < kParts && check_rank == 0; part++) {
    CHECK_OK(MPI_Wait(&requests[part], MPI_STATUS_IGNORE));
  }
  CHECK_OK(MPI_File_write_at_all(first, place(check_rank, kParts), memory[2 * kParts], kPart, MPI_BYTE,
                                 MPI_STATUS_IGNORE));
  for (int i = 0; i < 2 * kParts; i++) {
    const int which = (i + check_rank * 5) % (2 * kParts);
    const int waited = requests[which] == MPI_REQUEST_NULL;
    CHECK_OK(MPI_Wait(&requests[which], &status));
    CHECK_EQ(check_count(&status, MPI_BYTE), waited ? 0 : kPart);
    expect_part("read", memory[which], check_rank, which % kParts);
  }
}

// Those of the remote lane; in the other a write returns when its bytes are in the hot tier.
static void held_writes(MPI_File first, MPI_File second) {
  MPI_Request requests[2 * kParts];
  for (int i = 0; i < 2 * kParts; i++) {
    fill(memory[i], check_rank, kParts + i);
  }
  CHECK_OK(MPI_File_set_atomicity(second, 1));
  CHECK_OK(MPI_File_seek(second, place(check_rank, 0), MPI_SEEK_SET));
  held_signal(SIGSTOP);
  for (int i = 0; i < kParts; i++) {
    CHECK_OK(MPI_File_iwrite_at_all(first, place(check_rank, i), memory[i], kPart, MPI_BYTE, &requests[i]));
  }
  for (int i = kParts; i < 2 * kParts; i++) {
    MPI_Offset position;
    CHECK_OK(MPI_File_iwrite(second, memory[i], kPart, MPI_BYTE, &requests[i]));
    CHECK_OK(MPI_File_get_position(second, &position));
    CHECK_EQ(position, place(check_rank, 0) + (MPI_Offset)(i - kParts + 1) * kPart);
  }
  if (strcmp(getenv("SLUICE_LANE"), "remote") == 0) {
    expect_under_way("write", 2 * kParts, requests);
  }
  held_signal(SIGCONT);
  for (int over = 0; over < 2 * kParts; over++) {
    MPI_Status status;
    int which = MPI_UNDEFINED;
    CHECK_OK(MPI_Waitany(2 * kParts, requests, &which, &status));
    CHECK(which != MPI_UNDEFINED, "a request is missing");
    CHECK_EQ(check_count(&status, MPI_BYTE), kPart);
  }
  for (int part = 0; part < kParts; part++) {
    CHECK_OK(
        MPI_File_read_at(first, place(check_rank, part), memory[part], kPart, MPI_BYTE, MPI_STATUS_IGNORE));
    expect_part("collective write", memory[part], check_rank, kParts + part);
  }
  CHECK_OK(MPI_File_set_atomicity(second, 0));
}

// The last rank's read goes beyond the end of the file.
static void held_split(MPI_File file) {
  const int last = check_rank == check_ranks - 1;
  const MPI_Offset end = place(0, kParts + 1);
  const MPI_Offset offset = last ? end - kPart / 2 : place(check_rank, 1);
  MPI_Status status;
  memset(memory, 7, sizeof memory);
  held_signal(SIGSTOP);
  CHECK_OK(MPI_File_read_at_all_begin(file, offset, memory[0], kPart, MPI_BYTE));
  held_signal(SIGCONT);
  CHECK_OK(MPI_File_read_at_all_end(file, memory[0], &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), last ? kPart / 2 : kPart);
  if (last) {
    CHECK_EQ(memory[0][kPart / 2 - 1], stamp(check_rank, kParts, kPart - 1));
    CHECK_EQ(memory[0][kPart / 2], 7);
  } else {
    expect_part("split read", memory[0], check_rank, 1);
  }
  fill(memory[0], check_rank, 40);
  CHECK_OK(MPI_File_seek(file, place(check_rank, 0), MPI_SEEK_SET));
  held_signal(SIGSTOP);
  CHECK_OK(MPI_File_write_all_begin(file, memory[0], kPart, MPI_BYTE));
  held_signal(SIGCONT);
  CHECK_OK(MPI_File_write_all_end(file, memory[0], &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), kPart);
  CHECK_OK(MPI_File_read_at(file, place(check_rank, 0), memory[1], kPart, MPI_BYTE, MPI_STATUS_IGNORE));
  expect_part("split write", memory[1], check_rank, 40);
}

// The copy that external32 needs lives as long as the access, and the type as well.
static void held_external32(const char* path) {
  enum { kCount = 20000 };
  static int values[kCount], back[kCount];
  MPI_File file = check_create(path);
  MPI_Request request;
  MPI_Datatype pair;
  for (int i = 0; i < kCount; i++) {
    values[i] = check_rank * kCount + i;
  }
  const MPI_Offset offset = (MPI_Offset)check_rank * kCount;
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL));
  held_signal(SIGSTOP);
  CHECK_OK(MPI_File_iwrite_at(file, offset, values, kCount, MPI_INT, &request));
  memset(values, 0, sizeof values);  // the program may not, but the copy was made
  held_signal(SIGCONT);
  CHECK_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  held_signal(SIGSTOP);
  CHECK_OK(MPI_File_iread_at(file, offset, back, kCount / 2, pair, &request));
  MPI_Type_free(&pair);
  held_signal(SIGCONT);
  CHECK_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  int wrong = 0;
  for (int i = 0; i < kCount; i++) {
    wrong += back[i] != check_rank * kCount + i;
  }
  CHECK_EQ(wrong, 0);
  CHECK_OK(MPI_File_close(&file));
}

static void held(const char* prefix) {
  MPI_File files[2] = {check_create(check_path(prefix, "first")), check_create(check_path(prefix, "second"))};
  for (int i = 0; i < 2; i++) {
    for (int part = 0; part < kParts; part++) {
      fill(memory[part], check_rank, part);
      CHECK_OK(MPI_File_write_at(files[i], place(check_rank, part), memory[part], kPart, MPI_BYTE,
                                 MPI_STATUS_IGNORE));
    }
    CHECK_OK(MPI_File_sync(files[i]));
  }
  held_reads(files[0], files[1]);
  held_split(files[0]);
  held_writes(files[0], files[1]);
  held_external32(check_path(prefix, "external32"));
  // The argument's error is the call's, and leaves no request.
  MPI_Request request;
  CHECK_OK(MPI_File_close(&files[0]));
  CHECK_OK(
      MPI_File_open(MPI_COMM_WORLD, check_path(prefix, "first"), MPI_MODE_RDONLY, MPI_INFO_NULL, &files[0]));
  CHECK_EQ(check_class(MPI_File_iwrite_at(files[0], 0, memory[0], 1, MPI_BYTE, &request)), MPI_ERR_READ_ONLY);
  CHECK(request == MPI_REQUEST_NULL, "a request was made");
  CHECK_OK(MPI_File_close(&files[0]));
  CHECK_OK(MPI_File_close(&files[1]));
}

// Starts writes that cannot end before the program has come to its next call. Collective.
static void start_held(MPI_File file, int first, MPI_Request* requests, pthread_t* thread) {
  held_signal(SIGSTOP);
  for (int i = 0; i < kParts; i++) {
    fill(memory[i], check_rank, first + i);
    CHECK_OK(MPI_File_iwrite_at(file, place(check_rank, i), memory[i], kPart, MPI_BYTE, &requests[i]));
  }
  held_go_on_when_asleep(thread);
}

static void expect_file(const char* what, const char* path, int first) {
  MPI_File other;
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &other));
  for (int part = 0; part < kParts; part++) {
    CHECK_OK(
        MPI_File_read_at(other, place(check_rank, part), memory[kParts], kPart, MPI_BYTE, MPI_STATUS_IGNORE));
    expect_part(what, memory[kParts], check_rank, first + part);
  }
  CHECK_OK(MPI_File_close(&other));
}

// What a program should have waited for itself: nothing is lost, and nothing hangs.
static void ends(const char* prefix) {
  const char* path = check_path(prefix, "ends");
  MPI_File file = check_create(path);
  MPI_Request requests[kParts], again[kParts];
  MPI_Status statuses[kParts];
  pthread_t thread;
  MPI_Offset size;

  start_held(file, 10, requests, &thread);
  CHECK_OK(MPI_File_sync(file));
  expect_file("synced", path, 10);
  CHECK_OK(MPI_Waitall(kParts, requests, statuses));
  held_join(thread);

  start_held(file, 20, requests, &thread);
  CHECK_OK(MPI_File_set_size(file, place(0, kParts)));  // and then it is that size
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, place(0, kParts));
  CHECK_OK(MPI_Waitall(kParts, requests, statuses));
  held_join(thread);

  start_held(file, 30, requests, &thread);
  CHECK_OK(MPI_File_set_view(file, place(0, kParts), MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
  for (int i = 0; i < kParts; i++) {
    CHECK_OK(MPI_File_iread_at_all(file, 0, memory[2 * kParts + i], 1, MPI_BYTE, &again[i]));
    CHECK_OK(MPI_Request_free(&requests[i]));
  }
  CHECK_OK(MPI_File_close(&file));
  CHECK_OK(MPI_Waitall(kParts, again, statuses));
  held_join(thread);
  expect_file("closed", path, 30);
}

// The service does not come back: every access ends, with an error.
static void gone(const char* prefix) {
  MPI_File file = check_create(check_path(prefix, "gone"));
  MPI_Request requests[kParts];
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  fill(memory[0], check_rank, 0);
  CHECK_OK(MPI_File_write_at_all(file, place(check_rank, 0), memory[0], kPart, MPI_BYTE, MPI_STATUS_IGNORE));
  held_signal(SIGKILL);
  CHECK_OK(MPI_File_iread_at_all(file, place(check_rank, 0), memory[1], kPart, MPI_BYTE, &requests[0]));
  CHECK_OK(MPI_File_iread_at(file, place(check_rank, 0), memory[2], kPart, MPI_BYTE, &requests[1]));
  expect_under_way("read", 2, requests);
  for (int i = 0; i < 2; i++) {
    MPI_Status status;
    const int code = MPI_Wait(&requests[i], &status);
    CHECK(code != MPI_SUCCESS, "a read without a service succeeded");
    CHECK_EQ(check_count(&status, MPI_BYTE), 0);
  }
  CHECK(MPI_File_close(&file) != MPI_SUCCESS, "a file was committed without a service");
}

static int handled;

static void count_error(MPI_File* file, int* code, ...) {
  (void)file, (void)code;
  handled++;
}

// With the substitute of the client library, reads of rank 1 failing. Where errors of requests end a program,
// this one is told by its handler, and by the close.
static void failed(const char* prefix) {
  for (int fatal = 0; fatal < 2; fatal++) {
    MPI_File file = check_create(check_path(prefix, "failed"));
    MPI_Errhandler handler;
    MPI_Request request;
    MPI_Status status;
    const int mine = check_rank == 1;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, fatal ? MPI_ERRORS_ARE_FATAL : MPI_ERRORS_RETURN);
    MPI_File_create_errhandler(count_error, &handler);
    MPI_File_set_errhandler(file, handler);
    handled = 0;
    CHECK_OK(MPI_File_write_at_all(file, 0, memory[0], kPart, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK_OK(MPI_File_iread_at(file, 0, memory[0], kPart, MPI_BYTE, &request));
    int code = MPI_Wait(&request, &status);
    CHECK((code != MPI_SUCCESS) == (mine && !fatal), "MPI_Wait answers %d", code);
    CHECK_EQ(check_count(&status, MPI_BYTE), mine ? kPart / 2 : kPart);
    CHECK_EQ(handled, mine);
    CHECK_OK(MPI_File_read_at_all_begin(file, 0, memory[0], kPart, MPI_BYTE));
    code = MPI_File_read_at_all_end(file, memory[0], &status);
    CHECK(code != MPI_SUCCESS, "the end of a split access that failed on one rank answers %d", code);
    CHECK_EQ(handled, mine + 1);
    code = MPI_File_close(&file);
    CHECK((code != MPI_SUCCESS) == (mine && fatal), "MPI_File_close answers %d", code);
    MPI_Errhandler_free(&handler);
  }
}

// With the substitute of the client library, whose reads wait for a write: a blocking write to one file goes
// on beside the read of another that was started before.
static void beside(const char* prefix) {
  MPI_File read = check_create(check_path(prefix, "read")), written = check_create(check_path(prefix, "written"));
  MPI_Request request;
  CHECK_OK(MPI_File_set_size(read, place(0, 1)));
  CHECK_OK(MPI_File_iread_at_all(read, place(check_rank, 0), memory[0], kPart, MPI_BYTE, &request));
  CHECK_OK(
      MPI_File_write_at_all(written, place(check_rank, 0), memory[1], kPart, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_close(&read));
  CHECK_OK(MPI_File_close(&written));
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const char* name = argc > 2 ? argv[1] : "";
  if (strcmp(name, "held") == 0) {
    held(argv[2]);
  } else if (strcmp(name, "ends") == 0) {
    ends(argv[2]);
  } else if (strcmp(name, "gone") == 0) {
    gone(argv[2]);
  } else if (strcmp(name, "failed") == 0) {
    failed(argv[2]);
  } else if (strcmp(name, "beside") == 0) {
    beside(argv[2]);
  } else {
    fprintf(stderr, "usage: nonblocking held|ends|gone|failed|beside PREFIX\n");
    check_failures++;
  }
  return check_finish();
}
