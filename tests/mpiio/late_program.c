// A program without MPI that loads it at run time, out of sight of others, as Python does: late_program
// LIBRARY PATH

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  void* symbol = dlsym(library, "late_run");
  int (*run)(const char*);
  memcpy(&run, &symbol, sizeof run);
  return run(argv[2]);
}
