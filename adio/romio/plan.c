#include "adio/romio/plan.h"

#include <stdlib.h>

static const char* const kWords[SLUICE_PLAN_REASONS] = {
    [SLUICE_DIRECT_ALONE] = "a single rank has nobody to exchange with",
    [SLUICE_DIRECT_ATOMIC] = "in atomic mode each rank locks and transfers its own access",
    [SLUICE_DIRECT_DISABLED] = "romio_cb_write or romio_cb_read is disable",
    [SLUICE_DIRECT_UNORDERED] = "a rank's view goes back or overlaps itself",
    [SLUICE_DIRECT_LARGE_PIECES] = "no rank's view has pieces of less than 16 KiB on average",
    [SLUICE_DIRECT_SPARSE] = "the pieces of all ranks together cover too little of their range",
    [SLUICE_DIRECT_NOTHING] = "no rank had data",
    [SLUICE_DIRECT_STARTED] =
        "each rank transfers its part of a nonblocking access while the program goes on",
    [SLUICE_TWO_PHASE_ENABLED] = "romio_cb_write or romio_cb_read is enable",
    [SLUICE_TWO_PHASE_SMALL_PIECES] = "a rank's view has pieces of less than 16 KiB on average",
};

int sluice_plan_is_two_phase(enum SluicePlanReason reason) {
  return reason >= SLUICE_TWO_PHASE_ENABLED;
}

const char* sluice_plan_words(enum SluicePlanReason reason) {
  return kWords[reason];
}

enum SluicePlanReason sluice_plan_view(const struct SluicePlanFacts* facts) {
  if (facts->ranks == 1) {
    return SLUICE_DIRECT_ALONE;
  }
  if (facts->atomic) {
    return SLUICE_DIRECT_ATOMIC;
  }
  if (facts->hint == SLUICE_CB_DISABLE) {
    return SLUICE_DIRECT_DISABLED;
  }
  if (!facts->ordered) {
    return SLUICE_DIRECT_UNORDERED;
  }
  if (facts->hint == SLUICE_CB_ENABLE) {
    return SLUICE_TWO_PHASE_ENABLED;
  }
  return facts->piece_bytes < SLUICE_SMALL_PIECE ? SLUICE_TWO_PHASE_SMALL_PIECES : SLUICE_DIRECT_LARGE_PIECES;
}

static int is_dense(const struct SluiceAccessFacts* access, int ranks) {
  return (access->end - access->begin) / ranks / 2 <= access->most_bytes;
}

enum SluicePlanReason sluice_plan_access(const struct SluicePlanFacts* facts,
                                         const struct SluiceAccessFacts* access) {
  const enum SluicePlanReason reason = sluice_plan_view(facts);
  if (!sluice_plan_is_two_phase(reason)) {
    return reason;
  }
  if (access->most_bytes == 0) {
    return SLUICE_DIRECT_NOTHING;
  }
  return reason == SLUICE_TWO_PHASE_SMALL_PIECES && !is_dense(access, facts->ranks) ? SLUICE_DIRECT_SPARSE
                                                                                    : reason;
}

static int64_t at_most(int64_t value, int64_t limit) {
  return value < limit ? value : limit;
}

static int64_t at_least(int64_t value, int64_t limit) {
  return value > limit ? value : limit;
}

int64_t sluice_plan_chunk(int64_t file_chunk) {
  return at_most(at_least(file_chunk, SLUICE_SMALLEST_WINDOW), SLUICE_LARGEST_WINDOW);
}

int64_t sluice_plan_window(int64_t asked, int64_t chunk) {
  const int64_t bytes = at_most(at_least(asked, SLUICE_SMALLEST_WINDOW), SLUICE_LARGEST_WINDOW);
  return at_least(bytes / chunk, 1) * chunk;
}

int64_t sluice_plan_shape(int64_t block_bytes) {
  int64_t chunk = SLUICE_DEFAULT_CHUNK;
  while (chunk < block_bytes && chunk < SLUICE_LARGEST_CHUNK) {
    chunk *= 2;
  }
  return chunk > SLUICE_DEFAULT_CHUNK ? chunk : 0;
}

int sluice_plan_spread(const int* hosts, int ranks, int wanted, int* chosen) {
  int* order = calloc((size_t)ranks, sizeof *order);      // of a rank among those of its host
  int* count = calloc((size_t)ranks, sizeof *count);      // of ranks, by host
  int* place = calloc((size_t)ranks + 1, sizeof *place);  // of the next rank, by order
  const int failed = !order || !count || !place;
  for (int rank = 0; !failed && rank < ranks; rank++) {
    order[rank] = count[hosts[rank]]++;
    place[order[rank] + 1]++;
  }
  for (int turn = 1; !failed && turn < ranks; turn++) {
    place[turn] += place[turn - 1];
  }
  for (int rank = 0; !failed && rank < ranks; rank++) {
    const int at = place[order[rank]]++;
    if (at < wanted) {
      chosen[at] = rank;
    }
  }
  free(order);
  free(count);
  free(place);
  return failed ? -1 : 0;
}

static int64_t pieces_of(int64_t whole, int64_t piece) {
  return (whole - 1) / piece + 1;
}

void sluice_plan_domains(struct SluiceDomains* domains, const struct SluiceAccessFacts* access, int ranks,
                         int64_t chunk, int aggregators, int64_t window) {
  const int64_t n = aggregators;
  const int64_t most = at_least(SLUICE_LARGEST_ROUND / chunk, 1);  // columns of a round
  *domains = (struct SluiceDomains){.chunk = chunk, .aggregators = n};
  domains->first_group = access->begin / chunk / n;
  domains->groups = (access->end - 1) / chunk / n - domains->first_group + 1;
  domains->slots = at_most(window / chunk, at_least(most / n, 1));
  domains->block = at_most(n, most);
  domains->blocks = pieces_of(n, domains->block);
  domains->turns = pieces_of(domains->groups, domains->slots);
  domains->spread = is_dense(access, ranks);
}

int64_t sluice_plan_rounds(const struct SluiceDomains* domains) {
  return domains->turns * domains->blocks;
}

int64_t sluice_plan_round(const struct SluiceDomains* domains, int64_t offset) {
  const int64_t column = offset / domains->chunk;
  const int64_t turn = (column / domains->aggregators - domains->first_group) / domains->slots;
  return turn * domains->blocks + column % domains->aggregators / domains->block;
}

int64_t sluice_plan_round_end(const struct SluiceDomains* domains, int64_t round) {
  const int64_t n = domains->aggregators;
  const int64_t group = domains->first_group + round / domains->blocks * domains->slots;
  const int64_t block = round % domains->blocks + 1;
  const int64_t column =
      block < domains->blocks ? group * n + block * domains->block : (group + domains->slots) * n;
  return column * domains->chunk;
}

int64_t sluice_window_columns(const struct SluiceDomains* domains, int64_t round, int aggregator) {
  const int64_t turn = round / domains->blocks;
  if (aggregator / domains->block != round % domains->blocks) {
    return 0;
  }
  return domains->spread ? pieces_of(domains->groups - turn, domains->turns)
                         : at_most(domains->slots, domains->groups - turn * domains->slots);
}

int64_t sluice_window_column(const struct SluiceDomains* domains, int64_t round, int aggregator,
                             int64_t index) {
  const int64_t turn = round / domains->blocks;
  const int64_t group = domains->spread ? turn + index * domains->turns : turn * domains->slots + index;
  return ((domains->first_group + group) * domains->aggregators + aggregator) * domains->chunk;
}

int sluice_plan_turns(const struct SluiceShare* shares, int ranks, int64_t room, int* turns) {
  int turn = 0;
  int64_t held = 0;
  for (int rank = 0; rank < ranks; rank++) {
    const int64_t share = (int64_t)shares[rank].bytes + (int64_t)shares[rank].pieces * SLUICE_PIECE_BYTES;
    if (share > 0 && held > 0 && held + share > room) {
      turn++;
      held = 0;
    }
    held += share;
    turns[rank] = turn;
  }
  return turn + 1;
}
