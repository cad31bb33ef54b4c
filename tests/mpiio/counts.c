// What the client library is told of collective accesses, and what it is asked for. Over its substitute,
// which writes both down.
//
//   counts PREFIX

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

enum { kPieces = 1000, kChunk = 1 << 20 };

struct Counts {
  int direct, two_phase;
  unsigned long long sent, read;
};

static MPI_File open_file(const char* path) {
  MPI_File file = MPI_FILE_NULL;
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "cb_nodes", "1");  // rank 0
  MPI_Info_set(info, "romio_cb_read", "enable");
  MPI_Info_set(info, "sluice_chunk_size", "1048576");
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
  MPI_Info_free(&info);
  return file;
}

// Collective: closes the file and answers what this rank's driver did with it.
static struct Counts close_file(MPI_File file, const char* name) {
  char path[4096];
  struct Counts counts = {0};
  CHECK_OK(MPI_File_close(&file));
  snprintf(path, sizeof path, "%s/%s.counts.%d", getenv("SLUICE_DOUBLE_DIR"), name, check_rank);
  FILE* written = fopen(path, "r");
  CHECK(written && fscanf(written, "%d %d %llu %llu", &counts.direct, &counts.two_phase, &counts.sent,
                          &counts.read) == 4,
        "no counts in %s", path);
  if (written) {
    fclose(written);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return counts;
}

static void view_of_pieces(MPI_File file) {
  MPI_Datatype view;
  MPI_Type_vector(kPieces, 4, 4 * check_ranks, MPI_BYTE, &view);
  MPI_Type_commit(&view);
  CHECK_OK(MPI_File_set_view(file, 4 * check_rank, MPI_BYTE, view, "native", MPI_INFO_NULL));
  MPI_Type_free(&view);
}

// A write's bytes go to the aggregator, a read's come from it.
static void sent(const char* path) {
  static char memory[4 * kPieces];
  MPI_File file = open_file(path);
  view_of_pieces(file);
  CHECK_OK(MPI_File_write_at_all(file, 0, memory, sizeof memory, MPI_BYTE, MPI_STATUS_IGNORE));
  struct Counts counts = close_file(file, "sent");
  CHECK_EQ(counts.direct, 0);
  CHECK_EQ(counts.two_phase, 1);
  CHECK_EQ(counts.sent, check_rank == 0 ? 0 : sizeof memory);
  file = open_file(path);
  view_of_pieces(file);
  CHECK_OK(MPI_File_read_at_all(file, 0, memory, sizeof memory, MPI_BYTE, MPI_STATUS_IGNORE));
  counts = close_file(file, "sent");
  CHECK_EQ(counts.two_phase, 1);
  CHECK_EQ(counts.sent, check_rank == 0 ? (check_ranks - 1) * sizeof memory : 0);
}

static void expect_direct(MPI_File file) {
  MPI_Info info;
  char value[MPI_MAX_INFO_VAL + 1] = "";
  int found;
  CHECK_OK(MPI_File_get_info(file, &info));
  MPI_Info_get(info, "sluice_collective", MPI_MAX_INFO_VAL, value, &found);
  CHECK(found && strcmp(value, "direct") == 0, "the access is told as \"%s\"", value);
  MPI_Info_get(info, "sluice_collective_reason", MPI_MAX_INFO_VAL, value, &found);
  CHECK(found && value[0], "there is no reason for it");
  MPI_Info_free(&info);
}

// Nonblocking and split accesses are told of too.
static void started(const char* path) {
  static char memory[4 * kPieces];
  MPI_Request request;
  MPI_File file = open_file(path);
  view_of_pieces(file);
  CHECK_OK(MPI_File_iwrite_at_all(file, 0, memory, sizeof memory, MPI_BYTE, &request));
  CHECK_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  expect_direct(file);
  CHECK_EQ(close_file(file, "started").direct, 1);
  file = open_file(path);
  CHECK_OK(MPI_File_write_at_all_begin(file, 0, memory, sizeof memory, MPI_BYTE));
  CHECK_OK(MPI_File_write_at_all_end(file, memory, MPI_STATUS_IGNORE));
  expect_direct(file);
  CHECK_EQ(close_file(file, "started").direct, 1);
}

// Of pieces that lie far apart in a chunk an aggregator reads the pieces; of near ones the whole range.
static void read_gaps(const char* path) {
  static const int kPlaces[6] = {0, 5000, 70000, 200000, 200500, kChunk - 4};
  static const int kRead = 70004 + 504 + 4;  // with gaps of 4996, 64996 and 496 bytes
  int lengths[6] = {4, 4, 4, 4, 4, 4};
  int places[6];
  char got[24], expected[24];
  MPI_Datatype view;
  MPI_File file = open_file(path);
  static char memory[kChunk];
  for (int i = 0; i < kChunk; i++) {
    memory[i] = (char)(i * 7 + i / 1000);
  }
  for (int i = 0; i < 6; i++) {
    places[i] = kPlaces[i];
    memcpy(expected + 4 * i, memory + kPlaces[i], 4);
  }
  CHECK_OK(MPI_File_write_at_all(file, 0, memory, check_rank == 0 ? kChunk : 0, MPI_BYTE, MPI_STATUS_IGNORE));
  MPI_Type_indexed(6, lengths, places, MPI_BYTE, &view);
  MPI_Type_commit(&view);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, view, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_read_at_all(file, 0, got, sizeof got, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK(memcmp(got, expected, sizeof got) == 0, "the pieces are wrong");
  CHECK_EQ(close_file(file, "gaps").read, check_rank == 0 ? kRead : 0);
  MPI_Type_free(&view);
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  sent(check_path(argv[1], "sent"));
  started(check_path(argv[1], "started"));
  read_gaps(check_path(argv[1], "gaps"));
  return check_finish();
}
