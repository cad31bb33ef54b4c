// Cases about which bytes go where, and what is counted.

#include <limits.h>
#include <sys/mman.h>

#include "tests/mpiio/cases.h"

// Five ints in the file; everybody asks for ten.
enum { kThere = 5, kAsked = 10 };

static void expect_short(const char* how, int code, MPI_Status* status, const int* got, int there) {
  CHECK_OK(code);
  CHECK(check_count(status, MPI_INT) == there, "%s counted %d of %d", how, check_count(status, MPI_INT),
        there);
  for (int i = 0; i < kAsked; i++) {
    CHECK(got[i] == (i < there ? i : -7), "%s left %d at %d", how, got[i], i);
  }
}

static void fill(int* buffer) {
  for (int i = 0; i < kAsked; i++) {
    buffer[i] = -7;
  }
}

static void short_reads_at(MPI_File file, MPI_Offset offset, int there) {
  int got[kAsked];
  MPI_Status status;
  MPI_Request request;
  int code;

  fill(got);
  code = MPI_File_read_at(file, offset, got, kAsked, MPI_INT, &status);
  expect_short("read_at", code, &status, got, there);
  fill(got);
  code = MPI_File_read_at_all(file, offset, got, kAsked, MPI_INT, &status);
  expect_short("read_at_all", code, &status, got, there);
  fill(got);
  CHECK_OK(MPI_File_seek(file, offset, MPI_SEEK_SET));
  code = MPI_File_read_all(file, got, kAsked, MPI_INT, &status);
  expect_short("read_all", code, &status, got, there);
  fill(got);
  CHECK_OK(MPI_File_iread_at(file, offset, got, kAsked, MPI_INT, &request));
  code = MPI_Wait(&request, &status);
  expect_short("iread_at", code, &status, got, there);
  fill(got);
  CHECK_OK(MPI_File_iread_at_all(file, offset, got, kAsked, MPI_INT, &request));
  code = MPI_Wait(&request, &status);
  expect_short("iread_at_all", code, &status, got, there);
  fill(got);
  CHECK_OK(MPI_File_seek(file, offset, MPI_SEEK_SET));
  CHECK_OK(MPI_File_iread_all(file, got, kAsked, MPI_INT, &request));
  code = MPI_Wait(&request, &status);
  expect_short("iread_all", code, &status, got, there);
  fill(got);
  CHECK_OK(MPI_File_seek(file, offset, MPI_SEEK_SET));
  CHECK_OK(MPI_File_read_all_begin(file, got, kAsked, MPI_INT));
  code = MPI_File_read_all_end(file, got, &status);
  expect_short("read_all_begin", code, &status, got, there);
  fill(got);
  CHECK_OK(MPI_File_read_at_all_begin(file, offset, got, kAsked, MPI_INT));
  code = MPI_File_read_at_all_end(file, got, &status);
  expect_short("read_at_all_begin", code, &status, got, there);
}

void case_01_short_collective_reads(const char* prefix) {
  const char* path = check_path(prefix, "case01");
  MPI_File file = case_create(path);
  const int numbers[kThere] = {0, 1, 2, 3, 4};
  if (check_rank == 0) {
    CHECK_OK(MPI_File_write_at(file, 0, numbers, kThere, MPI_INT, MPI_STATUS_IGNORE));
  }
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
  short_reads_at(file, 0, kThere);
  short_reads_at(file, 100, 0);
  case_remove(&file, path);
}

void case_02_short_strided_read(const char* prefix) {
  const char* path = check_path(prefix, "case02");
  MPI_File file = case_create(path);
  MPI_Datatype every_second;
  MPI_Status status;
  int numbers[12], got[50];
  for (int i = 0; i < 12; i++) {
    numbers[i] = i;
  }
  if (check_rank == 0) {
    CHECK_OK(MPI_File_write_at(file, 0, numbers, 12, MPI_INT, MPI_STATUS_IGNORE));
  }
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Type_create_resized(MPI_INT, 0, 8, &every_second);
  MPI_Type_commit(&every_second);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, every_second, "native", MPI_INFO_NULL));
  memset(got, -1, sizeof got);
  CHECK_OK(MPI_File_read_at(file, 0, got, 50, MPI_INT, &status));
  CHECK_EQ(check_count(&status, MPI_INT), 6);
  for (int i = 0; i < 50; i++) {
    CHECK_EQ(got[i], i < 6 ? 2 * i : -1);
  }
  MPI_Type_free(&every_second);
  case_remove(&file, path);
}

void case_05_resized_lower_bound(const char* prefix) {
  const char* path = check_path(prefix, "case05");
  MPI_File file = case_create(path);
  MPI_Datatype type;
  MPI_Offset size;
  const int first[2] = {1, 2}, second[2] = {3, 4};
  int got[10] = {0};
  MPI_Type_create_resized(MPI_INT, 4, 12, &type);
  MPI_Type_commit(&type);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL));
  if (check_rank == 0) {
    CHECK_OK(MPI_File_write(file, first, 2, MPI_INT, MPI_STATUS_IGNORE));
    CHECK_OK(MPI_File_write(file, second, 2, MPI_INT, MPI_STATUS_IGNORE));
  }
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, 40);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_read_at_all(file, 0, got, 10, MPI_INT, MPI_STATUS_IGNORE));
  for (int i = 0; i < 10; i++) {
    CHECK_EQ(got[i], i % 3 == 0 ? i / 3 + 1 : 0);
  }
  MPI_Type_free(&type);
  case_remove(&file, path);
}

// One request of more elements than an int counts, from memory that is all zero pages.
static void one_large_request(MPI_File file, MPI_Offset offset) {
  const MPI_Count bytes = (MPI_Count)INT_MAX + (1 << 20);
  MPI_Status status;
  MPI_Count written;
  char ends[2] = {1, 1};
  char* zeros = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(zeros != MAP_FAILED, "no address space");
  CHECK_OK(MPI_File_write_at_c(file, offset, zeros, bytes, MPI_BYTE, &status));
  MPI_Get_elements_c(&status, MPI_BYTE, &written);
  CHECK_EQ(written, bytes);
  CHECK_OK(MPI_File_read_at(file, offset, &ends[0], 1, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_read_at(file, offset + bytes - 1, &ends[1], 1, MPI_BYTE, MPI_STATUS_IGNORE));
  CHECK_EQ(ends[0] + ends[1], 0);
  munmap(zeros, (size_t)bytes);
}

void case_07_beyond_two_gib(const char* prefix) {
  const char* path = check_path(prefix, "case07");
  MPI_File file = case_create(path);
  const MPI_Offset far_away = (MPI_Offset)5 << 30;
  MPI_Offset size;
  MPI_Status status;
  int value = 41 + check_rank, got = 0;
  MPI_Datatype wide;
  CHECK_OK(MPI_File_write_at_all(file, far_away + 4 * check_rank, &value, 1, MPI_INT, &status));
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, far_away + 4 * check_ranks);
  CHECK_OK(MPI_File_read_at_all(file, far_away + 4 * check_rank, &got, 1, MPI_INT, &status));
  CHECK_EQ(got, value);
  // A view whose blocks are 3 GiB apart, with a large count of etypes in the offset.
  MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)3 << 30, &wide);
  MPI_Type_commit(&wide);
  CHECK_OK(MPI_File_set_view(file, 4 * check_rank, MPI_INT, wide, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_write_at_all(file, 3, &value, 1, MPI_INT, &status));
  MPI_Offset place;
  CHECK_OK(MPI_File_get_byte_offset(file, 3, &place));
  CHECK_EQ(place, 4 * check_rank + 3 * ((MPI_Offset)3 << 30));
  got = 0;
  CHECK_OK(MPI_File_read_at_all(file, 3, &got, 1, MPI_INT, &status));
  CHECK_EQ(got, value);
  MPI_Type_free(&wide);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
  if (check_rank == 0) {
    one_large_request(file, 0);
  }
  case_remove(&file, path);
}

void case_09_neighbours_keep_their_bytes(const char* prefix) {
  const char* path = check_path(prefix, "case09");
  MPI_File file = case_create(path);
  enum { kRows = 2000 };
  MPI_Datatype mine;
  unsigned char* row = malloc(kRows);
  unsigned char* all = malloc((size_t)kRows * (size_t)check_ranks);
  // Rank r owns byte r of each group of check_ranks bytes; rank 0 writes its bytes one by one, the others
  // strided.
  memset(row, 'a' + check_rank, kRows);
  MPI_Type_create_resized(MPI_BYTE, 0, check_ranks, &mine);
  MPI_Type_commit(&mine);
  if (check_rank == 0) {
    for (int i = 0; i < kRows; i++) {
      CHECK_OK(MPI_File_write_at(file, (MPI_Offset)i * check_ranks, row, 1, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    CHECK_OK(MPI_File_set_view(file, check_rank, MPI_BYTE, mine, "native", MPI_INFO_NULL));
  } else {
    CHECK_OK(MPI_File_set_view(file, check_rank, MPI_BYTE, mine, "native", MPI_INFO_NULL));
    for (int i = 0; i < kRows; i += 100) {
      CHECK_OK(MPI_File_write_at(file, i, row, 100, MPI_BYTE, MPI_STATUS_IGNORE));
    }
  }
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_read_at_all(file, 0, all, kRows * check_ranks, MPI_BYTE, MPI_STATUS_IGNORE));
  int lost = 0;
  for (int i = 0; i < kRows * check_ranks; i++) {
    lost += all[i] != 'a' + i % check_ranks;
  }
  CHECK_EQ(lost, 0);
  free(row);
  free(all);
  MPI_Type_free(&mine);
  case_remove(&file, path);
}

void case_11_leading_empty_blocks(const char* prefix) {
  const char* path = check_path(prefix, "case11");
  MPI_File file = case_create(path);
  const int lengths[4] = {0, 0, 2, 1};
  const int places[4] = {0, 5, 8, 12};
  const int numbers[3] = {7, 8, 9};
  int got[13];
  MPI_Datatype type;
  MPI_Offset size;
  MPI_Type_indexed(4, lengths, places, MPI_INT, &type);
  MPI_Type_commit(&type);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_write_all(file, numbers, check_rank == 0 ? 3 : 0, MPI_INT, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_get_size(file, &size));
  CHECK_EQ(size, 13 * 4);
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
  CHECK_OK(MPI_File_read_at_all(file, 0, got, 13, MPI_INT, MPI_STATUS_IGNORE));
  for (int i = 0; i < 13; i++) {
    CHECK_EQ(got[i], i == 8 ? 7 : i == 9 ? 8 : i == 12 ? 9 : 0);
  }
  MPI_Type_free(&type);
  case_remove(&file, path);
}

static void shared_slots(MPI_File file) {
  enum { kEach = 20 };
  // Every rank takes slots at will; each slot is taken once.
  for (int i = 0; i < kEach; i++) {
    const int value = check_rank * kEach + i;
    CHECK_OK(MPI_File_write_shared(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
  }
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  const int total = kEach * check_ranks;
  int* got = calloc((size_t)total, sizeof *got);
  int* seen = calloc((size_t)total, sizeof *seen);
  MPI_Offset position;
  CHECK_OK(MPI_File_get_position_shared(file, &position));
  CHECK_EQ(position, total);
  CHECK_OK(MPI_File_read_at_all(file, 0, got, total, MPI_INT, MPI_STATUS_IGNORE));
  for (int i = 0; i < total; i++) {
    CHECK(got[i] >= 0 && got[i] < total && seen[got[i]]++ == 0, "slot %d holds %d", i, got[i]);
  }
  free(got);
  free(seen);
}

void case_12_shared_pointer(const char* prefix) {
  const char* path = check_path(prefix, "case12");
  MPI_File file = case_create(path);
  MPI_Offset position;
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
  shared_slots(file);
  // Ordered: rank r's r + 1 values stand behind those of the lower ranks.
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
  const int total = check_ranks * (check_ranks + 1) / 2;
  int* values = calloc((size_t)total, sizeof *values);
  for (int i = 0; i <= check_rank; i++) {
    values[i] = 100 * check_rank + i;
  }
  CHECK_OK(MPI_File_write_ordered(file, values, check_rank + 1, MPI_INT, MPI_STATUS_IGNORE));
  CHECK_OK(MPI_File_get_position_shared(file, &position));
  CHECK_EQ(position, total);
  CHECK_OK(MPI_File_sync(file));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
  memset(values, 0, (size_t)total * sizeof *values);
  CHECK_OK(MPI_File_read_ordered_begin(file, values, check_rank + 1, MPI_INT));
  CHECK_OK(MPI_File_read_ordered_end(file, values, MPI_STATUS_IGNORE));
  for (int i = 0; i <= check_rank; i++) {
    CHECK_EQ(values[i], 100 * check_rank + i);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_OK(MPI_File_seek_shared(file, 0, MPI_SEEK_END));
  CHECK_OK(MPI_File_get_position_shared(file, &position));
  CHECK_EQ(position, 20 * check_ranks);
  free(values);
  case_remove(&file, path);
}
