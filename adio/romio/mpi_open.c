// MPI_File_open, MPI_File_close and MPI_File_delete: they tell Sluice's files from others and agree on every
// error.

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"
#include "adio/romio/fs_type.h"
#include "adio/romio/romio_names.h"
#include "adio/romio/runtime.h"
#include "adio_extern.h"
#include "mpioimpl.h"

SLUICE_MPI_ALIAS(File_open)
SLUICE_MPI_ALIAS(File_close)
SLUICE_MPI_ALIAS(File_delete)

// ROMIO takes off a name's part before the first ':', whatever it is; a prefix of our own keeps the rest
// whole.
static char* with_prefix(const struct SluiceFsChoice* choice) {
  const char* prefix = choice->fstype == ADIO_TESTFS ? "testfs:"
                       : choice->fstype == ADIO_UFS  ? "ufs:"
                                                     : "nfs:";
  const size_t bytes = strlen(prefix) + strlen(choice->name) + 1;
  char* name = malloc(bytes);
  if (name) {
    snprintf(name, bytes, "%s%s", prefix, choice->name);
  }
  return name;
}

static int check_amode(int amode, const char** sentence) {
  const int ways = !!(amode & MPI_MODE_RDONLY) + !!(amode & MPI_MODE_RDWR) + !!(amode & MPI_MODE_WRONLY);
  if (ways != 1) {
    *sentence = "exactly one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR must be given";
  } else if ((amode & MPI_MODE_RDONLY) && (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL))) {
    *sentence = "MPI_MODE_CREATE and MPI_MODE_EXCL need a mode that writes, not MPI_MODE_RDONLY";
  } else if ((amode & MPI_MODE_RDWR) && (amode & MPI_MODE_SEQUENTIAL)) {
    *sentence = "MPI_MODE_SEQUENTIAL does not go with MPI_MODE_RDWR";
  } else {
    return 0;
  }
  return -1;
}

// Gives back what a question for the handler got.
static void free_errhandler(MPI_Errhandler handler) {
  if (handler != MPI_ERRORS_ARE_FATAL && handler != MPI_ERRORS_ABORT && handler != MPI_ERRORS_RETURN) {
    MPI_Errhandler_free(&handler);
  }
}

// New files inherit the error handler that the program set for MPI_FILE_NULL, which only libmpich knows.
static void inherit_errhandler(MPI_File fh) {
  MPI_Errhandler handler;
  if (MPI_File_get_errhandler(MPI_FILE_NULL, &handler) != MPI_SUCCESS || handler == MPI_ERRORS_RETURN) {
    return;
  }
  MPI_File_set_errhandler(fh, handler);
  free_errhandler(handler);
}

// The start of ROMIO is not safe against two threads that open their first files at once.
static int start_romio(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  int error_code = MPI_SUCCESS;
  pthread_mutex_lock(&mutex);
  MPIR_MPIOInit(&error_code);
  pthread_mutex_unlock(&mutex);
  return error_code;
}

// Collective: the communicator of the file, which all ranks have, or none.
static int duplicate(MPI_Comm comm, MPI_Comm* own, const char* name, struct SluiceError* error) {
  // That there is none left is the file's error, not the communicator's, whose handler may end the program.
  MPI_Errhandler handler;
  const int known = MPI_Comm_get_errhandler(comm, &handler) == MPI_SUCCESS;
  *own = MPI_COMM_NULL;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (MPI_Comm_dup(comm, own) != MPI_SUCCESS) {
    *own = MPI_COMM_NULL;
    sluice_fail(
        error, SLUICE_MPI_CLASS(MPI_ERR_OTHER),
        "MPI has no communicator left for %.200s; close files, or free communicators, and open it again",
        name);
  }
  if (known) {
    MPI_Comm_set_errhandler(comm, handler);
    free_errhandler(handler);
  }
  if (sluice_agree(comm, error)) {
    if (*own != MPI_COMM_NULL) {
      MPI_Comm_free(own);
    }
    return -1;
  }
  return 0;
}

static int open_sluice(MPI_Comm comm, const struct SluiceFsChoice* choice, int amode, MPI_Info info,
                       MPI_File* fh) {
  static const char kWhere[] = "MPI_File_open";
  struct SluiceError error = {0};
  const char* sentence;
  if (check_amode(amode, &sentence)) {  // the same on all ranks: they agreed on the mode
    return sluice_error_code_of_class(kWhere, MPI_ERR_AMODE, sentence);
  }
  int error_code = start_romio();
  if (error_code != MPI_SUCCESS) {
    return error_code;
  }
  MPI_Comm own;
  if (duplicate(comm, &own, choice->name, &error)) {
    return sluice_error_code(kWhere, &error);
  }
  *fh = ADIO_Open(comm, own, choice->name, choice->fstype, choice->fns, amode, 0, MPI_BYTE, MPI_BYTE, info,
                  ADIO_PERM_NULL, &error_code);
  if (error_code != MPI_SUCCESS) {
    MPI_Comm_free(&own);
    *fh = MPI_FILE_NULL;
  }
  return error_code;
}

// Collective. Answers an error code when the ranks do not mean the same file system and mode.
static int agree_on_open(MPI_Comm comm, const struct SluiceFsChoice* choice, int amode,
                         struct SluiceError* error) {
  static const char kWhere[] = "MPI_File_open";
  if (sluice_agree(comm, error)) {
    return sluice_error_code(kWhere, error);
  }
  int mine[4] = {choice->fstype, -choice->fstype, amode, -amode};
  int largest[4];
  MPI_Allreduce(mine, largest, 4, MPI_INT, MPI_MAX, comm);
  if (largest[0] != -largest[1]) {
    return sluice_error_code_of_class(
        kWhere, MPI_ERR_NOT_SAME,
        "the ranks gave file names of different file systems; give all the same name");
  }
  // ROMIO says so itself for its own files, but only after it has taken the mode's other rules rank by rank.
  if (largest[2] != -largest[3]) {
    return sluice_error_code_of_class(kWhere, MPI_ERR_NOT_SAME,
                                      "the ranks gave different access modes; give all the same mode");
  }
  return MPI_SUCCESS;
}

int PMPI_File_open(MPI_Comm comm, const char* name, int amode, MPI_Info info, MPI_File* fh) {
  int error_code = sluice_check_mpi();
  if (error_code != MPI_SUCCESS) {
    return error_code;
  }
  int intercomm = 1;
  if (comm == MPI_COMM_NULL || MPI_Comm_test_inter(comm, &intercomm) != MPI_SUCCESS || intercomm) {
    return romio_File_open(comm, name, amode, info, fh);  // it has the words for it
  }
  struct SluiceFsChoice choice = {0};
  struct SluiceError error = {0};
  sluice_choose_fs(name, &choice, &error);
  error_code = agree_on_open(comm, &choice, amode, &error);
  if (error_code == MPI_SUCCESS && choice.fstype != SLUICE_ADIO_FSTYPE) {
    char* prefixed = with_prefix(&choice);
    error_code = prefixed ? romio_File_open(comm, prefixed, amode, info, fh) : MPI_ERR_NO_MEM;
    free(prefixed);
    if (error_code == MPI_SUCCESS) {
      inherit_errhandler(*fh);
    }
    return error_code;
  }
  if (error_code == MPI_SUCCESS) {
    error_code = open_sluice(comm, &choice, amode, info, fh);
  }
  if (error_code != MPI_SUCCESS) {
    return MPIO_Err_return_file(MPI_FILE_NULL, error_code);
  }
  inherit_errhandler(*fh);
  return MPI_SUCCESS;
}

int PMPI_File_close(MPI_File* fh) {
  if (!sluice_owns(*fh)) {
    return romio_File_close(fh);
  }
  ADIO_File fd = *fh;
  // While the handle is whole: the program's error handler gets it.
  int error_code = MPI_SUCCESS;
  ADIOI_SLUICE_Close(fd, &error_code);
  if (error_code != MPI_SUCCESS) {
    MPIO_Err_return_file(fd, error_code);
  }
  MPI_File_set_errhandler(fd, MPI_ERRORS_RETURN);  // gives back the reference to the program's handler
  int freed = MPI_SUCCESS;
  ADIO_Close(fd, &freed);
  MPIO_File_free(fh);
  return error_code != MPI_SUCCESS ? error_code : freed;
}

int PMPI_File_delete(const char* name, MPI_Info info) {
  int error_code = sluice_check_mpi();
  if (error_code != MPI_SUCCESS) {
    return error_code;
  }
  struct SluiceFsChoice choice = {0};
  struct SluiceError error = {0};
  if (sluice_choose_fs(name, &choice, &error)) {
    return MPIO_Err_return_file(MPI_FILE_NULL, sluice_error_code("MPI_File_delete", &error));
  }
  if (choice.fstype != SLUICE_ADIO_FSTYPE) {
    char* prefixed = with_prefix(&choice);
    error_code = prefixed ? romio_File_delete(prefixed, info) : MPI_ERR_NO_MEM;
    free(prefixed);
    return error_code;
  }
  ADIOI_SLUICE_Delete(choice.name, &error_code);
  return error_code == MPI_SUCCESS ? MPI_SUCCESS : MPIO_Err_return_file(MPI_FILE_NULL, error_code);
}
