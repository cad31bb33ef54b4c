#pragma once

#include "adio.h"
#include "adio/abi.h"

// Which file system a file name means, and the name without its prefix.
//
// Sluice's are names with the prefix "sluice:", paths below $SLUICE_PREFIX (default /sluice), and all names
// when ROMIO_FSTYPE_FORCE=sluice: is set. Of other prefixes only those of ROMIO's compiled-in file systems
// are taken off
// ("ufs:", "nfs:", "testfs:"): "wrf_00:00:00" is a plain file name.

// ROMIO numbers its file systems from 150 to 171.
#define SLUICE_ADIO_FSTYPE 900

struct SluiceFsChoice {
  int fstype;  // ADIO_UFS ..., SLUICE_ADIO_FSTYPE
  ADIOI_Fns* fns;
  const char* name;  // for a Sluice file: the path in the pool, in `pool_path`; else a tail of the given name
  char pool_path[4096];
};

// Not collective; looks at the file system only to tell NFS from others. Fails for a Sluice name that is no
// file path.
int sluice_choose_fs(const char* name, struct SluiceFsChoice* choice, struct SluiceError* error);

// The path in the pool for a name without its prefix: "a//b/./c" becomes "/a/b/c". Refuses "..", an empty
// name, a directory (trailing "/"), and what does not fit.
int sluice_pool_path(const char* name, char* path, size_t capacity, struct SluiceError* error);
