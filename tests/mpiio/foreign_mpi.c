// The least of another MPI library: what a program of that MPI shows of itself to a preloaded library.

#include <string.h>

int MPI_Get_library_version(char* version, int* length);
int MPI_File_open(void* comm, const char* name, int amode, void* info, void** fh);

int MPI_Get_library_version(char* version, int* length) {
  memcpy(version, FOREIGN_VERSION, sizeof FOREIGN_VERSION);
  *length = (int)strlen(version);
  return 0;
}

// Its own, which the preloaded library stands in front of.
int MPI_File_open(void* comm, const char* name, int amode, void* info, void** fh) {
  (void)comm, (void)name, (void)amode, (void)info, (void)fh;
  return 0;
}
