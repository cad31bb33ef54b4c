#include "adio/romio/view.h"

#include <stdlib.h>

#include "adio/romio/errors.h"

int sluice_check_view_type(const struct TypeMap* map, const char* what, int writable,
                           struct SluiceError* error) {
  const char* fault = NULL;
  if (map->first < 0) {
    fault = "has a negative displacement";
  } else if (map->decreasing || (map->count > 0 && map->extent < 0)) {
    fault = "has displacements that decrease";
  } else if (writable && map->overlapping) {
    fault = "selects some bytes twice, which a file opened for writing does not allow";
  }
  if (!fault) {
    return 0;
  }
  // The class that other implementations answer.
  return sluice_fail(error, SLUICE_MPI_CLASS(MPI_ERR_IO),
                     "the %s of the file view %s; build it in rising order without overlap", what, fault);
}

// The block that holds byte `within` of one instance's data.
static int64_t find_block(const struct TypeMap* map, int64_t within) {
  int64_t low = 0;
  int64_t high = map->count - 1;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (map->blocks[middle].before <= within) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

static struct Cursor cursor_at(const struct TypeMap* map, int64_t position) {
  const int64_t within = position % map->size;
  const int64_t block = find_block(map, within);
  return (struct Cursor){map, position / map->size * map->extent, block, within - map->blocks[block].before};
}

// The longest run of bytes from here without a gap.
static int64_t run(const struct Cursor* cursor, int64_t wanted) {
  if (cursor->map->contiguous) {
    return wanted;
  }
  const int64_t left = cursor->map->blocks[cursor->block].length - cursor->within;
  return left < wanted ? left : wanted;
}

static int64_t offset_of(const struct Cursor* cursor) {
  return cursor->instance + cursor->map->blocks[cursor->block].offset + cursor->within;
}

static void advance(struct Cursor* cursor, int64_t bytes) {
  cursor->within += bytes;
  if (cursor->map->contiguous || cursor->within < cursor->map->blocks[cursor->block].length) {
    return;  // one endless block when contiguous
  }
  cursor->within = 0;
  if (++cursor->block == cursor->map->count) {
    cursor->block = 0;
    cursor->instance += cursor->map->extent;
  }
}

int64_t sluice_view_offset(const struct View* view, int64_t position) {
  if (view->filetype->size == 0) {
    return view->displacement;
  }
  const struct Cursor cursor = cursor_at(view->filetype, position);
  return view->displacement + offset_of(&cursor);
}

// The first block that ends behind an offset, or the count. The ends of ordered blocks rise.
static int64_t block_behind(const struct TypeMap* map, int64_t offset) {
  int64_t low = 0;
  int64_t high = map->count;
  if (map->decreasing || map->overlapping) {
    while (low < high && map->blocks[low].offset + map->blocks[low].length <= offset) {
      low++;
    }
    return low;
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (map->blocks[middle].offset + map->blocks[middle].length > offset) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

int64_t sluice_view_position(const struct View* view, int64_t offset) {
  const struct TypeMap* map = view->filetype;
  int64_t rest = offset - view->displacement;
  if (map->size == 0 || rest <= 0 || map->extent <= 0) {
    return 0;
  }
  // Whole instances that end before the offset; instances that reach into each other are looked at one by
  // one.
  int64_t instance = rest / map->extent;
  const int64_t reach = (map->last + map->extent - 1) / map->extent;
  instance = instance > reach ? instance - reach : 0;
  for (;; instance++) {
    rest = offset - view->displacement - instance * map->extent;
    const int64_t b = block_behind(map, rest);
    if (b < map->count) {
      const int64_t inside = rest > map->blocks[b].offset ? rest - map->blocks[b].offset : 0;
      return instance * map->size + map->blocks[b].before + inside;
    }
  }
}

int sluice_walk_start(struct Walk* walk, const struct View* view, int64_t position,
                      const struct TypeMap* memory, int64_t memory_position, void* buffer, int64_t bytes,
                      struct SluiceError* error) {
  const struct TypeMap* file = view->filetype;
  *walk = (struct Walk){.buffer = buffer, .remaining = bytes};
  if (bytes == 0) {
    return 0;
  }
  if (file->size == 0) {
    return sluice_fail(
        error, SLUICE_INVALID_ARGUMENT,
        "%lld bytes were given for a file view that selects no data; set a view that does, or a count of 0",
        (long long)bytes);
  }
  // In doubles: the products may not fit, and near the limit a few bytes more or less do not matter.
  const double instances = ((double)position + (double)bytes) / (double)file->size + 1;
  const double reach = (double)view->displacement + instances * (double)file->extent + (double)file->last;
  if (reach > (double)SLUICE_MAX_FILE_BYTES) {
    return sluice_fail(error, SLUICE_TOO_LARGE,
                       "a transfer of %lld bytes at %lld reaches beyond the largest file, 2^62 bytes",
                       (long long)bytes, (long long)position);
  }
  walk->file = cursor_at(file, position);
  walk->file.instance += view->displacement;
  walk->memory = cursor_at(memory, memory_position);
  return 0;
}

// The caller has seen that there is room for one more.
static void add_extent(struct Batch* batch, int64_t offset, int64_t bytes) {
  struct SluiceExtent* previous = batch->extent_count ? &batch->extents[batch->extent_count - 1] : NULL;
  if (previous && previous->end == (uint64_t)offset) {
    previous->end += (uint64_t)bytes;
  } else {
    batch->extents[batch->extent_count++] =
        (struct SluiceExtent){(uint64_t)offset, (uint64_t)(offset + bytes)};
  }
}

static void add_piece(struct Batch* batch, char* data, int64_t bytes) {
  struct SluicePiece* previous = batch->piece_count ? &batch->pieces[batch->piece_count - 1] : NULL;
  if (previous && (char*)previous->data + previous->bytes == data) {
    previous->bytes += (uint64_t)bytes;
  } else {
    batch->pieces[batch->piece_count++] = (struct SluicePiece){data, (uint64_t)bytes};
  }
}

// At most so many gaps are in a row of instances that holds this many bytes.
static int64_t most_blocks(const struct TypeMap* map, int64_t bytes) {
  if (bytes == 0 || map->contiguous) {
    return 1;
  }
  const int64_t instances = bytes / map->size + 2;
  return instances > SLUICE_BATCH_ENTRIES / map->count ? SLUICE_BATCH_ENTRIES : instances * map->count;
}

struct Batch* sluice_batch_new(const struct Walk* walk) {
  struct Batch* batch = calloc(1, sizeof *batch);
  if (!batch) {
    return NULL;
  }
  const int64_t in_file = most_blocks(walk->file.map, walk->remaining);
  const int64_t in_memory = most_blocks(walk->memory.map, walk->remaining);
  batch->capacity = (size_t)(in_file > in_memory ? in_file : in_memory);
  batch->extents = malloc(batch->capacity * sizeof *batch->extents);
  batch->pieces = malloc(batch->capacity * sizeof *batch->pieces);
  if (!batch->extents || !batch->pieces) {
    sluice_batch_free(batch);
    return NULL;
  }
  return batch;
}

void sluice_batch_free(struct Batch* batch) {
  if (batch) {
    free(batch->extents);
    free(batch->pieces);
    free(batch);
  }
}

int sluice_walk_next(struct Walk* walk, struct Batch* batch) {
  batch->extent_count = batch->piece_count = 0;
  batch->bytes = 0;
  while (walk->remaining > 0 && batch->bytes < SLUICE_BATCH_BYTES && batch->extent_count < batch->capacity &&
         batch->piece_count < batch->capacity) {
    int64_t bytes = SLUICE_BATCH_BYTES - batch->bytes;
    bytes = bytes < walk->remaining ? bytes : walk->remaining;
    bytes = run(&walk->file, bytes);
    bytes = run(&walk->memory, bytes);
    add_extent(batch, offset_of(&walk->file), bytes);
    add_piece(batch, walk->buffer + offset_of(&walk->memory), bytes);
    advance(&walk->file, bytes);
    advance(&walk->memory, bytes);
    batch->bytes += bytes;
    walk->remaining -= bytes;
  }
  return batch->bytes > 0;
}
