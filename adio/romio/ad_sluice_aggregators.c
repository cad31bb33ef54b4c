// Which ranks aggregate. Rank 0 chooses from the ranks' host names, which are gathered only when not every
// rank is to aggregate.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"
#include "adio_cb_config_list.h"

// As ROMIO tells it, but without the part of a number where the value ends.
static void show_aggregators(ADIO_File fd) {
  char value[MPI_MAX_INFO_VAL];
  size_t used = 0;
  value[0] = '\0';
  for (int i = 0; i < fd->hints->cb_nodes; i++) {
    char number[16];
    const size_t bytes = (size_t)snprintf(number, sizeof number, "%d ", fd->hints->ranklist[i]);
    if (used + bytes >= sizeof value) {
      break;
    }
    memcpy(value + used, number, bytes + 1);
    used += bytes;
  }
  MPI_Info_set(fd->info, "romio_aggregator_list", value);
}

void sluice_all_aggregate(ADIO_File fd) {
  int ranks;
  MPI_Comm_size(fd->comm, &ranks);
  fd->hints->cb_nodes = ranks;
  fd->hints->ranklist = ADIOI_Malloc((size_t)ranks * sizeof(int));
  for (int rank = 0; rank < ranks; rank++) {
    fd->hints->ranklist[rank] = rank;
  }
  show_aggregators(fd);
}

// Numbers the hosts by the first rank on each. Neighbours mostly share one.
static void number_hosts(char** names, int ranks, int* hosts) {
  int* first = malloc((size_t)ranks * sizeof *first);  // the first rank of each host
  int count = 0;
  for (int rank = 0; first && rank < ranks; rank++) {
    int host = rank > 0 ? hosts[rank - 1] : 0;
    if (rank == 0 || strcmp(names[rank], names[rank - 1]) != 0) {
      for (host = 0; host < count && strcmp(names[rank], names[first[host]]) != 0; host++) {
      }
    }
    if (host == count) {
      first[count++] = rank;
    }
    hosts[rank] = host;
  }
  free(first);
}

// On rank 0. Answers how many were chosen: 0 when the list fits no host, or memory ran out.
static int choose(ADIO_File fd, ADIO_cb_name_array names, int listed, int ranks, int* chosen) {
  const int wanted = fd->hints->cb_nodes;
  if (listed) {
    return ADIOI_cb_config_list_parse(fd->hints->cb_config_list, names, chosen, wanted);
  }
  int* hosts = calloc((size_t)ranks, sizeof *hosts);
  int count = 0;
  if (hosts) {
    number_hosts(names->names, ranks, hosts);
    count = sluice_plan_spread(hosts, ranks, wanted, chosen) == 0 ? wanted : 0;
  }
  free(hosts);
  return count;
}

int sluice_choose_aggregators(ADIO_File fd, int listed, struct SluiceError* error) {
  int rank, ranks;
  ADIO_cb_name_array names = NULL;
  MPI_Comm_rank(fd->comm, &rank);
  MPI_Comm_size(fd->comm, &ranks);
  if (!listed && fd->hints->cb_nodes == ranks) {
    sluice_all_aggregate(fd);
    return 0;
  }
  ADIOI_cb_gather_name_array(fd->comm, fd->comm, &names);
  if (rank == 0) {
    fd->hints->ranklist = ADIOI_Malloc((size_t)ranks * sizeof(int));
    fd->hints->cb_nodes = choose(fd, names, listed, ranks, fd->hints->ranklist);
  }
  ADIOI_cb_bcast_rank_map(fd);
  if (fd->hints->cb_nodes > 0) {
    show_aggregators(fd);
    return 0;
  }
  if (rank == 0) {
    ADIOI_Free(fd->hints->ranklist);
  }
  sluice_all_aggregate(fd);  // until the open says no
  return sluice_fail(
      error, SLUICE_HINT_VALUE,
      "cb_config_list=%.100s leaves no rank to aggregate; name hosts that the program runs on, as "
      "host:ranks, or *:* for every rank",
      fd->hints->cb_config_list);
}
