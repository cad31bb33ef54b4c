// What the ranks tell the planner (plan.h), and what the program is told of its answer.

#include <stdio.h>

#include "adio/romio/ad_sluice.h"

// The mean piece of a view; INT64_MAX when there are no gaps.
static int64_t mean_piece(const struct TypeMap* map) {
  return map->count > 0 && !map->contiguous ? map->size / map->count : INT64_MAX;
}

// Every instance lies behind the one before.
static int is_ordered(const struct TypeMap* map) {
  return map->count == 0 || !(map->decreasing || map->overlapping || map->extent < map->last - map->first);
}

void sluice_plan_view_facts(ADIO_File fd) {
  struct SluiceState* state = sluice_state(fd);
  const int64_t piece = mean_piece(state->view.filetype);
  const int64_t mine[3] = {piece, is_ordered(state->view.filetype), piece < INT64_MAX ? -piece : 0};
  int64_t all[3];
  MPI_Allreduce(mine, all, 3, MPI_INT64_T, MPI_MIN, fd->comm);
  state->piece_bytes = all[0];
  state->ordered = (int)all[1];
  state->block_bytes = -all[2];
}

static enum SluiceCollective collective_hint(const ADIO_File fd, enum SluiceDirection direction) {
  const int hint = direction == SLUICE_TO_FILE ? fd->hints->cb_write : fd->hints->cb_read;
  return hint == ADIOI_HINT_ENABLE    ? SLUICE_CB_ENABLE
         : hint == ADIOI_HINT_DISABLE ? SLUICE_CB_DISABLE
                                      : SLUICE_CB_AUTOMATIC;
}

static struct SluicePlanFacts facts_of(const ADIO_File fd, enum SluiceDirection direction) {
  const struct SluiceState* state = sluice_state(fd);
  struct SluicePlanFacts facts = {.atomic = fd->atomicity,
                                  .hint = collective_hint(fd, direction),
                                  .ordered = state->ordered,
                                  .piece_bytes = state->piece_bytes};
  MPI_Comm_size(fd->comm, &facts.ranks);
  return facts;
}

int sluice_may_exchange(ADIO_File fd, enum SluiceDirection direction) {
  const struct SluicePlanFacts facts = facts_of(fd, direction);
  return sluice_plan_is_two_phase(sluice_plan_view(&facts));
}

enum SluicePlanReason sluice_plan(ADIO_File fd, const struct SluiceRequest* request,
                                  enum SluiceDirection direction, struct SluiceDomains* domains) {
  const struct SluicePlanFacts facts = facts_of(fd, direction);
  const enum SluicePlanReason reason = sluice_plan_view(&facts);
  if (!sluice_plan_is_two_phase(reason)) {
    return reason;
  }
  sluice_start_agreements();
  int64_t mine[3] = {INT64_MIN, 0, request->bytes};
  int64_t all[3];
  if (request->bytes > 0) {
    mine[0] = -sluice_view_offset(&request->view, request->position);
    mine[1] = sluice_view_offset(&request->view, request->position + request->bytes - 1) + 1;
  }
  MPI_Allreduce(mine, all, 3, MPI_INT64_T, MPI_MAX, fd->comm);
  if (all[2] == 0) {
    return SLUICE_DIRECT_NOTHING;
  }
  const struct SluiceAccessFacts access = {-all[0], all[1], all[2]};
  const int64_t chunk = sluice_plan_chunk(fd->blksize);
  sluice_plan_domains(domains, &access, facts.ranks, chunk, fd->hints->cb_nodes,
                      sluice_plan_window(fd->hints->cb_buffer_size, chunk));
  return sluice_plan_access(&facts, &access);
}

void sluice_shape(ADIO_File fd, enum SluiceDirection direction) {
  struct SluiceState* state = sluice_state(fd);
  const int64_t chunk = sluice_plan_shape(state->block_bytes);
  if (direction != SLUICE_TO_FILE || state->shape_asked || chunk <= fd->blksize ||
      (fd->access_mode & ADIO_RDONLY)) {
    return;
  }
  state->shape_asked = 1;
  sluice_start_agreements();
  uint64_t effective = (uint64_t)fd->blksize;
  int rank;
  char text[160];
  MPI_Comm_rank(fd->comm, &rank);
  if (rank == 0) {
    struct SluiceError ignored = {0};  // the write that follows meets the same service, and tells
    snprintf(text, sizeof text, "the first collective write had a view with blocks of %lld bytes",
             (long long)state->block_bytes);
    state->abi->shape(state->file, (uint64_t)chunk, text, &effective, &ignored);
  }
  MPI_Bcast(&effective, 1, MPI_UINT64_T, 0, fd->comm);
  if (effective != (uint64_t)fd->blksize) {
    fd->blksize = (long)effective;
    fd->hints->striping_unit = (int)effective;
    snprintf(text, sizeof text, "%llu", (unsigned long long)effective);
    MPI_Info_set(fd->info, "striping_unit", text);
    MPI_Info_set(fd->info, "sluice_chunk_size", text);
    sluice_settle_hints(fd);
  }
}

void sluice_show_plan(ADIO_File fd, enum SluicePlanReason reason, int64_t exchanged) {
  struct SluiceState* state = sluice_state(fd);
  state->abi->count_plan(state->file, sluice_plan_is_two_phase(reason), (uint64_t)exchanged);
  if (reason == SLUICE_DIRECT_NOTHING || (state->plan_shown && state->shown_plan == reason)) {
    return;
  }
  state->plan_shown = 1;
  state->shown_plan = reason;
  MPI_Info_set(fd->info, "sluice_collective", sluice_plan_is_two_phase(reason) ? "two_phase" : "direct");
  MPI_Info_set(fd->info, "sluice_collective_reason", sluice_plan_words(reason));
}

void sluice_show_started(ADIO_File fd, enum SluiceDirection direction) {
  const struct SluicePlanFacts facts = facts_of(fd, direction);
  const enum SluicePlanReason reason = sluice_plan_view(&facts);
  sluice_show_plan(fd, sluice_plan_is_two_phase(reason) ? SLUICE_DIRECT_STARTED : reason, 0);
}
