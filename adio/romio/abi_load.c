#define _GNU_SOURCE

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const struct SluiceAbi* loaded;

static int load(struct SluiceError* error) {
  char path[PATH_MAX];
  Dl_info self;
  if (!dladdr(&loaded, &self) || !self.dli_fname) {
    return sluice_fail(error, SLUICE_INTERNAL,
                       "the Sluice library cannot find the directory that it was loaded from");
  }
  const char* slash = strrchr(self.dli_fname, '/');
  const int directory = slash ? (int)(slash - self.dli_fname) : 1;
  snprintf(path, sizeof path, "%.*s/%s", directory, slash ? self.dli_fname : ".", SLUICE_ABI_LIBRARY);
  // Symbols stay private: the client brings libraries that the program may have in other versions.
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    return sluice_fail(error, SLUICE_UNAVAILABLE,
                       "the Sluice client library cannot be loaded (%.300s); build it with ./bootstrap build",
                       dlerror());
  }
  void* symbol = dlsym(library, SLUICE_ABI_SYMBOL);
  SluiceAbiGetter getter = NULL;
  memcpy(&getter, &symbol, sizeof getter);
  loaded = getter ? getter(SLUICE_ABI_VERSION) : NULL;
  if (!loaded) {
    return sluice_fail(error, SLUICE_UNSUPPORTED,
                       "%.300s is of another version of Sluice; rebuild with ./bootstrap build", path);
  }
  return 0;
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF first of all.
static int at_finalize(MPI_Comm comm, int keyval, void* value, void* extra) {
  (void)comm, (void)keyval, (void)value, (void)extra;
  loaded->disconnect();
  return MPI_SUCCESS;
}

static void disconnect_at_finalize(void) {
  int keyval;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &keyval, NULL) == MPI_SUCCESS) {
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    MPI_Comm_free_keyval(&keyval);
  }
}

int sluice_abi_load(const struct SluiceAbi** abi, struct SluiceError* error) {
  pthread_mutex_lock(&mutex);
  const int first = !loaded;
  const int failed = first ? load(error) : 0;
  if (first && !failed) {
    disconnect_at_finalize();
  }
  *abi = loaded;
  pthread_mutex_unlock(&mutex);
  return failed;
}
