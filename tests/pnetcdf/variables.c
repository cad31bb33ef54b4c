// A program over unchanged PnetCDF: fixed and record variables, written by collective and by nonblocking
// calls through subarrays, read back in other parts, and compared byte for byte.
//
//   variables write|read FILE

#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRows = 12, kColumns = 10, kSteps = 5, kCells = 24 };

static int failures, rank, ranks;

#define CHECK(condition, ...)                                                \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "rank %d, line %d: %s: ", rank, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                          \
      fprintf(stderr, "\n");                                                 \
      failures++;                                                            \
    }                                                                        \
  } while (0)
#define NC(call)                                           \
  do {                                                     \
    const int code_ = (call);                              \
    CHECK(code_ == NC_NOERR, "%s", ncmpi_strerror(code_)); \
  } while (0)

// What an element holds: another number for each place of each variable.
static int plane_value(long row, long column) {
  return (int)(1000 + row * 4096 + column);
}
static double field_value(long step, long row, long column) {
  return step * 1e6 + row * 1e3 + column + 0.25;
}
static short cell_value(long step, long cell) {
  return (short)(step * 1000 + cell);
}

struct Variables {
  int file, plane, field, cells, text;
};

static void define(struct Variables* nc) {
  int dims[5];
  NC(ncmpi_def_dim(nc->file, "time", NC_UNLIMITED, &dims[0]));
  NC(ncmpi_def_dim(nc->file, "row", (MPI_Offset)kRows * ranks, &dims[1]));
  NC(ncmpi_def_dim(nc->file, "column", kColumns, &dims[2]));
  NC(ncmpi_def_dim(nc->file, "cell", (MPI_Offset)kCells * ranks, &dims[3]));
  NC(ncmpi_def_var(nc->file, "plane", NC_INT, 2, &dims[1], &nc->plane));
  NC(ncmpi_def_var(nc->file, "field", NC_DOUBLE, 3, dims, &nc->field));
  const int of_cells[2] = {dims[0], dims[3]};
  NC(ncmpi_def_var(nc->file, "cells", NC_SHORT, 2, of_cells, &nc->cells));
  NC(ncmpi_def_var(nc->file, "text", NC_CHAR, 1, &dims[2], &nc->text));
  NC(ncmpi_put_att_text(nc->file, NC_GLOBAL, "title", 6, "sluice"));
  NC(ncmpi_enddef(nc->file));
}

// A rank's rows of the fixed variable, out of a larger array in memory: all but a frame of ghost cells.
static void write_plane(const struct Variables* nc) {
  enum { kWide = kColumns + 2, kHigh = kRows + 2 };
  const MPI_Offset start[2] = {(MPI_Offset)kRows * rank, 0}, count[2] = {kRows, kColumns};
  const int whole[2] = {kHigh, kWide}, part[2] = {kRows, kColumns}, from[2] = {1, 1};
  int memory[kHigh][kWide];
  MPI_Datatype inner;
  for (int row = 0; row < kHigh; row++) {
    for (int column = 0; column < kWide; column++) {
      memory[row][column] = plane_value(start[0] + row - 1, column - 1);
    }
  }
  MPI_Type_create_subarray(2, whole, part, from, MPI_ORDER_C, MPI_INT, &inner);
  MPI_Type_commit(&inner);
  NC(ncmpi_put_vara_all(nc->file, nc->plane, start, count, memory, 1, inner));
  MPI_Type_free(&inner);
}

// Nonblocking: each rank every ranks-th row of each record, and two pieces of the other record variable; one
// wait for all of them.
static void write_records(const struct Variables* nc) {
  static double field[kSteps][kRows][kColumns];
  static short cells[kSteps][kCells];
  int requests[2 * kSteps], states[2 * kSteps];
  const MPI_Offset stride[3] = {1, ranks, 1};
  for (int step = 0; step < kSteps; step++) {
    const MPI_Offset field_start[3] = {step, rank, 0}, field_count[3] = {1, kRows, kColumns};
    const MPI_Offset cell_start[2] = {step, (MPI_Offset)kCells * rank}, cell_count[2] = {1, kCells};
    for (int row = 0; row < kRows; row++) {
      for (int column = 0; column < kColumns; column++) {
        field[step][row][column] = field_value(step, rank + (long)row * ranks, column);
      }
    }
    for (int cell = 0; cell < kCells; cell++) {
      cells[step][cell] = cell_value(step, cell_start[1] + cell);
    }
    NC(ncmpi_iput_vars_double(nc->file, nc->field, field_start, field_count, stride, &field[step][0][0],
                              &requests[2 * step]));
    NC(ncmpi_iput_vara_short(nc->file, nc->cells, cell_start, cell_count, cells[step],
                             &requests[2 * step + 1]));
  }
  NC(ncmpi_wait_all(nc->file, 2 * kSteps, requests, states));
  for (int i = 0; i < 2 * kSteps; i++) {
    NC(states[i]);
  }
}

// The rows of the next rank, and with a nonblocking call the columns of all: what nobody here wrote.
static void read_back(const struct Variables* nc) {
  const int other = (rank + 1) % ranks;
  const long rows = (long)kRows * ranks;
  int plane[kRows][kColumns];
  const MPI_Offset start[2] = {(MPI_Offset)kRows * other, 0}, count[2] = {kRows, kColumns};
  NC(ncmpi_get_vara_int_all(nc->file, nc->plane, start, count, &plane[0][0]));
  for (int row = 0; row < kRows; row++) {
    for (int column = 0; column < kColumns; column++) {
      CHECK(plane[row][column] == plane_value(start[0] + row, column), "plane %d %d is %d", row, column,
            plane[row][column]);
    }
  }
  double* field = calloc((size_t)kSteps * (size_t)rows * kColumns, sizeof *field);
  short* cells = calloc((size_t)kSteps * kCells * (size_t)ranks, sizeof *cells);
  const MPI_Offset zero[3] = {0, 0, 0}, whole_field[3] = {kSteps, rows, kColumns};
  const MPI_Offset whole_cells[2] = {kSteps, (MPI_Offset)kCells * ranks};
  int requests[2], states[2];
  NC(ncmpi_iget_vara_double(nc->file, nc->field, zero, whole_field, field, &requests[0]));
  NC(ncmpi_iget_vara_short(nc->file, nc->cells, zero, whole_cells, cells, &requests[1]));
  NC(ncmpi_wait_all(nc->file, 2, requests, states));
  for (long i = 0; i < kSteps * rows * kColumns; i++) {
    const double expected = field_value(i / (rows * kColumns), i / kColumns % rows, i % kColumns);
    CHECK(memcmp(&field[i], &expected, sizeof expected) == 0, "field %ld is %f, not %f", i, field[i],
          expected);
  }
  for (long i = 0; i < (long)kSteps * kCells * ranks; i++) {
    CHECK(cells[i] == cell_value(i / ((long)kCells * ranks), i % ((long)kCells * ranks)), "cell %ld is %d", i,
          cells[i]);
  }
  free(field);
  free(cells);
}

static void read_small_things(const struct Variables* nc) {
  char text[kColumns + 1] = "", title[7] = "";
  MPI_Offset records;
  int dim;
  NC(ncmpi_begin_indep_data(nc->file));
  NC(ncmpi_get_var_text(nc->file, nc->text, text));
  NC(ncmpi_end_indep_data(nc->file));
  CHECK(strcmp(text, "abcdefghij") == 0, "text is \"%s\"", text);
  NC(ncmpi_get_att_text(nc->file, NC_GLOBAL, "title", title));
  CHECK(strcmp(title, "sluice") == 0, "title is \"%s\"", title);
  NC(ncmpi_inq_unlimdim(nc->file, &dim));
  NC(ncmpi_inq_dimlen(nc->file, dim, &records));
  CHECK(records == kSteps, "%lld records", (long long)records);
}

static void write_file(const char* path) {
  struct Variables nc = {0};
  NC(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &nc.file));
  if (failures != 0) {
    return;
  }
  define(&nc);
  write_plane(&nc);
  write_records(&nc);
  NC(ncmpi_begin_indep_data(nc.file));
  if (rank == ranks - 1) {
    NC(ncmpi_put_var_text(nc.file, nc.text, "abcdefghij"));
  }
  NC(ncmpi_end_indep_data(nc.file));
  read_back(&nc);
  NC(ncmpi_close(nc.file));
}

static void read_file(const char* path) {
  struct Variables nc = {0};
  NC(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &nc.file));
  if (failures != 0) {
    return;
  }
  NC(ncmpi_inq_varid(nc.file, "plane", &nc.plane));
  NC(ncmpi_inq_varid(nc.file, "field", &nc.field));
  NC(ncmpi_inq_varid(nc.file, "cells", &nc.cells));
  NC(ncmpi_inq_varid(nc.file, "text", &nc.text));
  read_back(&nc);
  read_small_things(&nc);
  NC(ncmpi_close(nc.file));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc == 3 && strcmp(argv[1], "write") == 0) {
    write_file(argv[2]);
  } else if (argc == 3 && strcmp(argv[1], "read") == 0) {
    read_file(argv[2]);
  } else {
    CHECK(0, "usage: variables write|read FILE");
  }
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%s: %d failed checks on %d ranks\n", all ? "FAILED" : "passed", all, ranks);
  }
  MPI_Finalize();
  return all ? 1 : 0;
}
