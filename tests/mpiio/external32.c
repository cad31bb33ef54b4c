// Data in external32 from and to memory types with gaps, and those that begin before their place.
//
//   external32 PREFIX

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

enum { kCount = 1000000, kGap = -7 };

static unsigned big_endian(unsigned value) {
  const unsigned char* bytes = (const unsigned char*)&value;
  return (unsigned)bytes[0] << 24 | (unsigned)bytes[1] << 16 | (unsigned)bytes[2] << 8 | bytes[3];
}

static MPI_File open_as(const char* path, const char* datarep) {
  MPI_File file = MPI_FILE_NULL;
  CHECK_OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  CHECK_OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, datarep, MPI_INFO_NULL));
  return file;
}

// The buffer is memory + base, the i-th int of the data memory[first + i * stride].
static void one_type(const char* path, MPI_Datatype type, int base, int first, int stride, int count) {
  int* memory = malloc(2 * sizeof *memory * kCount);
  int* stored = malloc(sizeof *stored * kCount);
  MPI_Status status;
  int wrong = 0;
  for (int i = 0; i < 2 * kCount; i++) {
    memory[i] = kGap;
  }
  for (int i = 0; i < count; i++) {
    memory[first + i * stride] = i + 1;
  }
  MPI_File file = open_as(path, "external32");
  CHECK_OK(MPI_File_write_at_all(file, 0, memory + base, count, type, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), 4 * count);
  for (int i = 0; i < count; i++) {
    memory[first + i * stride] = -9;
  }
  // The last third is beyond the end of the file, and stays.
  const int there = count - count / 3;
  CHECK_OK(MPI_File_set_size(file, 4 * (MPI_Offset)there));
  CHECK_OK(MPI_File_read_at_all(file, 0, memory + base, count, type, &status));
  CHECK_EQ(check_count(&status, MPI_BYTE), 4 * there);
  for (int i = 0; i < count; i++) {
    wrong += memory[first + i * stride] != (i < there ? i + 1 : -9);
    memory[first + i * stride] = kGap;
  }
  CHECK_EQ(wrong, 0);
  for (int i = 0; i < 2 * kCount; i++) {
    wrong += memory[i] != kGap;
  }
  CHECK_EQ(wrong, 0);
  CHECK_OK(MPI_File_close(&file));
  file = open_as(path, "native");
  CHECK_OK(MPI_File_read_at_all(file, 0, stored, there, MPI_INT, &status));
  for (int i = 0; i < there; i++) {
    wrong += big_endian((unsigned)stored[i]) != (unsigned)i + 1;
  }
  CHECK_EQ(wrong, 0);
  CHECK_OK(MPI_File_close(&file));
  free(memory);
  free(stored);
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  MPI_Datatype gaps, backwards, before, apart;
  const MPI_Aint four_before = -4;
  MPI_Type_create_resized(MPI_INT, 0, 8, &gaps);
  MPI_Type_create_resized(MPI_INT, 0, -8, &backwards);
  MPI_Type_create_hindexed_block(1, 1, &four_before, MPI_INT, &before);
  MPI_Type_create_resized(before, -4, 8, &apart);
  MPI_Type_commit(&gaps);
  MPI_Type_commit(&backwards);
  MPI_Type_commit(&apart);
  one_type(check_path(argv[1], "gaps"), gaps, 0, 0, 2, kCount);
  one_type(check_path(argv[1], "few"), gaps, 10, 10, 2, 1);
  one_type(check_path(argv[1], "backwards"), backwards, 2 * kCount - 1, 2 * kCount - 1, -2, kCount);
  one_type(check_path(argv[1], "before"), apart, 1, 0, 2, kCount);
  MPI_Type_free(&gaps);
  MPI_Type_free(&backwards);
  MPI_Type_free(&before);
  MPI_Type_free(&apart);
  return check_finish();
}
