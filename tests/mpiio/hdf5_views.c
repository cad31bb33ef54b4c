// Parallel HDF5 over Sluice files: collective and independent hyperslabs, chunked and contiguous, read back
// by other ranks.
//
//   hdf5_views PREFIX

#include <hdf5.h>

#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

enum { kRows = 40, kColumns = 60 };

static int value(int row, int column) {
  return 1000 * row + column;
}

// The rows of this rank, or of the next one, in blocks of two by three with gaps.
static hid_t select_part(hid_t file_space, int rank) {
  const hsize_t start[2] = {(hsize_t)rank * kRows, 1};
  const hsize_t stride[2] = {4, 5}, count[2] = {10, 11}, block[2] = {2, 3};
  CHECK(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, stride, count, block) >= 0, "hyperslab");
  return H5Screate_simple(1, (const hsize_t[]){10 * 11 * 2 * 3}, NULL);
}

static int fill(int* numbers, int rank) {
  int n = 0;
  for (int r = 0; r < 10; r++) {
    for (int i = 0; i < 2; i++) {
      for (int c = 0; c < 11; c++) {
        for (int j = 0; j < 3; j++) {
          numbers[n++] = value(rank * kRows + 4 * r + i, 1 + 5 * c + j);
        }
      }
    }
  }
  return n;
}

static void write_and_read(hid_t file, const char* name, int chunked, H5FD_mpio_xfer_t way) {
  static int numbers[10 * 11 * 2 * 3], got[10 * 11 * 2 * 3];
  const hsize_t size[2] = {(hsize_t)check_ranks * kRows, kColumns};
  const hsize_t chunk[2] = {16, 16};
  hid_t space = H5Screate_simple(2, size, NULL);
  hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
  if (chunked) {
    H5Pset_chunk(creation, 2, chunk);
  }
  H5Pset_dxpl_mpio(transfer, way);
  hid_t set = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  CHECK(set >= 0, "dataset %s", name);
  hid_t part = select_part(space, check_rank);
  fill(numbers, check_rank);
  CHECK(H5Dwrite(set, H5T_NATIVE_INT, part, space, transfer, numbers) >= 0, "write %s", name);
  H5Sclose(part);
  H5Fflush(file, H5F_SCOPE_GLOBAL);
  MPI_Barrier(MPI_COMM_WORLD);
  const int other = (check_rank + 1) % check_ranks;
  part = select_part(space, other);
  const int n = fill(numbers, other);
  CHECK(H5Dread(set, H5T_NATIVE_INT, part, space, transfer, got) >= 0, "read %s", name);
  CHECK(memcmp(got, numbers, (size_t)n * sizeof *got) == 0, "%s holds other numbers", name);
  H5Sclose(part);
  H5Dclose(set);
  H5Pclose(transfer);
  H5Pclose(creation);
  H5Sclose(space);
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const char* path = check_path(argv[1], "views.h5");
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  CHECK(file >= 0, "create %s", path);
  write_and_read(file, "contiguous", 0, H5FD_MPIO_COLLECTIVE);
  write_and_read(file, "chunked", 1, H5FD_MPIO_COLLECTIVE);
  write_and_read(file, "independent", 0, H5FD_MPIO_INDEPENDENT);
  CHECK(H5Fclose(file) >= 0, "close");
  file = H5Fopen(path, H5F_ACC_RDONLY, access);
  CHECK(file >= 0, "open again");
  CHECK(H5Lexists(file, "chunked", H5P_DEFAULT) > 0, "a dataset is lost");
  H5Fclose(file);
  H5Pclose(access);
  return check_finish();
}
