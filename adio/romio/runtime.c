#define _GNU_SOURCE

#include "adio/romio/runtime.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "adio.h"
#include "sluice_romio_version.h"

static pthread_once_t checked = PTHREAD_ONCE_INIT;
static int verdict = MPI_SUCCESS;

static int keep_if_mpich(struct dl_phdr_info* info, size_t size, void* found) {
  (void)size;
  const char* slash = strrchr(info->dlpi_name, '/');
  if (strncmp(slash ? slash + 1 : info->dlpi_name, "libmpich.so", strlen("libmpich.so")) != 0) {
    return 0;
  }
  *(const char**)found = info->dlpi_name;
  return 1;
}

// A program that loads its MPI at run time (Python) keeps it out of sight of libraries loaded before; make it
// visible.
static void* find_in_late_mpich(const char* symbol) {
  const char* path = NULL;
  if (!dl_iterate_phdr(keep_if_mpich, &path) || !dlopen(path, RTLD_NOLOAD | RTLD_LAZY | RTLD_GLOBAL)) {
    return NULL;
  }
  return dlsym(RTLD_DEFAULT, symbol);
}

static void check(void) {
  static const char kMark[] = "MPICH Version:";
  static const char kSymbol[] = "MPI_Get_library_version";
  char text[MPI_MAX_LIBRARY_VERSION_STRING + 4096] = "";  // another MPI may have a longer one
  char version[64] = "";
  int length = 0;

  void* symbol = dlsym(RTLD_DEFAULT, kSymbol);
  if (!symbol) {
    symbol = find_in_late_mpich(kSymbol);
  }
  if (symbol) {
    int (*get_version)(char*, int*);
    memcpy(&get_version, &symbol, sizeof get_version);
    get_version(text, &length);
  }
  const char* mark = strstr(text, kMark);
  if (mark && sscanf(mark + strlen(kMark), "%63s", version) == 1 &&
      strcmp(version, SLUICE_ROMIO_MPICH_VERSION) == 0) {
    return;
  }
  text[strcspn(text, "\n")] = '\0';
  text[200] = '\0';
  fprintf(stderr,
          "sluice: libsluice_romio.so was built for MPICH %s, but this program runs %s%s; rebuild Sluice on "
          "this machine "
          "with ./bootstrap build, or run the program with that MPICH\n",
          SLUICE_ROMIO_MPICH_VERSION, mark ? "MPICH " : "",
          mark      ? version
          : text[0] ? text
                    : "an MPI library that it keeps private");
  verdict = MPI_ERR_OTHER;
}

int sluice_check_mpi(void) {
  pthread_once(&checked, check);
  return verdict;
}
