#pragma once

// The library is preloaded into whatever the user starts, so it needs no MPI library to load: its references
// to MPI are weak, and bound when first called. Called first in every MPI_File function that a program can
// reach without an open file.
//
// Answers 0 when the process runs the MPICH that ROMIO was built for. Otherwise says why not, once, on
// standard error and answers an MPI error code; no MPI function may be called then.
int sluice_check_mpi(void);
