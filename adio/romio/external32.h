#pragma once

#include "adio/romio/ad_sluice.h"

// An access to a file whose view is external32 moves a converted copy of the program's buffer, which lives
// until the access is over. Program's threads: MPI does the converting.
struct SluiceConversion {
  enum SluiceDirection direction;
  void* user_buffer;
  char* room;  // NULL when nothing is converted
  char* copy;  // within it, or beside it when the type starts elsewhere: the place of the buffer
  int count;
  MPI_Datatype type;  // kept, because the program may free its own meanwhile
};

// The access gets the copy as its buffer, when one is needed.
int sluice_convert(ADIO_File fd, struct SluiceAccess* access, struct SluiceConversion* conversion,
                   struct SluiceError* error);
// Fills the program's buffer of a read of `done` bytes, and gives the copy up.
void sluice_convert_back(struct SluiceConversion* conversion, int64_t done);
