// A program of another MPI (foreign_mpi.c) with libsluice_romio.so in front: its open must fail in good
// order.

#include <stdio.h>

int MPI_Get_library_version(char* version, int* length);
int MPI_File_open(void* comm, const char* name, int amode, void* info, void** fh);

int main(void) {
  char version[256];
  int length;
  void* file = NULL;
  MPI_Get_library_version(version, &length);
  const int first = MPI_File_open(NULL, "sluice:/x", 2, NULL, &file);
  const int second = MPI_File_open(NULL, "/tmp/x", 2, NULL, &file);
  printf("first %d second %d\n", first, second);
  return first != 0 && second != 0 ? 0 : 1;
}
