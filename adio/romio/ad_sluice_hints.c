// Hints of Sluice files: every rank's are checked, rank 0's count, and every rank shows the same.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adio/romio/ad_sluice.h"
#include "adio/romio/errors.h"
#include "adio/romio/romio_names.h"

_Static_assert(SLUICE_HINT_NAME_BYTES <= MPI_MAX_INFO_KEY && SLUICE_HINT_VALUE_BYTES <= MPI_MAX_INFO_VAL,
               "what gather_hints takes, an info takes");

// Of the file that ROMIO_HINTS names, or ROMIO's own: found when the process read it, at its first open.
static struct SluiceError file_error;

// An info as "name\0value\0...". NULL when memory ran out.
static char* pack_info(MPI_Info info, size_t* bytes) {
  char name[MPI_MAX_INFO_KEY + 1];
  char value[MPI_MAX_INFO_VAL + 1];
  int keys = 0;
  size_t used = 0;
  char* text = malloc(1);
  if (info != MPI_INFO_NULL) {
    MPI_Info_get_nkeys(info, &keys);
  }
  for (int i = 0; i < keys && text; i++) {
    int found = 0;
    MPI_Info_get_nthkey(info, i, name);
    MPI_Info_get(info, name, MPI_MAX_INFO_VAL, value, &found);
    if (!found) {
      continue;
    }
    const size_t name_bytes = strlen(name) + 1;
    const size_t value_bytes = strlen(value) + 1;
    char* grown = realloc(text, used + name_bytes + value_bytes);
    if (!grown) {
      free(text);
      return NULL;
    }
    text = grown;
    memcpy(text + used, name, name_bytes);
    memcpy(text + used + name_bytes, value, value_bytes);
    used += name_bytes + value_bytes;
  }
  *bytes = used;
  return text;
}

// Checks the hints, and adds those of the environment: also ROMIO's own are to be had from there.
static void gather_hints(const struct SluiceAbi* abi, const char* path, int tell, char** text, size_t* bytes,
                         struct SluiceError* error) {
  size_t count = 0;
  const size_t capacity = *bytes + SLUICE_HINTS_BYTES;
  struct SluiceHint* hints = calloc(*bytes / 2 + 1, sizeof *hints);
  char* all = malloc(capacity);
  if (!hints || !all) {
    sluice_fail(error, SLUICE_INTERNAL, "out of memory for the hints of %.200s", path);
    free(all);
  } else {
    for (const char* at = *text; at < *text + *bytes;) {
      const char* value = at + strlen(at) + 1;
      hints[count++] = (struct SluiceHint){at, value};
      at = value + strlen(value) + 1;
    }
    if (abi->gather_hints(path, tell, hints, count, all, capacity, bytes, error)) {
      *bytes = 0;
    }
    free(*text);
    *text = all;
  }
  free(hints);
}

// Collective: rank 0's text becomes everybody's.
static int share_text(MPI_Comm comm, char** text, size_t* bytes, struct SluiceError* error) {
  int rank;
  unsigned long long length = *bytes;
  MPI_Comm_rank(comm, &rank);
  MPI_Bcast(&length, 1, MPI_UNSIGNED_LONG_LONG, 0, comm);
  if (rank != 0) {
    free(*text);
    *text = malloc(length + 1);
    *bytes = length;
    if (!*text) {
      sluice_fail(error, SLUICE_INTERNAL, "out of memory for %llu bytes of hints", length);
    }
  }
  if (sluice_agree(comm, error)) {
    return -1;
  }
  MPI_Bcast(*text, (int)length, MPI_BYTE, 0, comm);
  return 0;
}

// The value of a key in a packed info, or NULL.
static const char* find_hint(const char* text, size_t bytes, const char* key) {
  for (const char* at = text; at < text + bytes;) {
    const char* value = at + strlen(at) + 1;
    if (strcmp(at, key) == 0) {
      return value;
    }
    at = value + strlen(value) + 1;
  }
  return NULL;
}

// ROMIO's own hints, from an info that is the same on all ranks: ROMIO talks about each key that it finds in
// it. At the open, what the program leaves out has defaults of our own.
static int give_romio(ADIO_File fd, const char* text, size_t bytes, int opening) {
  MPI_Info info;
  int error_code = MPI_SUCCESS;
  char number[32];
  MPI_Info_create(&info);
  if (opening) {
    snprintf(number, sizeof number, "%lld", (long long)SLUICE_DEFAULT_WINDOW);
    MPI_Info_set(info, "cb_buffer_size", number);
    MPI_Info_set(info, "cb_config_list", "*:*");
  }
  for (const char* at = text; at < text + bytes;) {
    const char* value = at + strlen(at) + 1;
    MPI_Info_set(info, at, value);
    at = value + strlen(value) + 1;
  }
  ADIOI_GEN_SetInfo(fd, info, &error_code);
  MPI_Info_free(&info);
  fd->hints->deferred_open = 0;
  return error_code;
}

void sluice_settle_hints(ADIO_File fd) {
  char number[32];
  const int64_t window = sluice_plan_window(fd->hints->cb_buffer_size, sluice_plan_chunk(fd->blksize));
  if (window != fd->hints->cb_buffer_size) {
    fd->hints->cb_buffer_size = (int)window;
    snprintf(number, sizeof number, "%lld", (long long)window);
    MPI_Info_set(fd->info, "cb_buffer_size", number);
  }
}

// The first call comes from ROMIO's open, before the file is open, and its error is not looked at.
static struct SluiceState* first_state(ADIO_File fd) {
  struct SluiceState* state = calloc(1, sizeof *state);
  if (!state) {
    return NULL;
  }
  state->queue = sluice_queue_new();
  if (!state->queue) {
    free(state);
    return NULL;
  }
  pthread_mutex_init(&state->mutex, NULL);
  fd->fs_ptr = state;
  if (sluice_abi_load(&state->abi, &state->open_error) == 0 &&
      sluice_type_map(MPI_BYTE, &state->byte_map, &state->open_error) == 0 &&
      sluice_type_map(MPI_BYTE, &state->view.filetype, &state->open_error) == 0) {
    state->open_error = file_error;
    state->view.displacement = 0;
    state->piece_bytes = INT64_MAX;
    state->ordered = 1;
  }
  return state;
}

void ADIOI_SLUICE_SetInfo(ADIO_File fd, MPI_Info users_info, int* error_code) {
  const int opening = fd->fs_ptr == NULL;
  struct SluiceState* state = opening ? first_state(fd) : sluice_state(fd);
  struct SluiceError error = {0};
  if (state) {
    error = state->open_error;
  } else {
    sluice_fail(&error, SLUICE_INTERNAL, "out of memory to open %.200s", fd->filename);
  }
  size_t bytes = 0;
  char* text = pack_info(users_info, &bytes);
  if (!text) {
    sluice_fail(&error, SLUICE_INTERNAL, "out of memory for the hints of %.200s", fd->filename);
  } else if (error.code == SLUICE_OK) {
    int rank;
    MPI_Comm_rank(fd->comm, &rank);
    gather_hints(state->abi, fd->filename, rank == 0, &text, &bytes, &error);
  }
  int romio_error = MPI_SUCCESS;
  if (sluice_agree(fd->comm, &error) == 0 && share_text(fd->comm, &text, &bytes, &error) == 0) {
    romio_error = give_romio(fd, text, bytes, opening);
    if (opening) {
      sluice_choose_aggregators(fd, find_hint(text, bytes, "cb_config_list") != NULL, &error);
    } else {
      sluice_settle_hints(fd);
    }
  } else if (opening) {
    romio_error = give_romio(fd, NULL, 0, 1);  // ROMIO goes on with its defaults until the open says no
    sluice_all_aggregate(fd);
  }
  *error_code = error.code != SLUICE_OK ? sluice_error_code("MPI_File_set_info", &error) : romio_error;
  if (opening && state) {
    state->open_error = error;
    state->hints = text;
    state->hints_bytes = error.code == SLUICE_OK ? bytes : 0;
  } else {
    free(text);
  }
}

// --- the file of hints, which ROMIO reads for all of its file systems ---

static void check_word(const char* word, size_t most, const char* what) {
  const size_t bytes = strlen(word);
  if (bytes > most && file_error.code == SLUICE_OK) {
    sluice_fail(
        &file_error, SLUICE_HINT_VALUE,
        "the file of hints that ROMIO_HINTS names has a %s of %zu characters, %.40s...; MPI takes %zu: "
        "shorten it",
        what, bytes, word, most);
  }
}

// As ROMIO reads it: "NAME VALUE" in each line, and nothing else there.
static void check_lines(char* text) {
  char* rest = NULL;
  for (char* line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    char* words = NULL;
    const char* name = strtok_r(line, " \t", &words);
    const char* value = strtok_r(NULL, " \t", &words);
    if (name && name[0] != '#' && value && !strtok_r(NULL, " \t", &words)) {
      check_word(name, SLUICE_HINT_NAME_BYTES, "name");
      check_word(value, SLUICE_HINT_VALUE_BYTES, "value");
    }
  }
}

// Collective. A word that MPI does not take would end the program; then nothing of the file counts, and no
// Sluice file can be opened.
void ADIOI_process_system_hints(ADIO_File fd, MPI_Info info) {
  enum { kMostBytes = 4096 };  // ROMIO reads no more
  int rank;
  MPI_Comm_rank(fd->comm, &rank);
  if (rank == 0) {
    const char* name = getenv("ROMIO_HINTS");
    FILE* file = name ? fopen(name, "r") : NULL;
    char text[kMostBytes + 1];
    file = file ? file : fopen("/etc/romio-hints", "r");
    if (file) {
      const size_t bytes = fread(text, 1, kMostBytes, file);
      fclose(file);
      text[bytes] = '\0';
      check_lines(text);
      if (bytes == kMostBytes && file_error.code == SLUICE_OK) {
        sluice_fail(&file_error, SLUICE_HINT_VALUE,
                    "the file of hints that ROMIO_HINTS names has %d bytes or more; shorten it", kMostBytes);
      }
    }
  }
  MPI_Bcast(&file_error, (int)sizeof file_error, MPI_BYTE, 0, fd->comm);
  if (file_error.code == SLUICE_OK) {
    romio_ADIOI_process_system_hints(fd, info);
  }
}
