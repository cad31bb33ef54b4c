#pragma once

#include <stdint.h>

#include "adio/abi.h"
#include "adio/romio/type_map.h"

// From a file view and a buffer to lists of file extents and memory pieces. Pure arithmetic; knows no MPI
// calls.
//
// Positions are counted in bytes of data from the start of the view.

struct View {
  int64_t displacement;
  const struct TypeMap* filetype;  // NULL before an open has made the first view
};

// Largest file offset plus one that a view may reach (base/types.h).
#define SLUICE_MAX_FILE_BYTES (INT64_C(1) << 62)

// Whether data may be read, or also written, through a filetype: offsets may not be negative nor go
// backwards, and, to write, may not overlap. `what` names it in the error.
int sluice_check_view_type(const struct TypeMap* map, const char* what, int writable,
                           struct SluiceError* error);

// The absolute byte offset of a position. A view without data ends at its displacement.
int64_t sluice_view_offset(const struct View* view, int64_t position);
// The first position whose byte lies at or beyond an absolute offset: where data starts that is beyond a
// file's end.
int64_t sluice_view_position(const struct View* view, int64_t offset);

// One batch of a transfer: the extents and the pieces add up to the same number of bytes. Large, because the
// client library keeps the requests of one call under way together.
#define SLUICE_BATCH_ENTRIES (INT64_C(1) << 14)
#define SLUICE_BATCH_BYTES (INT64_C(128) << 20)

struct Batch {
  size_t capacity;  // of each list
  size_t extent_count;
  size_t piece_count;
  int64_t bytes;
  struct SluiceExtent* extents;
  struct SluicePiece* pieces;
};

// A place in a row of instances of a type.
struct Cursor {
  const struct TypeMap* map;
  int64_t instance;  // byte offset of the current instance
  int64_t block;
  int64_t within;  // bytes of the block already done
};

struct Walk {
  struct Cursor file;
  struct Cursor memory;
  char* buffer;
  int64_t remaining;
};

// A walk over `bytes` bytes from a position of the view, and of the buffer's data. Fails when the view has no
// data, or reaches beyond the largest file.
int sluice_walk_start(struct Walk* walk, const struct View* view, int64_t position,
                      const struct TypeMap* memory, int64_t memory_position, void* buffer, int64_t bytes,
                      struct SluiceError* error);
// A batch with room for what the walk can make of it, for sluice_batch_free; NULL when memory ran out.
struct Batch* sluice_batch_new(const struct Walk* walk);
void sluice_batch_free(struct Batch* batch);
// Fills the next batch. Answers 0 when the walk is over.
int sluice_walk_next(struct Walk* walk, struct Batch* batch);
