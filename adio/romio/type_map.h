#pragma once

#include <stdint.h>

#include "adio.h"
#include "adio/abi.h"

// The bytes that a datatype selects, in their order: a list of blocks, neighbours joined.
//
// Thread rule: maps are immutable and counted; any thread may use one that it holds.

struct TypeBlock {
  int64_t offset;  // from the start of one instance of the type; may be negative
  int64_t length;  // > 0
  int64_t before;  // bytes of data in the blocks before this one
};

struct TypeMap {
  int references;
  int64_t size;     // bytes of data in one instance
  int64_t extent;   // distance from one instance to the next; may be 0 or negative
  int64_t first;    // lowest offset of a byte
  int64_t last;     // offset behind the highest byte
  int contiguous;   // any number of instances is one block at offset 0
  int decreasing;   // an offset is lower than its predecessor's
  int overlapping;  // a byte is selected twice, within one instance or by a row of instances
  int64_t count;
  struct TypeBlock blocks[];
};

// Largest number of blocks in a map: beyond it (1.5 GiB of list) a type is refused.
#define SLUICE_MAX_TYPE_BLOCKS (INT64_C(1) << 26)

// The map of a committed datatype, for the caller to release. Made once for a datatype and kept with it.
int sluice_type_map(MPI_Datatype type, const struct TypeMap** map, struct SluiceError* error);
void sluice_type_map_release(const struct TypeMap* map);

// The same from a list of blocks, which needs neither order nor joining: for the above and for its tests.
struct TypeMap* sluice_type_map_of_blocks(const struct TypeBlock* blocks, int64_t count, int64_t extent);
