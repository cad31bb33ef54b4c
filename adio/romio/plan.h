#pragma once

#include <stdint.h>

// How a collective access is done, and who does which part of it. Pure arithmetic: knows no MPI, no ROMIO and
// no clock; ranks that give it the same numbers get the same answers. In C because the exchange asks it for
// every column: it is linked into the driver, and into a unit test.
//
// *Direct*: each rank sends its own extents. *Two-phase*: the ranks exchange pieces first, so that the
// aggregators transfer long runs. For that the file is cut into columns of a chunk, and column c belongs to
// aggregator c mod n, whatever the access: an aggregator keeps its chunks, and their locks, from call to
// call. An access is done in rounds. An aggregator's columns of one round lie behind each other in its
// *window*. A round of a dense access takes columns from all over it, so that in every round all ranks have
// something to do; rounds of others are contiguous, so that those without data can be left out.
//
// Offsets are bytes of the file, below 2^62; ranges are half-open.

#ifdef __cplusplus
extern "C" {
#endif

// Limits of a window, in bytes. What all windows of a round hold together is limited too, because a rank may
// have all of it.
#define SLUICE_SMALLEST_WINDOW (INT64_C(64) << 10)
#define SLUICE_LARGEST_WINDOW (INT64_C(64) << 20)
#define SLUICE_DEFAULT_WINDOW (INT64_C(4) << 20)
#define SLUICE_LARGEST_ROUND (INT64_C(256) << 20)

// Pieces of less are dearer to send than to exchange.
#define SLUICE_SMALL_PIECE (INT64_C(16) << 10)

// An aggregator reads over smaller gaps between pieces that somebody wants.
#define SLUICE_READ_GAP (INT64_C(64) << 10)

enum SluiceCollective { SLUICE_CB_AUTOMATIC, SLUICE_CB_ENABLE, SLUICE_CB_DISABLE };

// What was decided, and why; sluice_plan_words has the sentences.
enum SluicePlanReason {
  SLUICE_DIRECT_ALONE,
  SLUICE_DIRECT_ATOMIC,
  SLUICE_DIRECT_DISABLED,
  SLUICE_DIRECT_UNORDERED,
  SLUICE_DIRECT_LARGE_PIECES,
  SLUICE_DIRECT_SPARSE,
  SLUICE_DIRECT_NOTHING,
  SLUICE_DIRECT_STARTED,  // not the planner's answer, but what becomes of a two-phase one
  SLUICE_TWO_PHASE_ENABLED,
  SLUICE_TWO_PHASE_SMALL_PIECES,
  SLUICE_PLAN_REASONS  // their number
};

int sluice_plan_is_two_phase(enum SluicePlanReason reason);
const char* sluice_plan_words(enum SluicePlanReason reason);

// What is known before an access, the same on all ranks.
struct SluicePlanFacts {
  int ranks;
  int atomic;                  // atomic mode is on
  enum SluiceCollective hint;  // romio_cb_write or romio_cb_read, by direction
  int ordered;                 // in every rank's view offsets rise
  int64_t piece_bytes;         // the mean piece of the view with the smallest; INT64_MAX without gaps
};

// What the ranks tell each other of an access that may be two-phase.
struct SluiceAccessFacts {
  int64_t begin, end;  // of what all ranks touch
  int64_t most_bytes;  // of one rank
};

// A two-phase answer stands only when sluice_plan_access agrees.
enum SluicePlanReason sluice_plan_view(const struct SluicePlanFacts* facts);
enum SluicePlanReason sluice_plan_access(const struct SluicePlanFacts* facts,
                                         const struct SluiceAccessFacts* access);

// The window in effect for cb_buffer_size: within the limits, and whole chunks.
int64_t sluice_plan_window(int64_t asked, int64_t chunk);
// The column size for a file's chunk.
int64_t sluice_plan_chunk(int64_t file_chunk);

// The chunk that holds a view's blocks of so many bytes: a power of two up to SLUICE_LARGEST_CHUNK. 0 when
// the default does: smaller chunks would only make more shards of the same bytes.
#define SLUICE_DEFAULT_CHUNK (INT64_C(1) << 20)
#define SLUICE_LARGEST_CHUNK (INT64_C(16) << 20)
int64_t sluice_plan_shape(int64_t block_bytes);

// Takes `wanted` aggregators from the ranks, host by host in turn. `hosts` numbers each rank's host, from 0
// and below `ranks`. Answers 0, or -1 when memory ran out.
int sluice_plan_spread(const int* hosts, int ranks, int wanted, int* chosen);

struct SluiceDomains {
  int64_t chunk;
  int64_t aggregators;
  int64_t first_group, groups;  // a group is one column of each aggregator
  int64_t slots;                // groups of one round, at most
  int64_t block, blocks;        // aggregators of one round, when not all; then a round is of one group
  int64_t turns;                // rounds of one block
  int spread;                   // rounds take groups from all over the access
};

// `window` as from sluice_plan_window; begin < end.
void sluice_plan_domains(struct SluiceDomains* domains, const struct SluiceAccessFacts* access, int ranks,
                         int64_t chunk, int aggregators, int64_t window);
int64_t sluice_plan_rounds(const struct SluiceDomains* domains);
// Unless rounds are spread: the round that an offset of the access belongs to, and where a round ends in the
// file.
int64_t sluice_plan_round(const struct SluiceDomains* domains, int64_t offset);
int64_t sluice_plan_round_end(const struct SluiceDomains* domains, int64_t round);
// Columns in an aggregator's window of a round, and the file offset at which the index-th of them begins.
// Offsets rise with the index. At both ends of an access there may be columns that it does not touch.
int64_t sluice_window_columns(const struct SluiceDomains* domains, int64_t round, int aggregator);
int64_t sluice_window_column(const struct SluiceDomains* domains, int64_t round, int aggregator,
                             int64_t index);

// What one rank has for one window.
struct SluiceShare {
  int32_t pieces;
  int32_t bytes;
};
#define SLUICE_PIECE_BYTES 8

// Ranks whose shares do not fit `room` bytes together come in turns, by rank: overlapping reads of many ranks
// must not be held at once. `turns` gets each rank's turn, from 0. Answers the number of turns; a single
// share may be larger than the room.
int sluice_plan_turns(const struct SluiceShare* shares, int ranks, int64_t room, int* turns);

#ifdef __cplusplus
}
#endif
