// Collective accesses of small pieces, which ranks exchange before they write and after they read.
//
//   two_phase PREFIX [SEED [HINT=VALUE ...]]

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

static unsigned long long random_state;

static int pick(int low, int high) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return low + (int)(random_state % (unsigned long long)(high - low + 1));
}

enum { kBytes = 3 << 20 };

static unsigned char model[kBytes];

static unsigned char stamp(int rank, int round, int at) {
  return (unsigned char)(1 + (rank * 31 + round * 7 + at) % 255);
}

// The same choices on all ranks: piece and count by rank; rank r's pieces stand behind those of the lower
// ranks in a row.
struct Shape {
  int piece, lead, row, rows, base;
};

static struct Shape choose(int rank) {
  struct Shape shape = {0};
  shape.rows = pick(1, 3000);
  for (int r = 0; r < check_ranks; r++) {
    const int piece = pick(0, 120);
    if (r == rank) {
      shape.piece = piece;
      shape.lead = shape.row;
    }
    shape.row += piece + pick(0, 1) * pick(0, 40);
  }
  shape.row = shape.row ? shape.row : 1;
  shape.base = pick(0, 5000);
  if ((long long)shape.base + (long long)shape.rows * shape.row > kBytes) {
    shape.rows = (kBytes - shape.base) / shape.row;
  }
  return shape;
}

static MPI_Datatype view_of(struct Shape shape) {
  MPI_Datatype piece, view;
  MPI_Type_contiguous(shape.piece, MPI_BYTE, &piece);
  MPI_Type_create_hvector(shape.rows, 1, shape.row, piece, &view);
  MPI_Type_commit(&view);
  MPI_Type_free(&piece);
  return view;
}

static void one_round(MPI_File file, int round) {
  const unsigned long long before = random_state;
  for (int rank = 0; rank < check_ranks; rank++) {
    random_state = before;
    const struct Shape shape = choose(rank);
    for (int at = 0; at < shape.rows * shape.piece; at++) {
      model[shape.base + shape.lead + at / shape.piece * shape.row + at % shape.piece] =
          stamp(rank, round, at);
    }
  }
  random_state = before;
  const struct Shape shape = choose(check_rank);
  const int bytes = shape.rows * shape.piece;
  // In memory every second byte, so that both sides are in pieces.
  unsigned char* memory = malloc(2 * (size_t)bytes + 2);
  for (int at = 0; at < bytes; at++) {
    memory[2 * at] = stamp(check_rank, round, at);
    memory[2 * at + 1] = 0;
  }
  MPI_Datatype view = view_of(shape), every_second;
  MPI_Status status;
  MPI_Type_create_resized(MPI_BYTE, 0, 2, &every_second);
  MPI_Type_commit(&every_second);
  CHECK_OK(MPI_File_set_view(file, shape.base + shape.lead, MPI_BYTE, view, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_write_all(file, memory, bytes, every_second, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), bytes);
  memset(memory, 0, 2 * (size_t)bytes + 2);
  CHECK_OK(MPI_File_read_at_all(file, 0, memory, bytes, every_second, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), bytes);
  int wrong = 0;
  for (int at = 0; at < bytes; at++) {
    wrong += memory[2 * at] != stamp(check_rank, round, at) || memory[2 * at + 1] != 0;
  }
  CHECK_EQ(wrong, 0);
  MPI_Type_free(&view);
  MPI_Type_free(&every_second);
  free(memory);
}

// The whole file is what the model says, byte by byte.
static void compare(MPI_File file) {
  static unsigned char got[kBytes];
  MPI_Status status;
  MPI_Offset size;
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_get_size(file, &size));
  memset(got, 0, sizeof got);
  CHECK_OK(MPI_File_read_at(file, 0, got, kBytes, MPI_BYTE, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), size);
  int wrong = 0;
  for (int i = 0; i < kBytes; i++) {
    wrong += got[i] != model[i];
  }
  CHECK_EQ(wrong, 0);
}

// The file ends inside the pieces: everybody is told what was there, and memory beyond stays.
static void short_read(MPI_File file) {
  enum { kPieces = 1000 };
  MPI_Datatype view;
  MPI_Status status;
  unsigned char got[4 * kPieces];
  const int row = 4 * check_ranks;
  const long long end =
      (long long)row * 600 + 4 * (check_ranks / 2) + 2;  // in the middle of a middle rank's piece
  CHECK_OK(MPI_File_set_size(file, end));
  MPI_Type_create_hvector(kPieces, 4, row, MPI_BYTE, &view);
  MPI_Type_commit(&view);
  CHECK_OK(MPI_File_set_view(file, 4 * check_rank, MPI_BYTE, view, "native", MPI_INFO_NULL));
  memset(got, 250, sizeof got);
  CHECK_OK(MPI_File_read_at_all(file, 0, got, sizeof got, MPI_BYTE, &status));
  const int there = 4 * 600 + (check_rank < check_ranks / 2 ? 4 : check_rank == check_ranks / 2 ? 2 : 0);
  CHECK_EQ(check_count(&status, MPI_BYTE), there);
  for (int i = 0; i < (int)sizeof got; i++) {
    const int at = 4 * check_rank + i / 4 * row + i % 4;
    if (got[i] != (i < there ? model[at] : 250)) {
      CHECK(0, "byte %d is %d", i, got[i]);
      break;
    }
  }
  MPI_Type_free(&view);
}

// Larger than one window of a domain, so that there are several rounds.
static void many_windows(MPI_File file) {
  enum { kPiece = 64, kPieces = 200000 };
  MPI_Datatype view;
  MPI_Status status;
  char* memory = malloc(kPiece * kPieces);
  for (int i = 0; i < kPiece * kPieces; i++) {
    memory[i] = (char)(i * 13 + check_rank);
  }
  MPI_Type_create_hvector(kPieces, kPiece, (MPI_Aint)kPiece * check_ranks, MPI_BYTE, &view);
  MPI_Type_commit(&view);
  CHECK_OK(MPI_File_set_view(file, (MPI_Offset)kPiece * check_rank, MPI_BYTE, view, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_write_at_all(file, 0, memory, kPiece * kPieces, MPI_BYTE, &status));
  memset(memory, 0, kPiece * kPieces);
  CHECK_OK(MPI_File_read_at_all(file, 0, memory, kPiece * kPieces, MPI_BYTE, &status));
  int wrong = 0;
  for (int i = 0; i < kPiece * kPieces; i++) {
    wrong += memory[i] != (char)(i * 13 + check_rank);
  }
  CHECK_EQ(wrong, 0);
  MPI_Type_free(&view);
  free(memory);
}

static void expect_plan(MPI_File file, const char* expected) {
  MPI_Info info;
  char value[MPI_MAX_INFO_VAL + 1] = "";
  int found;
  CHECK_OK(MPI_File_get_info(file, &info));
  MPI_Info_get(info, "sluice_collective", MPI_MAX_INFO_VAL, value, &found);
  CHECK(found && strcmp(value, expected) == 0, "the access was \"%s\", not %s", value, expected);
  MPI_Info_get(info, "sluice_collective_reason", MPI_MAX_INFO_VAL, value, &found);
  CHECK(found && value[0], "there is no reason for it");
  CHECK_OK(MPI_File_set_info(file, info));
  MPI_Info_free(&info);
}

// All ranks have all of the same pieces, which an aggregator does not hold at once.
static void the_same_for_all(MPI_File file) {
  enum { kBytesOfAll = 160000 };
  MPI_Datatype view;
  MPI_Status status;
  MPI_Type_vector(kBytesOfAll / 4, 4, 8, MPI_BYTE, &view);
  MPI_Type_commit(&view);
  unsigned char* memory = malloc(kBytesOfAll);
  for (int i = 0; i < kBytesOfAll; i++) {
    memory[i] = stamp(0, 3, i);
  }
  CHECK_OK(MPI_File_set_view(file, 11, MPI_BYTE, view, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_write_at_all(file, 0, memory, kBytesOfAll, MPI_BYTE, &status));
  memset(memory, 0, kBytesOfAll);
  CHECK_OK(MPI_File_read_at_all(file, 0, memory, kBytesOfAll, MPI_BYTE, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), kBytesOfAll);
  int wrong = 0;
  for (int i = 0; i < kBytesOfAll; i++) {
    wrong += memory[i] != stamp(0, 3, i);
  }
  CHECK_EQ(wrong, 0);
  expect_plan(file, "two_phase");
  MPI_Type_free(&view);
  free(memory);
}

// With the exchange asked for: also without gaps, with ranks that have nothing, and over a range of which
// almost nothing is touched.
static void asked_for(MPI_File file) {
  const long long far = 1ll << 41;
  const long long value = 77 + check_rank;
  long long got = 0;
  MPI_Status status;
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "romio_cb_write", "enable");
  MPI_Info_set(info, "romio_cb_read", "enable");
  CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", info));
  CHECK_OK(MPI_File_set_size(file, 0));
  const long long at = check_rank == 0 ? 5 : far + 8 * check_rank;
  const int bytes = check_rank == 1 ? 0 : 8;
  CHECK_OK(MPI_File_write_at_all(file, at, &value, bytes, MPI_BYTE, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), bytes);
  expect_plan(file, "two_phase");
  CHECK_OK(MPI_File_read_at_all(file, at, &got, bytes, MPI_BYTE, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), bytes);
  CHECK_EQ(got, bytes ? value : 0);
  CHECK_OK(MPI_File_read_at_all(file, far + 8 * check_ranks - 4, &got, 8, MPI_BYTE, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), check_ranks > 2 ? 4 : 0);
  CHECK_OK(MPI_File_read_at_all(file, 0, &got, 0, MPI_BYTE, &status));
  MPI_Info_set(info, "romio_cb_write", "disable");
  MPI_Info_set(info, "romio_cb_read", "automatic");
  CHECK_OK(MPI_File_set_info(file, info));
  CHECK_OK(MPI_File_write_at_all(file, at, &value, bytes, MPI_BYTE, &status));
  expect_plan(file, "direct");
  MPI_Info_free(&info);
}

static MPI_Info hints_of(int count, char** words) {
  MPI_Info info;
  MPI_Info_create(&info);
  for (int i = 0; i < count; i++) {
    char* equals = strchr(words[i], '=');
    *equals = '\0';
    MPI_Info_set(info, words[i], equals + 1);
  }
  return info;
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const unsigned long long seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 7;
  random_state = seed * 0x9e3779b97f4a7c15u + 1;
  if (check_rank == 0) {
    printf("seed %llu\n", seed);
  }
  MPI_File file;
  const char* path = check_path(argv[1], "two_phase");
  MPI_Info hints = hints_of(argc > 3 ? argc - 3 : 0, argv + 3);
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, hints, &file));
  MPI_Info_free(&hints);
  for (int round = 0; round < 12 && check_failures == 0; round++) {
    one_round(file, round);
  }
  compare(file);
  short_read(file);
  many_windows(file);
  if (check_ranks > 1) {
    the_same_for_all(file);
    asked_for(file);
  }
  CHECK_OK(MPI_File_close(&file));
  return check_finish();
}
