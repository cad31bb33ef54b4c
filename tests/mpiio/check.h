#pragma once

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Checks of an MPI test program: a failed one is told and counted; check_finish() makes all ranks exit with 1
// then.

extern int check_failures;
extern int check_rank;
extern int check_ranks;

#define CHECK(condition, ...)                                                              \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "rank %d, %s:%d: %s: ", check_rank, __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                                        \
      fprintf(stderr, "\n");                                                               \
      check_failures++;                                                                    \
    }                                                                                      \
  } while (0)
#define CHECK_EQ(actual, expected)                                                    \
  do {                                                                                \
    const long long actual_ = (long long)(actual), expected_ = (long long)(expected); \
    CHECK(actual_ == expected_, "%s is %lld, not %lld", #actual, actual_, expected_); \
  } while (0)
#define CHECK_OK(call)                                    \
  do {                                                    \
    const int code_ = (call);                             \
    CHECK(code_ == MPI_SUCCESS, "%s", check_text(code_)); \
  } while (0)

static inline const char* check_text(int code) {
  static char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(code, text, &length);
  return text;
}

static inline int check_class(int code) {
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) {
    MPI_Error_class(code, &error_class);
  }
  return error_class;
}

static inline int check_count(MPI_Status* status, MPI_Datatype type) {
  int count;
  MPI_Get_count(status, type, &count);
  return count;
}

// "PREFIX" and "NAME": a file name that lives until the program ends.
static inline const char* check_path(const char* prefix, const char* name) {
  const size_t bytes = strlen(prefix) + strlen(name) + 1;
  char* path = malloc(bytes);
  snprintf(path, bytes, "%s%s", prefix, name);
  return path;
}

// Collective.
static inline MPI_File check_create(const char* path) {
  MPI_File file = MPI_FILE_NULL;
  CHECK_OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  return file;
}

static inline void check_start(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &check_ranks);
}

static inline int check_finish(void) {
  int all = 0;
  MPI_Allreduce(&check_failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (check_rank == 0) {
    printf("%s: %d failed checks on %d ranks\n", all ? "FAILED" : "passed", all, check_ranks);
  }
  MPI_Finalize();
  return all ? 1 : 0;
}
