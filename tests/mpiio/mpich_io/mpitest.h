#pragma once

// What the MPICH package's I/O tests need of its test utilities, so that they compile without its whole test suite.

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MTEST_VG_MEM_INIT(address, bytes) \
  do {                                    \
  } while (0)

static inline void MTest_Init(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

static inline void MTest_Finalize(int errors) {
  int rank, all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    if (all) {
      printf(" Found %d errors\n", all);
    } else {
      printf(" No Errors\n");
    }
  }
  MPI_Finalize();
}

static inline void MTestPrintErrorMsg(const char message[], int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(code, text, &length);
  printf("%s: %s\n", message, text);
}

static inline void MTestPrintError(int code) { MTestPrintErrorMsg("Error", code); }

static inline int MTestReturnValue(int errors) { return errors != 0; }
