// Datatypes and file views taken apart, against libmpich's own packing of the same types.
//
//   type_map_test [SEED [TYPES]]

#include <stdint.h>

#include "adio/romio/type_map.h"
#include "adio/romio/view.h"
#include "tests/mpiio/check.h"

int check_failures, check_rank, check_ranks;

void MPIR_Datatype_iscontig(MPI_Datatype type, int* flag);

static uint64_t random_state;

static int pick(int low, int high) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return low + (int)(random_state % (uint64_t)(high - low + 1));
}

// One level over `inner`: every constructor of the standard, with small numbers, some of them zero or
// negative.
static MPI_Datatype wrap(MPI_Datatype inner) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int lengths[4], places[4];
  MPI_Aint bytes[4];
  MPI_Datatype types[4];
  MPI_Count large_lengths[4], large_places[4];
  const int count = pick(0, 4);
  for (int i = 0, place = pick(-2, 2); i < 4; i++) {
    lengths[i] = pick(0, 3);
    large_lengths[i] = lengths[i];
    places[i] = place;
    bytes[i] = place * 8;
    large_places[i] = place * 8;
    types[i] = i % 2 ? MPI_SHORT : inner;
    place += lengths[i] + pick(-1, 3);
  }
  switch (pick(0, 17)) {
    case 0:
      MPI_Type_contiguous(count, inner, &type);
      break;
    case 1:
      MPI_Type_vector(count, pick(0, 3), pick(-3, 4), inner, &type);
      break;
    case 2:
      MPI_Type_create_hvector(count, pick(0, 3), pick(-20, 40), inner, &type);
      break;
    case 3:
      MPI_Type_indexed(count, lengths, places, inner, &type);
      break;
    case 4:
      MPI_Type_create_hindexed(count, lengths, bytes, inner, &type);
      break;
    case 5:
      MPI_Type_create_indexed_block(count, pick(0, 2), places, inner, &type);
      break;
    case 6:
      MPI_Type_create_hindexed_block(count, pick(0, 2), bytes, inner, &type);
      break;
    case 7:
      MPI_Type_create_struct(count, lengths, bytes, types, &type);
      break;
    case 8:
      MPI_Type_create_resized(inner, pick(-8, 8), pick(0, 60), &type);
      break;
    case 9:
      MPI_Type_dup(inner, &type);
      break;
    case 10:
    case 11: {
      const int dims = pick(1, 3);
      int sizes[3], subsizes[3], starts[3];
      for (int i = 0; i < dims; i++) {
        sizes[i] = pick(1, 4);
        subsizes[i] = pick(1, sizes[i]);
        starts[i] = pick(0, sizes[i] - subsizes[i]);
      }
      MPI_Type_create_subarray(dims, sizes, subsizes, starts, pick(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN,
                               inner, &type);
      break;
    }
    case 12: {
      const int processes[2] = {pick(1, 2), pick(1, 2)};
      const int sizes[2] = {pick(2, 5), pick(2, 5)};
      const int kinds[2] = {pick(0, 1) ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC};
      const int arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, pick(1, 2)};
      const int all = processes[0] * processes[1];
      MPI_Type_create_darray(all, pick(0, all - 1), 2, sizes, kinds, arguments, processes, MPI_ORDER_C, inner,
                             &type);
      break;
    }
    case 13:
      MPI_Type_contiguous_c(count, inner, &type);
      break;
    case 14:
      MPI_Type_create_hvector_c(count, pick(0, 3), pick(0, 40), inner, &type);
      break;
    case 15:
      MPI_Type_create_hindexed_c(count, large_lengths, large_places, inner, &type);
      break;
    case 16:
      MPI_Type_create_struct_c(count, large_lengths, large_places, types, &type);
      break;
    default: {
      const MPI_Count sizes[2] = {3, 4}, subsizes[2] = {2, 2}, starts[2] = {pick(0, 1), pick(0, 2)};
      MPI_Type_create_subarray_c(2, sizes, subsizes, starts, MPI_ORDER_C, inner, &type);
    }
  }
  return type;
}

static MPI_Datatype random_type(void) {
  static const MPI_Datatype kNamed[] = {MPI_BYTE, MPI_INT, MPI_DOUBLE, MPI_SHORT};
  MPI_Datatype type = kNamed[pick(0, 3)];
  int first = 1;
  for (int depth = pick(1, 3); depth > 0; depth--) {
    MPI_Datatype outer = wrap(type);
    int size;
    MPI_Type_size(outer, &size);
    if (size == 0 && depth > 1) {
      MPI_Type_free(&outer);  // libmpich's packing divides by the size of what is inside
      depth++;
      continue;
    }
    if (!first) {
      MPI_Type_free(&type);
    }
    type = outer;
    first = 0;
  }
  MPI_Type_commit(&type);
  return type;
}

enum { kSpan = 1 << 16 };

// The offsets of a type's bytes in their order, from packing buffers that hold each byte's own place.
static int64_t packed_offsets(MPI_Datatype type, int32_t* offsets, int64_t limit) {
  static unsigned char low[2 * kSpan], high[2 * kSpan], packed_low[kSpan], packed_high[kSpan];
  int position_low = 0, position_high = 0;
  for (int i = 0; i < 2 * kSpan; i++) {
    low[i] = (unsigned char)(i & 255);
    high[i] = (unsigned char)((i >> 8) & 255);
  }
  int size;
  MPI_Aint lower, reach;
  MPI_Type_size(type, &size);
  MPI_Type_get_true_extent(type, &lower, &reach);
  if (size == 0) {
    return 0;
  }
  if (size > limit || lower < -kSpan / 2 || lower + reach > kSpan / 2) {
    return -1;  // two bytes cannot say where
  }
  // From the middle, so that negative offsets have a place.
  MPI_Pack(low + kSpan, 1, type, packed_low, kSpan, &position_low, MPI_COMM_SELF);
  MPI_Pack(high + kSpan, 1, type, packed_high, kSpan, &position_high, MPI_COMM_SELF);
  for (int i = 0; i < size; i++) {
    offsets[i] = (int16_t)(packed_low[i] | packed_high[i] << 8);
  }
  return size;
}

static void check_map(MPI_Datatype type) {
  static int32_t expected[kSpan];
  struct SluiceError error = {0};
  const struct TypeMap* map = NULL;
  MPI_Aint lower, extent;
  MPI_Type_get_extent(type, &lower, &extent);
  const int64_t size = packed_offsets(type, expected, kSpan / 4);
  if (size < 0) {
    return;
  }
  CHECK(sluice_type_map(type, &map, &error) == 0, "%s", error.message);
  CHECK_EQ(map->size, size);
  CHECK_EQ(map->extent, extent);
  int64_t at = 0;
  for (int64_t b = 0; b < map->count; b++) {
    CHECK_EQ(map->blocks[b].before, at);
    for (int64_t i = 0; i < map->blocks[b].length && at < size; i++, at++) {
      if (map->blocks[b].offset + i != expected[at]) {
        CHECK_EQ(map->blocks[b].offset + i, expected[at]);
        b = map->count;
        break;
      }
    }
  }
  CHECK_EQ(at, size);
  int flag = 0;
  MPIR_Datatype_iscontig(type, &flag);
  CHECK_EQ(flag, size == 0 ? extent == 0 : map->count == 1 && map->blocks[0].offset == 0 && extent == size);
  sluice_type_map_release(map);
}

// Byte by byte: where position `at` of a row of instances is.
static int64_t slow_offset(const struct TypeMap* map, int64_t at) {
  const int64_t within = at % map->size;
  for (int64_t b = 0; b < map->count; b++) {
    if (within < map->blocks[b].before + map->blocks[b].length) {
      return at / map->size * map->extent + map->blocks[b].offset + within - map->blocks[b].before;
    }
  }
  return -1;
}

static void check_walk(const struct View* view, int64_t position, const struct TypeMap* memory,
                       int64_t bytes) {
  struct SluiceError error = {0};
  struct Walk walk;
  char* const base = (char*)(uintptr_t)(1 << 30);  // only counted with, never touched
  CHECK(sluice_walk_start(&walk, view, position, memory, 0, base, bytes, &error) == 0, "%s", error.message);
  int64_t at = 0;
  struct Batch* batch = sluice_batch_new(&walk);
  CHECK(batch != NULL, "no memory");
  while (sluice_walk_next(&walk, batch)) {
    int64_t in_extents = at, in_pieces = at;
    CHECK(batch->extent_count <= SLUICE_BATCH_ENTRIES && batch->piece_count <= SLUICE_BATCH_ENTRIES,
          "too many entries");
    for (size_t e = 0; e < batch->extent_count; e++) {
      CHECK(batch->extents[e].begin < batch->extents[e].end, "an empty extent");
      for (uint64_t o = batch->extents[e].begin; o < batch->extents[e].end; o++, in_extents++) {
        if ((int64_t)o != view->displacement + slow_offset(view->filetype, position + in_extents)) {
          CHECK_EQ(o, view->displacement + slow_offset(view->filetype, position + in_extents));
          return;
        }
      }
    }
    for (size_t p = 0; p < batch->piece_count; p++) {
      for (uint64_t i = 0; i < batch->pieces[p].bytes; i++, in_pieces++) {
        if ((char*)batch->pieces[p].data + i != base + slow_offset(memory, in_pieces)) {
          CHECK(0, "piece %zu of the batch at %lld is elsewhere", p, (long long)at);
          return;
        }
      }
    }
    CHECK_EQ(in_extents, in_pieces);
    CHECK_EQ(in_extents - at, batch->bytes);
    at = in_extents;
  }
  CHECK_EQ(at, bytes);
  sluice_batch_free(batch);
}

static void check_random_walk(MPI_Datatype file_type, MPI_Datatype memory_type) {
  struct SluiceError error = {0};
  const struct TypeMap *file, *memory;
  if (sluice_type_map(file_type, &file, &error) || sluice_type_map(memory_type, &memory, &error)) {
    CHECK(0, "%s", error.message);
    return;
  }
  if (file->size > 0 && memory->size > 0 && sluice_check_view_type(file, "filetype", 1, &error) == 0) {
    const struct View view = {pick(0, 100), file};
    const int64_t position = pick(0, 300);
    check_walk(&view, position, memory, memory->size * pick(0, 1 + 5000 / (int)memory->size));
    // A position and its offset lead back to each other.
    const int64_t offset = sluice_view_offset(&view, position);
    CHECK_EQ(offset, view.displacement + slow_offset(file, position));
    if (file->extent >= file->last - file->first) {
      CHECK_EQ(sluice_view_position(&view, offset), position);
    }
  }
  sluice_type_map_release(file);
  sluice_type_map_release(memory);
}

// Overlap told by the map is overlap found by marking the bytes of three instances.
static void check_overlap(MPI_Datatype type) {
  static unsigned char seen[4 * kSpan];
  struct SluiceError error = {0};
  const struct TypeMap* map;
  if (sluice_type_map(type, &map, &error) || map->size == 0 || map->size > 500 || map->first < 0 ||
      map->extent <= 0 || map->last - map->first > 8 * map->extent ||
      12 * map->extent + map->last > (int64_t)sizeof seen) {
    return;
  }
  memset(seen, 0, sizeof seen);
  int overlap = 0;
  for (int64_t at = 0; at < 12 * map->size; at++) {
    overlap |= seen[slow_offset(map, at)]++ > 0;
  }
  CHECK_EQ(map->overlapping, overlap);
  sluice_type_map_release(map);
}

static void check_large(void) {
  // A view with 3 GiB in each of its blocks, far behind 2^31: offsets and counts stay whole.
  const int64_t gib = INT64_C(1) << 30;
  const struct TypeBlock blocks[2] = {{.offset = 0, .length = 3 * gib},
                                      {.offset = 5 * gib, .length = 3 * gib}};
  struct TypeMap* map = sluice_type_map_of_blocks(blocks, 2, 10 * gib);
  const struct View view = {7, map};
  CHECK_EQ(sluice_view_offset(&view, 6 * gib * 100 + 4 * gib), 7 + 1000 * gib + 6 * gib);
  CHECK_EQ(sluice_view_position(&view, 7 + 1000 * gib + 6 * gib), 604 * gib);
  CHECK_EQ(sluice_view_position(&view, 7 + 1000 * gib + 4 * gib), 603 * gib);
  struct SluiceError error = {0};
  struct Walk walk;
  CHECK(sluice_walk_start(&walk, &view, (INT64_C(1) << 61) * 3 / 2, map, 0, NULL, 6 * gib, &error) != 0,
        "beyond 2^62");
  CHECK_EQ(error.code, SLUICE_TOO_LARGE);
  sluice_type_map_release(map);
}

static void check_resized_below_its_lower_bound(void) {
  MPI_Datatype type;
  struct SluiceError error = {0};
  const struct TypeMap* map;
  MPI_Type_create_resized(MPI_INT, 4, 12, &type);
  MPI_Type_commit(&type);
  CHECK(sluice_type_map(type, &map, &error) == 0, "%s", error.message);
  const struct View view = {0, map};
  CHECK_EQ(sluice_view_offset(&view, 4), 12);
  CHECK_EQ(sluice_view_offset(&view, 15), 39);
  sluice_type_map_release(map);
  MPI_Type_free(&type);
}

int main(int argc, char** argv) {
  check_start(&argc, &argv);
  const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20240601;
  const int types = argc > 2 ? atoi(argv[2]) : 3000;
  random_state = seed * 0x9e3779b97f4a7c15u + 1;
  printf("seed %llu\n", (unsigned long long)seed);
  for (int i = 0; i < types && check_failures == 0; i++) {
    MPI_Datatype type = random_type();
    MPI_Datatype other = random_type();
    check_map(type);
    check_overlap(type);
    check_random_walk(type, other);
    if (check_failures) {
      fprintf(stderr, "type %d of seed %llu\n", i, (unsigned long long)seed);
    }
    MPI_Type_free(&type);
    MPI_Type_free(&other);
  }
  check_large();
  check_resized_below_its_lower_bound();
  return check_finish();
}
