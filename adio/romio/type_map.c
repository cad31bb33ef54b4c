#include "adio/romio/type_map.h"

#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "adio/romio/errors.h"

// A growing list of blocks; a failure sticks until the end.
struct BlockList {
  struct TypeBlock* blocks;
  int64_t count;
  int64_t capacity;
  int failed;
};

static void append(struct BlockList* list, int64_t offset, int64_t length) {
  if (length == 0 || list->failed) {
    return;
  }
  if (list->count > 0) {
    struct TypeBlock* previous = &list->blocks[list->count - 1];
    if (previous->offset + previous->length == offset) {
      previous->length += length;
      return;
    }
  }
  if (list->count == list->capacity) {
    const int64_t capacity = list->capacity ? 2 * list->capacity : 8;
    struct TypeBlock* grown =
        capacity > SLUICE_MAX_TYPE_BLOCKS ? NULL : realloc(list->blocks, (size_t)capacity * sizeof *grown);
    if (!grown) {
      list->failed = 1;
      return;
    }
    list->blocks = grown;
    list->capacity = capacity;
  }
  list->blocks[list->count++] = (struct TypeBlock){.offset = offset, .length = length};
}

// `count` instances of `map`, one behind the other from `offset` on.
static void append_row(struct BlockList* list, const struct TypeMap* map, int64_t offset, int64_t count) {
  if (map->contiguous) {
    append(list, offset, count * map->size);
    return;
  }
  for (int64_t i = 0; i < count && !list->failed && map->count > 0; i++) {
    for (int64_t b = 0; b < map->count; b++) {
      append(list, offset + i * map->extent + map->blocks[b].offset, map->blocks[b].length);
    }
  }
}

static int by_offset(const void* left, const void* right) {
  const int64_t a = ((const struct TypeBlock*)left)->offset;
  const int64_t b = ((const struct TypeBlock*)right)->offset;
  return a < b ? -1 : a > b;
}

// Whether sorted blocks overlap each other, or the first one's next instance, `period` further.
static int sorted_overlap(const struct TypeBlock* blocks, int64_t count, int64_t period) {
  int64_t reached = INT64_MIN;
  for (int64_t i = 0; i < count; i++) {
    if (blocks[i].offset < reached) {
      return 1;
    }
    reached = blocks[i].offset + blocks[i].length;
  }
  return period > 0 && reached > blocks[0].offset + period;
}

// A row of instances that reach into each other is free of overlap when the blocks, folded into one extent,
// are.
static int row_overlaps(const struct TypeMap* map) {
  if (map->count == 0 || (map->extent >= map->last - map->first && !map->decreasing)) {
    return map->count > 0 && sorted_overlap(map->blocks, map->count, 0);
  }
  struct TypeBlock* folded = malloc((size_t)map->count * sizeof *folded);
  if (!folded) {
    return 1;
  }
  const int fold = map->extent > 0 && map->extent < map->last - map->first;
  for (int64_t i = 0; i < map->count; i++) {
    folded[i] = map->blocks[i];
    if (fold) {
      folded[i].offset = (folded[i].offset - map->first) % map->extent;
    }
  }
  qsort(folded, (size_t)map->count, sizeof *folded, by_offset);
  const int overlap = sorted_overlap(folded, map->count, fold ? map->extent : 0) || map->extent <= 0;
  free(folded);
  return overlap;
}

struct TypeMap* sluice_type_map_of_blocks(const struct TypeBlock* blocks, int64_t count, int64_t extent) {
  struct BlockList list = {0};
  for (int64_t i = 0; i < count; i++) {
    append(&list, blocks[i].offset, blocks[i].length);
  }
  struct TypeMap* map = list.failed ? NULL : malloc(sizeof *map + (size_t)list.count * sizeof map->blocks[0]);
  if (map) {
    *map = (struct TypeMap){.references = 1, .extent = extent, .count = list.count};
    for (int64_t i = 0; i < list.count; i++) {
      struct TypeBlock block = list.blocks[i];
      const int64_t end = block.offset + block.length;
      block.before = map->size;
      map->blocks[i] = block;
      map->size += block.length;
      map->first = i == 0 || block.offset < map->first ? block.offset : map->first;
      map->last = i == 0 || end > map->last ? end : map->last;
      map->decreasing |= i > 0 && block.offset < list.blocks[i - 1].offset;
    }
    map->overlapping = row_overlaps(map);
    map->contiguous = map->count == 1 && map->blocks[0].offset == 0 && map->extent == map->size;
  }
  free(list.blocks);
  return map;
}

// What MPI_Type_get_contents answers, for types made with either width of count.
struct Contents {
  MPI_Count integer_count, address_count, large_count, type_count;
  int* integers;
  MPI_Aint* addresses;
  MPI_Count* large;
  MPI_Datatype* types;
};

static int is_named(MPI_Datatype type) {
  MPI_Count integers, addresses, large, types;
  int combiner;
  MPI_Type_get_envelope_c(type, &integers, &addresses, &large, &types, &combiner);
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
         combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

static void free_contents(struct Contents* contents) {
  for (MPI_Count i = 0; contents->types && i < contents->type_count; i++) {
    if (!is_named(contents->types[i])) {
      MPI_Type_free(&contents->types[i]);
    }
  }
  free(contents->integers);
  free(contents->addresses);
  free(contents->large);
  free(contents->types);
}

static int get_contents(MPI_Datatype type, struct Contents* c) {
  c->integers = malloc((size_t)(c->integer_count + 1) * sizeof(int));
  c->addresses = malloc((size_t)(c->address_count + 1) * sizeof(MPI_Aint));
  c->large = malloc((size_t)(c->large_count + 1) * sizeof(MPI_Count));
  MPI_Datatype* types = malloc((size_t)(c->type_count + 1) * sizeof(MPI_Datatype));
  if (!c->integers || !c->addresses || !c->large || !types ||
      MPI_Type_get_contents_c(type, c->integer_count, c->address_count, c->large_count, c->type_count,
                              c->integers, c->addresses, c->large, types) != MPI_SUCCESS) {
    free(types);
    return -1;
  }
  c->types = types;
  return 0;
}

// The n-th count of the constructor call. With large counts, displacements in bytes are among them, behind
// `counts`.
static int64_t count_at(const struct Contents* c, MPI_Count n) {
  return c->large_count > 0 ? (int64_t)c->large[n] : (int64_t)c->integers[n];
}
static int64_t byte_at(const struct Contents* c, MPI_Count counts, MPI_Count n) {
  return c->large_count > 0 ? (int64_t)c->large[counts + n] : (int64_t)c->addresses[n];
}

static int build(MPI_Datatype type, struct TypeMap** map, struct SluiceError* error);

static void release(struct TypeMap* map) {
  if (map && __atomic_sub_fetch(&map->references, 1, __ATOMIC_ACQ_REL) == 0) {
    free(map);
  }
}

static void append_indexed(struct BlockList* list, const struct Contents* c, int combiner,
                           const struct TypeMap* child) {
  const int64_t count = count_at(c, 0);
  for (int64_t i = 0; i < count; i++) {
    switch (combiner) {
      case MPI_COMBINER_INDEXED:
        append_row(list, child, count_at(c, 1 + count + i) * child->extent, count_at(c, 1 + i));
        break;
      case MPI_COMBINER_INDEXED_BLOCK:
        append_row(list, child, count_at(c, 2 + i) * child->extent, count_at(c, 1));
        break;
      case MPI_COMBINER_HINDEXED_BLOCK:
        append_row(list, child, byte_at(c, 2, i), count_at(c, 1));
        break;
      default:
        append_row(list, child, byte_at(c, 1 + count, i), count_at(c, 1 + i));
    }
  }
}

static void append_vector(struct BlockList* list, const struct Contents* c, int combiner,
                          const struct TypeMap* child) {
  const int64_t stride = combiner == MPI_COMBINER_VECTOR ? count_at(c, 2) * child->extent : byte_at(c, 2, 0);
  for (int64_t i = 0; i < count_at(c, 0) && !list->failed; i++) {
    append_row(list, child, i * stride, count_at(c, 1));
  }
}

// Rows along the fastest dimension, in the order of the array.
static int append_subarray(struct BlockList* list, const struct Contents* c, const struct TypeMap* child) {
  enum { kMaxDims = 64 };
  const int dims = c->integers[0];
  const int large = c->large_count > 0;
  const int c_order = c->integers[large ? 1 : 1 + 3 * dims] == MPI_ORDER_C;
  int64_t size[kMaxDims], subsize[kMaxDims], start[kMaxDims], at[kMaxDims] = {0};
  if (dims < 1 || dims > kMaxDims) {
    return -1;
  }
  int64_t rows = 1;
  for (int i = 0; i < dims; i++) {
    const int from = c_order ? dims - 1 - i : i;  // here dimension 0 is the fastest
    const MPI_Count base = large ? 0 : 1;
    size[i] = count_at(c, base + from);
    subsize[i] = count_at(c, base + dims + from);
    start[i] = count_at(c, base + 2 * dims + from);
    rows *= i > 0 ? subsize[i] : 1;
  }
  for (int64_t row = 0; row < rows && !list->failed; row++) {
    int64_t element = 0;
    for (int i = dims - 1; i >= 0; i--) {
      element = element * size[i] + start[i] + at[i];
    }
    append_row(list, child, element * child->extent, subsize[0]);
    for (int i = 1; i < dims && ++at[i] == subsize[i]; i++) {
      at[i] = 0;
    }
  }
  return 0;
}

// ROMIO turns a distributed array into simpler types.
static int append_darray(struct BlockList* list, const struct Contents* c, struct SluiceError* error) {
  if (c->large_count > 0) {
    return sluice_fail(error, SLUICE_UNSUPPORTED,
                       "a distributed array type with large counts is not supported; use a subarray type");
  }
  int* i = c->integers;
  const int dims = i[2];
  MPI_Datatype simpler;
  if (ADIO_Type_create_darray(i[0], i[1], dims, i + 3, i + 3 + dims, i + 3 + 2 * dims, i + 3 + 3 * dims,
                              i[3 + 4 * dims], c->types[0], &simpler) != MPI_SUCCESS) {
    return sluice_fail(error, SLUICE_INVALID_ARGUMENT,
                       "a distributed array type could not be taken apart; check its arguments");
  }
  struct TypeMap* map = NULL;
  const int failed = build(simpler, &map, error);
  if (!failed) {
    append_row(list, map, 0, 1);
    release(map);
  }
  MPI_Type_free(&simpler);
  return failed;
}

static int append_struct(struct BlockList* list, const struct Contents* c, struct SluiceError* error) {
  const int64_t count = count_at(c, 0);
  struct TypeMap* child = NULL;
  for (int64_t i = 0; i < count; i++) {
    if (i == 0 || c->types[i] != c->types[i - 1]) {
      release(child);
      child = NULL;
      if (build(c->types[i], &child, error)) {
        return -1;
      }
    }
    append_row(list, child, byte_at(c, 1 + count, i), count_at(c, 1 + i));
  }
  release(child);
  return 0;
}

static int append_derived(struct BlockList* list, int combiner, const struct Contents* c,
                          struct SluiceError* error) {
  if (combiner == MPI_COMBINER_STRUCT || combiner == MPI_COMBINER_STRUCT_INTEGER) {
    return append_struct(list, c, error);
  }
  if (combiner == MPI_COMBINER_DARRAY) {
    return append_darray(list, c, error);
  }
  struct TypeMap* child = NULL;
  if (build(c->types[0], &child, error)) {
    return -1;
  }
  int failed = 0;
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      append_row(list, child, 0, 1);
      break;
    case MPI_COMBINER_CONTIGUOUS:
      append_row(list, child, 0, count_at(c, 0));
      break;
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR:
    case MPI_COMBINER_HVECTOR_INTEGER:
      append_vector(list, c, combiner, child);
      break;
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_HINDEXED_INTEGER:
    case MPI_COMBINER_HINDEXED_BLOCK:
      append_indexed(list, c, combiner, child);
      break;
    case MPI_COMBINER_SUBARRAY:
      failed = append_subarray(list, c, child);
      break;
    default:
      failed = -1;
  }
  release(child);
  if (failed) {
    sluice_fail(error, SLUICE_UNSUPPORTED, "a datatype made by constructor %d is not supported in files",
                combiner);
  }
  return failed;
}

// The predefined types of a value and an index have a hole where their C structs have one.
static void append_named(struct BlockList* list, MPI_Datatype type, int64_t size) {
#define SLUICE_PAIR(mpi_type, c_type)                        \
  if (type == mpi_type) {                                    \
    struct Pair {                                            \
      c_type value;                                          \
      int index;                                             \
    };                                                       \
    append(list, 0, sizeof(c_type));                         \
    append(list, offsetof(struct Pair, index), sizeof(int)); \
    return;                                                  \
  }
  SLUICE_PAIR(MPI_SHORT_INT, short)
  SLUICE_PAIR(MPI_LONG_INT, long)
  SLUICE_PAIR(MPI_DOUBLE_INT, double)
  SLUICE_PAIR(MPI_LONG_DOUBLE_INT, long double)
#undef SLUICE_PAIR
  append(list, 0, size);
}

static int build(MPI_Datatype type, struct TypeMap** map, struct SluiceError* error) {
  struct BlockList list = {0};
  struct Contents contents = {0};
  MPI_Count lower, extent, size;
  int combiner;
  int failed = 0;
  MPI_Type_get_extent_x(type, &lower, &extent);
  MPI_Type_size_x(type, &size);
  MPI_Type_get_envelope_c(type, &contents.integer_count, &contents.address_count, &contents.large_count,
                          &contents.type_count, &combiner);
  if (is_named(type)) {
    append_named(&list, type, size);
  } else if (get_contents(type, &contents)) {
    failed =
        sluice_fail(error, SLUICE_INVALID_ARGUMENT, "a datatype could not be taken apart; is it committed?");
  } else {
    failed = append_derived(&list, combiner, &contents, error);
  }
  free_contents(&contents);
  if (!failed) {
    *map = list.failed ? NULL : sluice_type_map_of_blocks(list.blocks, list.count, extent);
    if (!*map) {
      failed = sluice_fail(error, SLUICE_TOO_LARGE,
                           "a datatype selects too many pieces (more than %lld); use larger blocks",
                           (long long)SLUICE_MAX_TYPE_BLOCKS);
    }
  }
  free(list.blocks);
  return failed;
}

static int copy_attribute(MPI_Datatype type, int keyval, void* state, void* value, void* copy, int* flag) {
  (void)type, (void)keyval, (void)state;
  struct TypeMap* map = value;
  __atomic_add_fetch(&map->references, 1, __ATOMIC_RELAXED);
  *(void**)copy = map;
  *flag = 1;
  return MPI_SUCCESS;
}

static int delete_attribute(MPI_Datatype type, int keyval, void* value, void* state) {
  (void)type, (void)keyval, (void)state;
  release(value);
  return MPI_SUCCESS;
}

int sluice_type_map(MPI_Datatype type, const struct TypeMap** result, struct SluiceError* error) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static int keyval = MPI_KEYVAL_INVALID;
  struct TypeMap* map = NULL;
  int found = 0;

  if (is_named(type)) {
    if (build(type, &map, error)) {
      return -1;
    }
    *result = map;
    return 0;
  }
  pthread_mutex_lock(&mutex);
  if (keyval == MPI_KEYVAL_INVALID) {
    MPI_Type_create_keyval(copy_attribute, delete_attribute, &keyval, NULL);
  }
  MPI_Type_get_attr(type, keyval, &map, &found);
  int failed = 0;
  if (!found) {
    failed = build(type, &map, error);
    if (!failed) {
      MPI_Type_set_attr(type, keyval, map);  // the datatype holds the first reference
    }
  }
  if (!failed) {
    __atomic_add_fetch(&map->references, 1, __ATOMIC_RELAXED);
    *result = map;
  }
  pthread_mutex_unlock(&mutex);
  return failed;
}

void sluice_type_map_release(const struct TypeMap* map) {
  release((struct TypeMap*)map);
}

// ROMIO asks this about memory types and views; libmpich's answer is not for others to call. An empty type
// counts as contiguous: ROMIO's taking apart of distributed arrays relies on it.
void MPIR_Datatype_iscontig(MPI_Datatype type, int* flag) {
  struct SluiceError error;
  const struct TypeMap* map = NULL;
  *flag = 0;
  if (sluice_type_map(type, &map, &error) == 0) {
    *flag = map->contiguous || (map->size == 0 && map->extent == 0);
    sluice_type_map_release(map);
  }
}
