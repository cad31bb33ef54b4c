// Two-phase I/O. The range of the file that an access touches is cut into one domain for each rank, and each
// domain into windows. Window by window the ranks exchange pieces by their file offsets, and each rank
// writes, or has read, what its own window holds in runs as long as they come.

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"

enum { kLargestWindow = 4 << 20, kSmallestWindow = 64 << 10 };

struct Plan {
  MPI_Comm comm;
  int rank, ranks;
  int64_t begin, end;  // of what all ranks touch
  int64_t domain;      // bytes of one rank's domain
  int64_t window;
};

// A piece within a window.
struct Piece {
  uint32_t offset;
  uint32_t length;
};

// What goes to, or comes from, each rank in one round: counts and places of pieces, and of their bytes.
struct Lists {
  int* piece_counts;
  int* piece_places;
  int* byte_counts;
  int* byte_places;
  struct Piece* pieces;
  char* bytes;
};

struct Round {
  const struct Plan* plan;
  struct SluiceState* state;
  const struct SluiceRequest* request;
  struct Lists mine;    // my pieces, by the rank whose window they lie in
  struct Lists theirs;  // the pieces of my window, by the rank that they belong to
  char* window;
  char* covered;  // by byte of the window
  MPI_Datatype piece_type;
};

int sluice_wants_two_phase(ADIO_File fd, enum SluiceDirection direction) {
  const int hint = direction == SLUICE_TO_FILE ? fd->hints->cb_write : fd->hints->cb_read;
  int ranks;
  MPI_Comm_size(fd->comm, &ranks);
  return sluice_state(fd)->fine_grained && !fd->atomicity && hint != ADIOI_HINT_DISABLE && ranks > 1;
}

static int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Collective. Answers 0 when the pieces are so far apart that nothing is gained.
static int make_plan(ADIO_File fd, const struct SluiceRequest* request, struct Plan* plan) {
  int64_t mine[3] = {INT64_MIN, 0, request->bytes};
  int64_t all[3];
  if (request->bytes > 0) {
    mine[0] = -sluice_view_offset(&request->view, request->position);
    mine[1] = sluice_view_offset(&request->view, request->position + request->bytes - 1) + 1;
  }
  *plan = (struct Plan){.comm = fd->comm};
  MPI_Comm_rank(fd->comm, &plan->rank);
  MPI_Comm_size(fd->comm, &plan->ranks);
  MPI_Allreduce(mine, all, 3, MPI_INT64_T, MPI_MAX, fd->comm);
  if (all[2] == 0) {
    return 0;
  }
  plan->begin = -all[0];
  plan->end = all[1];
  const int64_t span = plan->end - plan->begin;
  const int64_t chunk = fd->blksize >= kSmallestWindow ? fd->blksize : kSmallestWindow;
  // Domains begin at chunks, so that no chunk is written by two ranks.
  plan->begin = plan->begin / chunk * chunk;
  plan->domain = round_up((plan->end - plan->begin + plan->ranks - 1) / plan->ranks, chunk);
  // All that comes in one round is counted in an int.
  plan->window = kLargestWindow;
  while (plan->window > kSmallestWindow && plan->window > INT_MAX / 2 / plan->ranks) {
    plan->window /= 2;
  }
  return span / plan->ranks / 2 <= all[2];
}

static int64_t window_begin(const struct Plan* plan, int rank, int64_t round) {
  return plan->begin + rank * plan->domain + round * plan->window;
}

static int64_t window_end(const struct Plan* plan, int rank, int64_t round) {
  const int64_t end = window_begin(plan, rank, round) + plan->window;
  const int64_t domain_end = plan->begin + (rank + 1) * plan->domain;
  return end < domain_end ? end : domain_end;
}

// The part of my data that lies in a rank's window of this round, as positions of the view.
static void my_part(const struct Round* round, int rank, int64_t number, int64_t* from, int64_t* to) {
  const struct SluiceRequest* request = round->request;
  const int64_t last = request->position + request->bytes;
  *from = *to = request->position;
  if (request->bytes > 0) {
    *from = sluice_view_position(&request->view, window_begin(round->plan, rank, number));
    *to = sluice_view_position(&request->view, window_end(round->plan, rank, number));
    *from = *from < request->position ? request->position : *from > last ? last : *from;
    *to = *to < *from ? *from : *to > last ? last : *to;
  }
}

static int grow(void** memory, size_t bytes, struct SluiceError* error) {
  void* grown = realloc(*memory, bytes + 1);
  if (!grown) {
    return sluice_fail(error, SLUICE_INTERNAL, "out of memory to exchange %zu bytes between ranks", bytes);
  }
  *memory = grown;
  return 0;
}

// Copies between a batch's pieces of memory and a row of bytes, in order; at most `limit` bytes.
static int64_t copy_pieces(const struct Batch* batch, char* row, int64_t limit,
                           enum SluiceDirection direction) {
  int64_t done = 0;
  for (size_t i = 0; i < batch->piece_count && done < limit; i++) {
    const int64_t left = limit - done;
    const int64_t bytes = (int64_t)batch->pieces[i].bytes < left ? (int64_t)batch->pieces[i].bytes : left;
    if (direction == SLUICE_TO_FILE) {
      memcpy(row + done, batch->pieces[i].data, (size_t)bytes);
    } else {
      memcpy(batch->pieces[i].data, row + done, (size_t)bytes);
    }
    done += bytes;
  }
  return done;
}

static int start_part(const struct Round* round, int64_t from, int64_t to, struct Walk* walk,
                      struct Batch** batch, struct SluiceError* error) {
  const struct SluiceRequest* request = round->request;
  if (sluice_walk_start(walk, &request->view, from, request->memory, from - request->position,
                        request->buffer, to - from, error)) {
    return -1;
  }
  *batch = sluice_batch_new(walk);
  return *batch ? 0 : sluice_fail(error, SLUICE_INTERNAL, "out of memory for a list of extents");
}

// Lists my pieces of one rank's window, and for a write their bytes, behind those already listed.
static int list_part(struct Round* round, int rank, int64_t number, struct SluiceError* error) {
  struct Lists* mine = &round->mine;
  const int64_t origin = window_begin(round->plan, rank, number);
  int64_t from, to;
  struct Walk walk;
  struct Batch* batch = NULL;
  my_part(round, rank, number, &from, &to);
  if (from == to) {
    return 0;
  }
  int failed = start_part(round, from, to, &walk, &batch, error);
  while (!failed && sluice_walk_next(&walk, batch)) {
    const size_t pieces = (size_t)(mine->piece_places[rank] + mine->piece_counts[rank]);
    const size_t bytes = (size_t)(mine->byte_places[rank] + mine->byte_counts[rank]);
    failed = grow((void**)&mine->pieces, (pieces + batch->extent_count) * sizeof(struct Piece), error) ||
             grow((void**)&mine->bytes, bytes + (size_t)batch->bytes, error);
    if (failed) {
      break;
    }
    for (size_t i = 0; i < batch->extent_count; i++) {
      mine->pieces[pieces + i] = (struct Piece){(uint32_t)((int64_t)batch->extents[i].begin - origin),
                                                (uint32_t)(batch->extents[i].end - batch->extents[i].begin)};
    }
    if (round->request->direction == SLUICE_TO_FILE) {
      copy_pieces(batch, mine->bytes + bytes, batch->bytes, SLUICE_TO_FILE);
    }
    mine->piece_counts[rank] += (int)batch->extent_count;
    mine->byte_counts[rank] += (int)batch->bytes;
  }
  sluice_batch_free(batch);
  return failed;
}

static void list_all(struct Round* round, int64_t number, struct SluiceError* error) {
  struct Lists* mine = &round->mine;
  for (int rank = 0; rank < round->plan->ranks; rank++) {
    mine->piece_places[rank] = rank ? mine->piece_places[rank - 1] + mine->piece_counts[rank - 1] : 0;
    mine->byte_places[rank] = rank ? mine->byte_places[rank - 1] + mine->byte_counts[rank - 1] : 0;
    mine->piece_counts[rank] = mine->byte_counts[rank] = 0;
    if (error->code == SLUICE_OK) {
      list_part(round, rank, number, error);
    }
  }
}

static int places(const int* counts, int* at, int ranks) {
  int sum = 0;
  for (int rank = 0; rank < ranks; rank++) {
    at[rank] = sum;
    sum += counts[rank];
  }
  return sum;
}

// Collective: my pieces to their windows' ranks, theirs to me. A rank that failed before, or has no room for
// what comes, makes all ranks give up here.
static int exchange_pieces(struct Round* round, struct SluiceError* error) {
  const struct Plan* plan = round->plan;
  struct Lists* mine = &round->mine;
  struct Lists* theirs = &round->theirs;
  MPI_Alltoall(mine->piece_counts, 1, MPI_INT, theirs->piece_counts, 1, MPI_INT, plan->comm);
  MPI_Alltoall(mine->byte_counts, 1, MPI_INT, theirs->byte_counts, 1, MPI_INT, plan->comm);
  const int pieces = places(theirs->piece_counts, theirs->piece_places, plan->ranks);
  const int bytes = places(theirs->byte_counts, theirs->byte_places, plan->ranks);
  if (grow((void**)&theirs->pieces, (size_t)pieces * sizeof(struct Piece), error) == 0) {
    grow((void**)&theirs->bytes, (size_t)bytes, error);
  }
  if (sluice_agree(plan->comm, error)) {
    return -1;
  }
  MPI_Alltoallv(mine->pieces, mine->piece_counts, mine->piece_places, round->piece_type, theirs->pieces,
                theirs->piece_counts, theirs->piece_places, round->piece_type, plan->comm);
  return 0;
}

static void exchange_bytes(struct Lists* from, struct Lists* to, MPI_Comm comm) {
  MPI_Alltoallv(from->bytes, from->byte_counts, from->byte_places, MPI_BYTE, to->bytes, to->byte_counts,
                to->byte_places, MPI_BYTE, comm);
}

// Marks the window's bytes that somebody wants, and for a write fills them in.
static void gather_window(struct Round* round) {
  const struct Lists* theirs = &round->theirs;
  memset(round->covered, 0, (size_t)round->plan->window);
  for (int rank = 0; rank < round->plan->ranks; rank++) {
    const char* bytes = theirs->bytes + theirs->byte_places[rank];
    for (int i = 0; i < theirs->piece_counts[rank]; i++) {
      const struct Piece piece = theirs->pieces[theirs->piece_places[rank] + i];
      memset(round->covered + piece.offset, 1, piece.length);
      if (round->request->direction == SLUICE_TO_FILE) {
        memcpy(round->window + piece.offset, bytes, piece.length);
        bytes += piece.length;
      }
    }
  }
}

// The next run of covered bytes from `at` on; 0 when there is none.
static int next_run(const struct Round* round, int64_t* at, int64_t* length) {
  const char* end = round->covered + round->plan->window;
  const char* first = memchr(round->covered + *at, 1, (size_t)(end - (round->covered + *at)));
  if (!first) {
    return 0;
  }
  const char* last = memchr(first, 0, (size_t)(end - first));
  *at = first - round->covered;
  *length = (last ? last : end) - first;
  return 1;
}

static int write_window(struct Round* round, int64_t origin, struct SluiceError* error) {
  enum { kRuns = 4096 };
  struct SluiceExtent* extents = malloc(kRuns * sizeof *extents);
  struct SluicePiece* pieces = malloc(kRuns * sizeof *pieces);
  int64_t at = 0, length = 0;
  int more = 1;
  int failed =
      extents && pieces ? 0 : sluice_fail(error, SLUICE_INTERNAL, "out of memory for a list of extents");
  while (!failed && more) {
    size_t count = 0;
    uint64_t done;
    while (count < kRuns && (more = next_run(round, &at, &length))) {
      extents[count] = (struct SluiceExtent){(uint64_t)(origin + at), (uint64_t)(origin + at + length)};
      pieces[count++] = (struct SluicePiece){round->window + at, (uint64_t)length};
      at += length;
    }
    if (count > 0) {
      failed = round->state->abi->write(round->state->file, extents, count, pieces, count, &done, error);
    }
  }
  free(extents);
  free(pieces);
  return failed;
}

// Reads from the first wanted byte of the window to the last. Answers how far the window is valid.
static int64_t read_window(struct Round* round, int64_t origin, struct SluiceError* error) {
  int64_t at = 0, length = 0, first = -1, last = 0;
  while (next_run(round, &at, &length)) {
    first = first < 0 ? at : first;
    last = at + length;
    at = last;
  }
  if (first < 0) {
    return 0;
  }
  uint64_t done = 0;
  const struct SluiceExtent extent = {(uint64_t)(origin + first), (uint64_t)(origin + last)};
  const struct SluicePiece piece = {round->window + first, (uint64_t)(last - first)};
  round->state->abi->read(round->state->file, &extent, 1, &piece, 1, &done, error);
  return first + (int64_t)done;
}

// Puts what each rank asked for behind each other, up to the end of what is valid.
static void scatter_window(struct Round* round, int64_t valid) {
  struct Lists* theirs = &round->theirs;
  for (int rank = 0; rank < round->plan->ranks; rank++) {
    char* bytes = theirs->bytes + theirs->byte_places[rank];
    int64_t done = 0;
    for (int i = 0; i < theirs->piece_counts[rank]; i++) {
      const struct Piece piece = theirs->pieces[theirs->piece_places[rank] + i];
      if (piece.offset >= valid) {
        break;  // pieces rise: the rest lies beyond the end of the file
      }
      const int64_t there = valid - piece.offset < piece.length ? valid - piece.offset : piece.length;
      memcpy(bytes + done, round->window + piece.offset, (size_t)there);
      done += there;
    }
    theirs->byte_counts[rank] = (int)done;
  }
}

// The bytes that came for my pieces, into my memory.
static void take_bytes(struct Round* round, int64_t number, int64_t* done, struct SluiceError* error) {
  const struct Lists* mine = &round->mine;
  for (int rank = 0; rank < round->plan->ranks && error->code == SLUICE_OK; rank++) {
    int64_t from, to, taken = 0;
    struct Walk walk;
    struct Batch* batch = NULL;
    if (mine->byte_counts[rank] == 0) {
      continue;
    }
    my_part(round, rank, number, &from, &to);
    if (start_part(round, from, to, &walk, &batch, error) == 0) {
      while (taken < mine->byte_counts[rank] && sluice_walk_next(&walk, batch)) {
        taken += copy_pieces(batch, mine->bytes + mine->byte_places[rank] + taken,
                             mine->byte_counts[rank] - taken, SLUICE_FROM_FILE);
      }
    }
    sluice_batch_free(batch);
    *done += taken;
  }
}

// Collective. Answers -1, on all ranks, when one of them has failed before the exchange.
static int run_round(struct Round* round, int64_t number, int64_t* done, struct SluiceError* error) {
  const struct Plan* plan = round->plan;
  const int64_t origin = window_begin(plan, plan->rank, number);
  list_all(round, number, error);
  if (exchange_pieces(round, error)) {
    return -1;
  }
  if (round->request->direction == SLUICE_TO_FILE) {
    exchange_bytes(&round->mine, &round->theirs, plan->comm);
    gather_window(round);
    write_window(round, origin, error);
    return 0;
  }
  gather_window(round);
  scatter_window(round, read_window(round, origin, error));
  MPI_Alltoall(round->theirs.byte_counts, 1, MPI_INT, round->mine.byte_counts, 1, MPI_INT, plan->comm);
  exchange_bytes(&round->theirs, &round->mine, plan->comm);
  take_bytes(round, number, done, error);
  return 0;
}

static int round_start(struct Round* round, struct SluiceError* error) {
  const size_t counts = 4 * (size_t)round->plan->ranks;
  struct Lists* lists[2] = {&round->mine, &round->theirs};
  for (int i = 0; i < 2; i++) {
    int* numbers = calloc(counts, sizeof *numbers);
    lists[i]->piece_counts = numbers;
    lists[i]->piece_places = numbers + counts / 4;
    lists[i]->byte_counts = numbers + counts / 2;
    lists[i]->byte_places = numbers + counts / 4 * 3;
  }
  round->window = malloc((size_t)round->plan->window);
  round->covered = malloc((size_t)round->plan->window);
  MPI_Type_contiguous((int)sizeof(struct Piece), MPI_BYTE, &round->piece_type);
  MPI_Type_commit(&round->piece_type);
  if (!round->mine.piece_counts || !round->theirs.piece_counts || !round->window || !round->covered) {
    return sluice_fail(error, SLUICE_INTERNAL, "out of memory for a window of %lld bytes",
                       (long long)round->plan->window);
  }
  return 0;
}

static void round_end(struct Round* round) {
  struct Lists* lists[2] = {&round->mine, &round->theirs};
  for (int i = 0; i < 2; i++) {
    free(lists[i]->piece_counts);  // the other counts are behind it
    free(lists[i]->pieces);
    free(lists[i]->bytes);
  }
  free(round->window);
  free(round->covered);
  MPI_Type_free(&round->piece_type);
}

void sluice_two_phase(ADIO_File fd, const struct SluiceRequest* request, int64_t* done,
                      struct SluiceError* error) {
  struct Plan plan;
  *done = 0;
  if (!make_plan(fd, request, &plan)) {
    if (error->code == SLUICE_OK) {
      sluice_carry_out(fd, request, done, error);
    }
    return;
  }
  struct Round round = {.plan = &plan, .state = sluice_state(fd), .request = request};
  round_start(&round, error);
  if (sluice_agree(plan.comm, error) == 0) {
    const int64_t longest = plan.domain < plan.end - plan.begin ? plan.domain : plan.end - plan.begin;
    for (int64_t number = 0; number * plan.window < longest; number++) {
      if (run_round(&round, number, done, error)) {
        break;
      }
    }
    if (request->direction == SLUICE_TO_FILE && error->code == SLUICE_OK) {
      *done = request->bytes;
    }
  }
  round_end(&round);
}
