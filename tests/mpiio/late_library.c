// Stands for an extension module that brings MPI into a program that was linked without it (late_program.c).

#include <mpi.h>
#include <stdio.h>

int late_run(const char* path);

int late_run(const char* path) {
  MPI_File file;
  MPI_Offset size = 0;
  MPI_Init(NULL, NULL);
  int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s\n", text);
    return 1;
  }
  MPI_File_write_at_all(file, 0, "late", 4, MPI_BYTE, MPI_STATUS_IGNORE);
  MPI_File_get_size(file, &size);
  MPI_File_close(&file);
  code = MPI_File_open(MPI_COMM_WORLD, "sluice:/missing", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(code, text, &length);
  printf("size %lld, %s\n", (long long)size, text);
  MPI_Finalize();
  return size == 4 ? 0 : 1;
}
