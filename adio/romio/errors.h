#pragma once

#include "adio.h"
#include "adio/abi.h"

// Errors between the driver, ROMIO and the program.
//
// The program gets an MPI error code of the standard class, and our sentence from MPI_Error_string. Codes
// come from libmpich's own ring of recent errors, so that any number of them may be made in a long run.

// A code for an error that has no SluiceCode but an MPI class.
#define SLUICE_MPI_CLASS(mpi_class) (1000 + (mpi_class))

// Fills `error` (printf). Answers -1, so that a failing step can end with it.
int sluice_fail(struct SluiceError* error, int32_t code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// An MPI error code for an error; MPI_SUCCESS for SLUICE_OK. `where` names the MPI function.
int sluice_error_code(const char* where, const struct SluiceError* error);
// The same for an error of this class that has no SluiceCode.
int sluice_error_code_of_class(const char* where, int mpi_class, const char* sentence);

// Collective over `comm`: the error of the lowest failing rank becomes everybody's. Answers 0 when no rank
// failed.
int sluice_agree(MPI_Comm comm, struct SluiceError* error);
// The same, where a rank's error may be `hearsay`: one that only says that another rank has one.
int sluice_agree_on_cause(MPI_Comm comm, int hearsay, struct SluiceError* error);
