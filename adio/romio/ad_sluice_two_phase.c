// The exchange of two-phase I/O: in rounds over the domains of the plan (plan.h) the ranks exchange pieces by
// their file offsets, and each aggregator writes, or has read, what its own window holds in runs as long as
// they come. Of an access that is not dense, rounds in which no rank has data are left out.
//
// Memory of one rank: its own part of a round (at most SLUICE_LARGEST_ROUND of data, and SLUICE_PIECE_BYTES
// for each piece of it: for pieces of a byte eight times the data), and as an aggregator its window and what
// it takes of others in one turn, pieces counted, whatever the number of ranks; besides, some counters for
// each rank.

#define _GNU_SOURCE

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"

// A piece within a window.
struct Piece {
  uint32_t offset;
  uint32_t length;
};
_Static_assert(sizeof(struct Piece) == SLUICE_PIECE_BYTES, "the planner counts them");

// What goes to, or comes from, each rank: its share of a round, and counts and places of what moves in the
// turn under way.
struct Lists {
  struct SluiceShare* shares;
  int* turns;
  int* piece_counts;
  int* piece_places;
  int* byte_counts;
  int* byte_places;
  struct Piece* pieces;
  char* bytes;
  size_t piece_room, byte_room;
};

// An aggregator's window; `covered` says which bytes between low and high somebody has, or wants.
struct Window {
  int64_t columns;
  int64_t low, high;
  char* data;
  char* covered;
  size_t room, covered_room;
};

struct Exchange {
  ADIO_File fd;
  const struct SluiceDomains* domains;
  const struct SluiceRequest* request;
  int rank, ranks;
  int64_t number;       // of the round
  int64_t begin, end;   // of what this rank touches in the file
  struct Batch* batch;  // NULL on a rank without data
  struct Lists mine;    // my pieces, by the rank whose window they lie in
  struct Lists theirs;  // the pieces of my window, by the rank that they belong to
  struct Window window;
  MPI_Datatype piece_type;
  int64_t exchanged;  // bytes that went from here to other ranks
};

static int writes(const struct Exchange* x) {
  return x->request->direction == SLUICE_TO_FILE;
}

static int aggregators(const struct Exchange* x) {
  return (int)x->domains->aggregators;
}

static int grow(void** memory, size_t* room, size_t bytes, struct SluiceError* error) {
  if (bytes <= *room) {
    return 0;
  }
  const size_t wanted = bytes > *room + *room / 2 ? bytes : *room + *room / 2;
  void* grown = realloc(*memory, wanted);
  if (!grown) {
    return sluice_fail(error, SLUICE_INTERNAL, "out of memory to exchange %zu bytes between ranks", bytes);
  }
  *memory = grown;
  *room = wanted;
  return 0;
}

static int grow_lists(struct Lists* lists, size_t pieces, size_t bytes, struct SluiceError* error) {
  return grow((void**)&lists->pieces, &lists->piece_room, pieces * sizeof(struct Piece), error) ||
         grow((void**)&lists->bytes, &lists->byte_room, bytes, error);
}

// The part of my data that lies in a column, as positions of the view.
static void my_part(const struct Exchange* x, int64_t column, int64_t* from, int64_t* to) {
  const struct SluiceRequest* request = x->request;
  const int64_t first = request->position;
  const int64_t last = request->position + request->bytes;
  *from = *to = first;
  if (column < x->end && column + x->domains->chunk > x->begin) {
    *from = sluice_view_position(&request->view, column);
    *to = sluice_view_position(&request->view, column + x->domains->chunk);
    *from = *from < first ? first : *from > last ? last : *from;
    *to = *to < *from ? *from : *to > last ? last : *to;
  }
}

static void start_part(const struct Exchange* x, int64_t from, int64_t to, struct Walk* walk) {
  const struct SluiceRequest* request = x->request;
  struct SluiceError none = {0};  // the walk over the whole access was started before
  sluice_walk_start(walk, &request->view, from, request->memory, from - request->position, request->buffer,
                    to - from, &none);
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

// Lists my pieces of one column, and for a write their bytes, behind those already listed. `origin` is what
// the offset 0 of the column's window would be in the file.
static int list_column(struct Exchange* x, int rank, int64_t column, int64_t origin,
                       struct SluiceError* error) {
  struct Lists* mine = &x->mine;
  int64_t from, to;
  struct Walk walk;
  my_part(x, column, &from, &to);
  if (from == to) {
    return 0;
  }
  start_part(x, from, to, &walk);
  while (sluice_walk_next(&walk, x->batch)) {
    const struct Batch* batch = x->batch;
    struct SluiceShare* share = &mine->shares[rank];
    struct Piece* at;
    const size_t pieces = (size_t)(mine->piece_places[rank] + share->pieces);
    const size_t bytes = (size_t)(mine->byte_places[rank] + share->bytes);
    if (grow_lists(mine, pieces + batch->extent_count, bytes + (size_t)batch->bytes, error)) {
      return -1;
    }
    at = mine->pieces + pieces;
    for (size_t i = 0; i < batch->extent_count; i++) {
      at[i] = (struct Piece){(uint32_t)((int64_t)batch->extents[i].begin - origin),
                             (uint32_t)(batch->extents[i].end - batch->extents[i].begin)};
    }
    if (writes(x)) {
      copy_pieces(batch, mine->bytes + bytes, batch->bytes, SLUICE_TO_FILE);
    }
    share->pieces += (int32_t)batch->extent_count;
    share->bytes += (int32_t)batch->bytes;
  }
  return 0;
}

static void list_round(struct Exchange* x, struct SluiceError* error) {
  struct Lists* mine = &x->mine;
  int pieces = 0, bytes = 0;
  memset(mine->shares, 0, (size_t)x->ranks * sizeof *mine->shares);
  for (int a = 0; a < aggregators(x) && x->batch && error->code == SLUICE_OK; a++) {
    const int rank = x->fd->hints->ranklist[a];
    const int64_t columns = sluice_window_columns(x->domains, x->number, a);
    mine->piece_places[rank] = pieces;
    mine->byte_places[rank] = bytes;
    for (int64_t i = 0; i < columns && error->code == SLUICE_OK; i++) {
      const int64_t column = sluice_window_column(x->domains, x->number, a, i);
      list_column(x, rank, column, column - i * x->domains->chunk, error);
    }
    pieces += mine->shares[rank].pieces;
    bytes += mine->shares[rank].bytes;
  }
}

// The next round in which this rank has data; all that follow have some where they are spread.
static int64_t my_next_round(const struct Exchange* x) {
  const struct SluiceRequest* request = x->request;
  if (x->domains->spread) {
    return x->number + 1 < sluice_plan_rounds(x->domains) ? x->number + 1 : INT64_MAX;
  }
  const int64_t end = sluice_plan_round_end(x->domains, x->number);
  if (!x->batch || end >= x->end) {
    return INT64_MAX;
  }
  int64_t position = sluice_view_position(&request->view, end);
  position = position > request->position ? position : request->position;
  return sluice_plan_round(x->domains, sluice_view_offset(&request->view, position));
}

// What comes to me in the largest turn must have room.
static void take_room(struct Exchange* x, int turns, struct SluiceError* error) {
  struct Lists* theirs = &x->theirs;
  size_t pieces = 0, bytes = 0;
  int turn = 0;
  for (int rank = 0; rank < x->ranks && error->code == SLUICE_OK; rank++) {
    if (theirs->turns[rank] != turn) {
      turn = theirs->turns[rank];
      pieces = bytes = 0;
    }
    pieces += (size_t)theirs->shares[rank].pieces;
    bytes += (size_t)theirs->shares[rank].bytes;
    grow_lists(theirs, pieces, bytes, error);
  }
  struct Window* window = &x->window;
  window->low = window->high = 0;
  if (turns > 1 || pieces > 0) {
    const size_t size = (size_t)(window->columns * x->domains->chunk);
    if (error->code == SLUICE_OK && grow((void**)&window->data, &window->room, size, error) == 0) {
      grow((void**)&window->covered, &window->covered_room, size, error);
    }
  }
}

// Collective: everybody learns what comes to it, and in how many turns; and which round is next. A rank that
// failed before, or has no room for what comes, makes all ranks give up here.
static int agree_on_round(struct Exchange* x, int* turns, int64_t* next, struct SluiceError* error) {
  MPI_Comm comm = x->fd->comm;
  MPI_Alltoall(x->mine.shares, 2, MPI_INT32_T, x->theirs.shares, 2, MPI_INT32_T, comm);
  const int64_t room = 4 * sluice_plan_window(x->fd->hints->cb_buffer_size, x->domains->chunk);
  const int mine_turns = sluice_plan_turns(x->theirs.shares, x->ranks, room, x->theirs.turns);
  const int self = x->fd->my_cb_nodes_index;
  x->window.columns = self >= 0 ? sluice_window_columns(x->domains, x->number, self) : 0;
  take_room(x, mine_turns, error);
  const int64_t mine[3] = {error->code != SLUICE_OK, mine_turns, -my_next_round(x)};
  int64_t all[3];
  MPI_Allreduce(mine, all, 3, MPI_INT64_T, MPI_MAX, comm);
  if (all[0]) {
    return sluice_agree(comm, error);
  }
  *turns = (int)all[1];
  *next = -all[2];
  if (*turns > 1) {
    MPI_Alltoall(x->theirs.turns, 1, MPI_INT, x->mine.turns, 1, MPI_INT, comm);
  } else {
    memset(x->mine.turns, 0, (size_t)x->ranks * sizeof *x->mine.turns);
  }
  return 0;
}

// Counts of what moves in a turn. My own places stay; what comes is put behind each other.
static void start_turn(struct Exchange* x, int turn) {
  struct Lists* lists[2] = {&x->mine, &x->theirs};
  int pieces = 0, bytes = 0;
  for (int i = 0; i < 2; i++) {
    for (int rank = 0; rank < x->ranks; rank++) {
      const int moves = lists[i]->turns[rank] == turn;
      lists[i]->piece_counts[rank] = moves ? lists[i]->shares[rank].pieces : 0;
      lists[i]->byte_counts[rank] = moves ? lists[i]->shares[rank].bytes : 0;
    }
  }
  for (int rank = 0; rank < x->ranks; rank++) {
    x->theirs.piece_places[rank] = pieces;
    x->theirs.byte_places[rank] = bytes;
    pieces += x->theirs.piece_counts[rank];
    bytes += x->theirs.byte_counts[rank];
  }
}

static void exchange_pieces(struct Exchange* x) {
  struct Lists* mine = &x->mine;
  struct Lists* theirs = &x->theirs;
  MPI_Alltoallv(mine->pieces, mine->piece_counts, mine->piece_places, x->piece_type, theirs->pieces,
                theirs->piece_counts, theirs->piece_places, x->piece_type, x->fd->comm);
}

static void exchange_bytes(struct Exchange* x, struct Lists* from, struct Lists* to) {
  MPI_Alltoallv(from->bytes, from->byte_counts, from->byte_places, MPI_BYTE, to->bytes, to->byte_counts,
                to->byte_places, MPI_BYTE, x->fd->comm);
  for (int rank = 0; rank < x->ranks; rank++) {
    x->exchanged += rank != x->rank ? from->byte_counts[rank] : 0;
  }
}

// Makes the part of the window that is looked at hold all that came; what is new of it is not covered yet.
static void widen_window(struct Exchange* x) {
  struct Window* window = &x->window;
  const struct Lists* theirs = &x->theirs;
  int64_t low = INT64_MAX, high = 0;
  for (int rank = 0; rank < x->ranks; rank++) {
    const int count = theirs->piece_counts[rank];
    if (count > 0) {  // pieces rise
      const struct Piece* pieces = theirs->pieces + theirs->piece_places[rank];
      const int64_t end = (int64_t)pieces[count - 1].offset + pieces[count - 1].length;
      low = pieces[0].offset < low ? pieces[0].offset : low;
      high = end > high ? end : high;
    }
  }
  if (low >= high) {
    return;
  }
  if (window->low == window->high) {
    window->low = window->high = low;
  }
  if (low < window->low) {
    memset(window->covered + low, 0, (size_t)(window->low - low));
    window->low = low;
  }
  if (high > window->high) {
    memset(window->covered + window->high, 0, (size_t)(high - window->high));
    window->high = high;
  }
}

// Marks the window's bytes that somebody wants, and for a write fills them in.
static void gather_window(struct Exchange* x) {
  const struct Lists* theirs = &x->theirs;
  widen_window(x);
  for (int rank = 0; rank < x->ranks; rank++) {
    const char* bytes = theirs->bytes + theirs->byte_places[rank];
    for (int i = 0; i < theirs->piece_counts[rank]; i++) {
      const struct Piece piece = theirs->pieces[theirs->piece_places[rank] + i];
      memset(x->window.covered + piece.offset, 1, piece.length);
      if (writes(x)) {
        memcpy(x->window.data + piece.offset, bytes, piece.length);
        bytes += piece.length;
      }
    }
  }
}

// The next run of covered bytes from `at` on, within one column; 0 when there is none.
static int next_run(const struct Exchange* x, int64_t* at, int64_t* length) {
  const struct Window* window = &x->window;
  if (*at >= window->high) {
    return 0;
  }
  const char* first = memchr(window->covered + *at, 1, (size_t)(window->high - *at));
  if (!first) {
    return 0;
  }
  *at = first - window->covered;
  const int64_t column_end = (*at / x->domains->chunk + 1) * x->domains->chunk;
  const int64_t end = column_end < window->high ? column_end : window->high;
  const char* last = memchr(first, 0, (size_t)(end - *at));
  *length = last ? last - first : end - *at;
  return 1;
}

static int64_t file_offset(const struct Exchange* x, int64_t at) {
  const int64_t chunk = x->domains->chunk;
  return sluice_window_column(x->domains, x->number, x->fd->my_cb_nodes_index, at / chunk) + at % chunk;
}

static int write_window(struct Exchange* x, struct SluiceError* error) {
  enum { kRuns = 4096 };
  const struct SluiceState* state = sluice_state(x->fd);
  int64_t at = x->window.low, length = 0;
  int more = x->window.low < x->window.high;
  if (!more) {
    return 0;
  }
  struct SluiceExtent* extents = malloc(kRuns * sizeof *extents);
  struct SluicePiece* pieces = malloc(kRuns * sizeof *pieces);
  int failed =
      extents && pieces ? 0 : sluice_fail(error, SLUICE_INTERNAL, "out of memory for a list of extents");
  while (!failed && more) {
    size_t count = 0;
    uint64_t done;
    while (count < kRuns && (more = next_run(x, &at, &length))) {
      const uint64_t begin = (uint64_t)file_offset(x, at);
      if (count > 0 && extents[count - 1].end == begin) {  // the next column too is mine
        extents[count - 1].end += (uint64_t)length;
        pieces[count - 1].bytes += (uint64_t)length;
      } else {
        extents[count] = (struct SluiceExtent){begin, begin + (uint64_t)length};
        pieces[count++] = (struct SluicePiece){x->window.data + at, (uint64_t)length};
      }
      at += length;
    }
    if (count > 0) {
      failed = state->abi->write(state->file, extents, count, pieces, count, &done, error);
    }
  }
  free(extents);
  free(pieces);
  return failed;
}

// The last wanted byte that no gap of more than SLUICE_READ_GAP separates from `first`, a wanted one.
static const char* last_near(const char* first, const char* end) {
  const char* last = first;
  for (const char* next = first; next; last = next ? next : last) {
    const int64_t left = end - last - 1;
    next = memrchr(last + 1, 1, (size_t)(left < SLUICE_READ_GAP + 1 ? left : SLUICE_READ_GAP + 1));
  }
  return last;
}

static size_t most_extents(const struct Exchange* x) {
  return (size_t)(x->window.columns * (x->domains->chunk / SLUICE_READ_GAP + 1));
}

// Lists, column by column, what is wanted, with the small gaps within.
static size_t wanted_extents(const struct Exchange* x, struct SluiceExtent* extents,
                             struct SluicePiece* pieces) {
  const struct Window* window = &x->window;
  const int64_t chunk = x->domains->chunk;
  size_t count = 0;
  for (int64_t at = window->low; at < window->high; at = (at / chunk + 1) * chunk) {
    const int64_t column_end = (at / chunk + 1) * chunk;
    const char* end = window->covered + (column_end < window->high ? column_end : window->high);
    const char* first = memchr(window->covered + at, 1, (size_t)(end - window->covered - at));
    while (first) {
      const char* last = last_near(first, end);
      const uint64_t begin = (uint64_t)file_offset(x, first - window->covered);
      const uint64_t bytes = (uint64_t)(last + 1 - first);
      extents[count] = (struct SluiceExtent){begin, begin + bytes};
      pieces[count++] = (struct SluicePiece){window->data + (first - window->covered), bytes};
      first = memchr(last + 1, 1, (size_t)(end - last - 1));
    }
  }
  return count;
}

// Reads what is wanted of each column. Answers how far the window is valid.
static int64_t read_window(struct Exchange* x, struct SluiceError* error) {
  const struct SluiceState* state = sluice_state(x->fd);
  struct Window* window = &x->window;
  if (window->low == window->high) {
    return 0;
  }
  struct SluiceExtent* extents = malloc(most_extents(x) * sizeof *extents);
  struct SluicePiece* pieces = malloc(most_extents(x) * sizeof *pieces);
  int64_t valid = 0;
  if (extents && pieces) {
    const size_t count = wanted_extents(x, extents, pieces);
    uint64_t done = 0;
    size_t i = 0;
    state->abi->read(state->file, extents, count, pieces, count, &done, error);
    for (; i < count && done >= pieces[i].bytes; i++) {
      done -= pieces[i].bytes;
    }
    valid = i < count ? (char*)pieces[i].data - window->data + (int64_t)done : window->high;
  } else {
    sluice_fail(error, SLUICE_INTERNAL, "out of memory for a list of extents");
  }
  free(extents);
  free(pieces);
  return valid;
}

// Puts what each rank asked for behind each other, up to the end of what is valid.
static void scatter_window(struct Exchange* x, int64_t valid) {
  struct Lists* theirs = &x->theirs;
  for (int rank = 0; rank < x->ranks; rank++) {
    char* bytes = theirs->bytes + theirs->byte_places[rank];
    int64_t done = 0;
    for (int i = 0; i < theirs->piece_counts[rank]; i++) {
      const struct Piece piece = theirs->pieces[theirs->piece_places[rank] + i];
      if (piece.offset >= valid) {
        break;  // pieces rise: the rest lies beyond the end of the file
      }
      const int64_t there = valid - piece.offset < piece.length ? valid - piece.offset : piece.length;
      memcpy(bytes + done, x->window.data + piece.offset, (size_t)there);
      done += there;
    }
    theirs->byte_counts[rank] = (int)done;
  }
}

// The bytes that came for my pieces, into my memory.
static void take_bytes(struct Exchange* x, int64_t* done) {
  const struct Lists* mine = &x->mine;
  for (int a = 0; a < aggregators(x); a++) {
    const int rank = x->fd->hints->ranklist[a];
    const int64_t columns = mine->byte_counts[rank] ? sluice_window_columns(x->domains, x->number, a) : 0;
    int64_t taken = 0;
    for (int64_t i = 0; i < columns && taken < mine->byte_counts[rank]; i++) {
      int64_t from, to;
      struct Walk walk;
      my_part(x, sluice_window_column(x->domains, x->number, a, i), &from, &to);
      start_part(x, from, to, &walk);
      while (taken < mine->byte_counts[rank] && sluice_walk_next(&walk, x->batch)) {
        taken += copy_pieces(x->batch, mine->bytes + mine->byte_places[rank] + taken,
                             mine->byte_counts[rank] - taken, SLUICE_FROM_FILE);
      }
    }
    *done += taken;
  }
}

static void read_turn(struct Exchange* x, int64_t* done, struct SluiceError* error) {
  x->window.low = x->window.high = 0;
  gather_window(x);
  scatter_window(x, read_window(x, error));
  MPI_Alltoall(x->theirs.byte_counts, 1, MPI_INT, x->mine.byte_counts, 1, MPI_INT, x->fd->comm);
  exchange_bytes(x, &x->theirs, &x->mine);
  take_bytes(x, done);
}

// Collective. Answers -1, on all ranks, when one of them has failed before the exchange.
static int run_round(struct Exchange* x, int64_t* next, int64_t* done, struct SluiceError* error) {
  int turns = 0;
  list_round(x, error);
  if (agree_on_round(x, &turns, next, error)) {
    return -1;
  }
  for (int turn = 0; turn < turns; turn++) {
    start_turn(x, turn);
    exchange_pieces(x);
    if (writes(x)) {
      exchange_bytes(x, &x->mine, &x->theirs);
      gather_window(x);
    } else {
      read_turn(x, done, error);
    }
  }
  if (writes(x)) {
    write_window(x, error);
  }
  return 0;
}

enum { kBuffers = 6, kMostKeptBytes = 32 << 20 };

// The buffers of the exchange before, of whatever file: touching fresh memory costs more than an exchange.
static pthread_mutex_t kept_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct Kept {
  void* memory[kBuffers];
  size_t room[kBuffers];
} kept;

// The buffers of an exchange and their sizes, in the order in which they are kept.
static void buffers_of(struct Exchange* x, void** memory[kBuffers], size_t* room[kBuffers]) {
  struct Lists* lists[2] = {&x->mine, &x->theirs};
  for (int i = 0; i < 2; i++) {
    memory[2 * i] = (void**)&lists[i]->pieces;
    room[2 * i] = &lists[i]->piece_room;
    memory[2 * i + 1] = (void**)&lists[i]->bytes;
    room[2 * i + 1] = &lists[i]->byte_room;
  }
  memory[4] = (void**)&x->window.data;
  room[4] = &x->window.room;
  memory[5] = (void**)&x->window.covered;
  room[5] = &x->window.covered_room;
}

// What is kept and what the exchange has change places.
static void swap_kept(struct Exchange* x) {
  void** memory[kBuffers];
  size_t* room[kBuffers];
  buffers_of(x, memory, room);
  pthread_mutex_lock(&kept_mutex);
  const struct Kept before = kept;
  for (int i = 0; i < kBuffers; i++) {
    kept.memory[i] = *memory[i];
    kept.room[i] = *room[i];
    *memory[i] = before.memory[i];
    *room[i] = before.room[i];
  }
  pthread_mutex_unlock(&kept_mutex);
}

// One set of buffers is kept, unless it is large.
static void give_back_buffers(struct Exchange* x) {
  void** memory[kBuffers];
  size_t* room[kBuffers];
  size_t bytes = 0;
  buffers_of(x, memory, room);
  for (int i = 0; i < kBuffers; i++) {
    bytes += *room[i];
  }
  if (bytes <= kMostKeptBytes) {
    swap_kept(x);  // what another thread kept meanwhile comes here, and goes
  }
  for (int i = 0; i < kBuffers; i++) {
    free(*memory[i]);
  }
}

static int start_exchange(struct Exchange* x, struct SluiceError* error) {
  const size_t ranks = (size_t)x->ranks;
  struct Lists* lists[2] = {&x->mine, &x->theirs};
  int failed = 0;
  for (int i = 0; i < 2; i++) {
    int* numbers = calloc(5 * ranks, sizeof *numbers);
    lists[i]->shares = calloc(ranks, sizeof *lists[i]->shares);
    lists[i]->turns = numbers;
    failed |= !numbers || !lists[i]->shares;
    if (numbers) {
      lists[i]->piece_counts = numbers + ranks;
      lists[i]->piece_places = numbers + 2 * ranks;
      lists[i]->byte_counts = numbers + 3 * ranks;
      lists[i]->byte_places = numbers + 4 * ranks;
    }
  }
  MPI_Type_contiguous((int)sizeof(struct Piece), MPI_BYTE, &x->piece_type);
  MPI_Type_commit(&x->piece_type);
  if (x->request->bytes > 0) {
    const struct SluiceRequest* request = x->request;
    struct Walk walk;
    start_part(x, request->position, request->position + request->bytes, &walk);
    x->batch = sluice_batch_new(&walk);
    failed |= !x->batch;
    x->begin = sluice_view_offset(&request->view, request->position);
    x->end = sluice_view_offset(&request->view, request->position + request->bytes - 1) + 1;
  }
  return failed
             ? sluice_fail(error, SLUICE_INTERNAL, "out of memory for an exchange between %d ranks", x->ranks)
             : 0;
}

static void end_exchange(struct Exchange* x) {
  struct Lists* lists[2] = {&x->mine, &x->theirs};
  for (int i = 0; i < 2; i++) {
    free(lists[i]->shares);
    free(lists[i]->turns);  // the counts are behind it
  }
  give_back_buffers(x);
  sluice_batch_free(x->batch);
  MPI_Type_free(&x->piece_type);
}

void sluice_two_phase(ADIO_File fd, const struct SluiceDomains* domains, const struct SluiceRequest* request,
                      struct SluiceMoved* moved, struct SluiceError* error) {
  struct Exchange x = {.fd = fd, .domains = domains, .request = request};
  MPI_Comm_rank(fd->comm, &x.rank);
  MPI_Comm_size(fd->comm, &x.ranks);
  swap_kept(&x);
  start_exchange(&x, error);
  if (sluice_agree(fd->comm, error) == 0) {
    int64_t next = 0;
    while (next != INT64_MAX) {
      x.number = next;
      if (run_round(&x, &next, &moved->done, error)) {
        break;
      }
    }
    if (writes(&x) && error->code == SLUICE_OK) {
      moved->done = request->bytes;
    }
  }
  moved->exchanged = x.exchanged;
  end_exchange(&x);
}
