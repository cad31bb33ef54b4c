// Two jobs write the same bytes of one file at once, each in transactions of its own: what is there at the end,
// and whenever a third looks, is of one transaction of one job.
//
//   two_jobs PREFIX MODE, on 5 ranks: two for each job, and one that looks

#include <stdlib.h>

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

enum { kRanks = 2, kPiece = 3000, kPieces = 200, kRounds = 12 };
enum { kBytes = kRanks * kPieces * kPiece };

static MPI_File open_shared(MPI_Comm comm, const char* path, int access, const char* mode) {
  MPI_File file = MPI_FILE_NULL;
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "sluice_lock_mode", mode);
  CHECK_OK(MPI_File_open(comm, path, access, info, &file));
  MPI_Info_free(&info);
  return file;
}

static unsigned char stamp(int job, int round) {
  return (unsigned char)(1 + job * 100 + round);
}

// Rank r of a job has every other piece; now all at once, now one by one.
static void write_round(MPI_File file, int rank, int job, int round, unsigned char* piece) {
  memset(piece, stamp(job, round), (size_t)kPieces * kPiece);
  if (round % 3 == 0) {
    MPI_Datatype view;
    MPI_Type_vector(kPieces, kPiece, kRanks * kPiece, MPI_BYTE, &view);
    MPI_Type_commit(&view);
    CHECK_OK(MPI_File_set_view(file, (MPI_Offset)rank * kPiece, MPI_BYTE, view, "native", MPI_INFO_NULL));
    CHECK_OK(MPI_File_write_all(file, piece, kPieces * kPiece, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    MPI_Type_free(&view);
  } else {
    for (int i = 0; i < kPieces; i++) {
      const MPI_Offset at = ((MPI_Offset)i * kRanks + rank) * kPiece;
      CHECK_OK(MPI_File_write_at(file, at, piece, kPiece, MPI_BYTE, MPI_STATUS_IGNORE));
    }
  }
  CHECK_OK(MPI_File_sync(file));
}

static int is_of_one_transaction(const unsigned char* bytes) {
  for (int i = 1; i < kBytes; i++) {
    if (bytes[i] != bytes[0]) {
      return 0;
    }
  }
  return 1;
}

// Looks until both jobs are done; answers how often it saw a whole file.
static int look(const char* path, unsigned char* all) {
  int seen = 0;
  for (int done = 0; !done;) {
    MPI_File file = open_shared(MPI_COMM_SELF, path, MPI_MODE_RDONLY, "auto");
    MPI_Status status;
    CHECK_OK(MPI_File_read_at(file, 0, all, kBytes, MPI_BYTE, &status));
    const int count = check_count(&status, MPI_BYTE);
    CHECK(count == 0 || count == kBytes, "%d bytes are there", count);
    CHECK(count == 0 || is_of_one_transaction(all), "transactions are mixed after %d looks", seen);
    seen += count != 0;
    CHECK_OK(MPI_File_close(&file));
    MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &done, MPI_STATUS_IGNORE);
  }
  return seen;
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const char* path = check_path(argv[1], "two_jobs");
  const char* mode = argc > 2 ? argv[2] : "auto";
  const int job = check_rank / kRanks;  // 2: the one that looks
  unsigned char* bytes = malloc(kBytes);
  MPI_Comm comm, both;
  MPI_Comm_split(MPI_COMM_WORLD, job, 0, &comm);
  MPI_Comm_split(MPI_COMM_WORLD, job < 2, 0, &both);
  if (check_rank == 0) {
    MPI_File file = open_shared(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, mode);
    CHECK_OK(MPI_File_close(&file));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (job == 2) {
    CHECK(look(path, bytes) > 0, "nothing was seen");
  } else {
    int rank;
    MPI_Comm_rank(comm, &rank);
    MPI_File file = open_shared(comm, path, MPI_MODE_RDWR, mode);
    for (int round = 0; round < kRounds; round++) {
      write_round(file, rank, job, round, bytes);
    }
    CHECK_OK(MPI_File_close(&file));
    MPI_Barrier(both);
    if (check_rank == 0) {
      MPI_Send(NULL, 0, MPI_BYTE, 2 * kRanks, 0, MPI_COMM_WORLD);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File file = open_shared(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, "auto");
  MPI_Status status;
  CHECK_OK(MPI_File_read_at(file, 0, bytes, kBytes, MPI_BYTE, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), kBytes);
  CHECK(is_of_one_transaction(bytes), "transactions are mixed");
  CHECK(bytes[0] == stamp(0, kRounds - 1) || bytes[0] == stamp(1, kRounds - 1), "%d is of no last round", bytes[0]);
  CHECK_OK(MPI_File_close(&file));
  MPI_Comm_free(&both);
  MPI_Comm_free(&comm);
  free(bytes);
  return check_finish();
}
