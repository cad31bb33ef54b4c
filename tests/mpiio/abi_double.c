// Stands in for the client library in tests of the driver: files of a directory ($SLUICE_DOUBLE_DIR), no
// service.
//
// $SLUICE_DOUBLE_FAIL makes calls fail: "OP:RANK:CODE[,...]", for the process of that rank, with that
// SluiceCode, e.g. "write:1:6". A failing write or read moves half of its bytes first.
//
// $SLUICE_DOUBLE_HOLD: a read waits until this process has begun a write.
//
// A close leaves what a rank's driver did in "NAME.counts.RANK": collective accesses that were direct, and
// two-phase, bytes that it sent to other ranks, and bytes that it asked to read.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adio/abi.h"

// What the processes of one open have in common, in a file of its own.
struct Shared {
  pthread_mutex_t mutex;
  int64_t counter;
};

struct SluiceFile {
  int fd;
  int owner;
  struct Shared* shared;
  char handle[SLUICE_HANDLE_BYTES];  // "NAME\nSHARED\nFLAGS"
  char shared_name[1100];
  long chunk;
  int plans[2];  // collective accesses, direct and two-phase
  uint64_t exchanged, read;
  char counts_name[1100];
};

static int fail(struct SluiceError* error, int32_t code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  error->code = code;
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  return -1;
}

// The code that `operation` shall fail with in this process, or 0.
static int injected(const char* operation) {
  const char* spec = getenv("SLUICE_DOUBLE_FAIL");
  const char* rank = getenv("PMI_RANK");
  for (const char* at = spec; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    char name[32];
    int on_rank, code;
    if (sscanf(at, "%31[^:]:%d:%d", name, &on_rank, &code) == 3 && strcmp(name, operation) == 0 &&
        on_rank == atoi(rank ? rank : "0")) {
      return code;
    }
  }
  return 0;
}

static int refuse(const char* operation, struct SluiceError* error) {
  const int code = injected(operation);
  return code ? fail(error, code, "%s fails as the test asked", operation) : 0;
}

static int fail_errno(struct SluiceError* error, const char* what) {
  const int code = errno == ENOENT ? SLUICE_NOT_FOUND : errno == EEXIST ? SLUICE_EXISTS : SLUICE_IO;
  return fail(error, code, "%s: %s", what, strerror(errno));
}

static void place(const char* path, char* name, size_t capacity) {
  const char* directory = getenv("SLUICE_DOUBLE_DIR");
  int used = snprintf(name, capacity, "%s/", directory ? directory : ".");
  for (const char* at = path + 1; *at && (size_t)used + 1 < capacity; at++) {
    name[used++] = *at == '/' ? '%' : *at;
  }
  name[used] = '\0';
}

static int check_hints(const char* path, const struct SluiceHint* hints, size_t count,
                       struct SluiceError* error) {
  (void)path;
  for (size_t i = 0; i < count; i++) {
    if (strncmp(hints[i].name, "sluice_", 7) == 0 && strcmp(hints[i].name, "sluice_chunk_size") != 0 &&
        strncmp(hints[i].name, "sluice_collective", strlen("sluice_collective")) != 0) {
      return fail(error, SLUICE_HINT_NAME, "there is no hint %s; the nearest is sluice_chunk_size",
                  hints[i].name);
    }
    if (strcmp(hints[i].name, "sluice_chunk_size") == 0 && atol(hints[i].value) <= 0) {
      return fail(error, SLUICE_HINT_VALUE, "sluice_chunk_size=%s is no number of bytes", hints[i].value);
    }
  }
  return 0;
}

static int gather_hints(const char* path, int tell, const struct SluiceHint* hints, size_t count, char* text,
                        size_t capacity, size_t* bytes, struct SluiceError* error) {
  (void)tell;
  *bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const int printed =
        snprintf(text + *bytes, capacity - *bytes, "%s%c%s", hints[i].name, 0, hints[i].value);
    *bytes += (size_t)printed + 1;
  }
  return check_hints(path, hints, count, error);
}

static long chunk_of(const struct SluiceHint* hints, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(hints[i].name, "sluice_chunk_size") == 0) {
      return atol(hints[i].value);
    }
  }
  return 65536;
}

static void name_counts(struct SluiceFile* file, const char* name) {
  const char* rank = getenv("PMI_RANK");
  snprintf(file->counts_name, sizeof file->counts_name, "%s.counts.%s", name, rank ? rank : "0");
}

static int map_shared(struct SluiceFile* file, int create, struct SluiceError* error) {
  const int fd = create ? mkstemp(file->shared_name) : open(file->shared_name, O_RDWR);
  if (fd < 0 || (create && ftruncate(fd, sizeof(struct Shared)) != 0)) {
    return fail_errno(error, file->shared_name);
  }
  file->shared = mmap(NULL, sizeof(struct Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (create) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&file->shared->mutex, &attributes);
  }
  return 0;
}

static int open_file(const char* path, uint32_t flags, uint32_t mode, const struct SluiceHint* hints,
                     size_t count, struct SluiceFile** result, struct SluiceError* error) {
  char name[1024];
  if (refuse("open", error) || check_hints(path, hints, count, error)) {
    return -1;
  }
  place(path, name, sizeof name);
  const int way = flags & SLUICE_WRITE ? O_RDWR : O_RDONLY;
  const int fd =
      open(name, way | (flags & SLUICE_CREATE ? O_CREAT : 0) | (flags & SLUICE_EXCLUSIVE ? O_EXCL : 0), mode);
  if (fd < 0) {
    return fail_errno(error, path);
  }
  struct SluiceFile* file = calloc(1, sizeof *file);
  file->fd = fd;
  file->owner = 1;
  file->chunk = chunk_of(hints, count);
  name_counts(file, name);
  snprintf(file->shared_name, sizeof file->shared_name, "%s.shared.XXXXXX", name);
  *result = file;
  const int failed = map_shared(file, 1, error);
  snprintf(file->handle, sizeof file->handle, "%s\n%s\n%d", name, file->shared_name, way);
  return failed;
}

static int share(struct SluiceFile* file, char* handle, size_t capacity, struct SluiceError* error) {
  snprintf(handle, capacity, "%s", file->handle);
  return refuse("share", error);
}

static int attach(const char* handle, struct SluiceFile** result, struct SluiceError* error) {
  char name[1024];
  int way;
  if (refuse("attach", error)) {
    return -1;
  }
  struct SluiceFile* file = calloc(1, sizeof *file);
  if (sscanf(handle, "%1023[^\n]\n%1023[^\n]\n%d", name, file->shared_name, &way) != 3 ||
      (file->fd = open(name, way)) < 0) {
    return fail_errno(error, handle);
  }
  name_counts(file, name);
  *result = file;
  return map_shared(file, 0, error);
}

static int shape(struct SluiceFile* file, uint64_t chunk_bytes, const char* reason, uint64_t* effective,
                 struct SluiceError* error) {
  (void)chunk_bytes, (void)reason;
  *effective = (uint64_t)file->chunk;
  return refuse("shape", error);
}

static int effective_hints(struct SluiceFile* file, char* text, size_t capacity, struct SluiceError* error) {
  snprintf(text, capacity, "sluice_chunk_size=%ld\nstriping_unit=%ld\n", file->chunk, file->chunk);
  return refuse("effective_hints", error);
}

// One run of bytes that is contiguous in file and memory at a time.
static int move(struct SluiceFile* file, int to_file, const struct SluiceExtent* extents, size_t extent_count,
                const struct SluicePiece* pieces, size_t piece_count, uint64_t* done,
                struct SluiceError* error) {
  const int code = injected(to_file ? "write" : "read");
  uint64_t total = 0, in_piece = 0;
  size_t piece = 0;
  for (size_t i = 0; i < piece_count; i++) {
    total += pieces[i].bytes;
  }
  const uint64_t limit = code ? total / 2 : total;
  file->read += to_file ? 0 : total;
  *done = 0;
  for (size_t i = 0; i < extent_count; i++) {
    for (uint64_t at = extents[i].begin; at < extents[i].end && *done < limit;) {
      uint64_t bytes = extents[i].end - at;
      bytes = bytes < pieces[piece].bytes - in_piece ? bytes : pieces[piece].bytes - in_piece;
      bytes = bytes < limit - *done ? bytes : limit - *done;
      char* data = (char*)pieces[piece].data + in_piece;
      const ssize_t moved =
          to_file ? pwrite(file->fd, data, bytes, (off_t)at) : pread(file->fd, data, bytes, (off_t)at);
      if (moved < 0) {
        return fail_errno(error, "move");
      }
      *done += (uint64_t)moved;
      if (moved == 0) {
        return 0;  // the end of the file
      }
      at += (uint64_t)moved;
      in_piece += (uint64_t)moved;
      if (in_piece == pieces[piece].bytes) {
        piece++;
        in_piece = 0;
      }
    }
  }
  return code ? fail(error, code, "%s fails as the test asked", to_file ? "write" : "read") : 0;
}

static int writes;  // atomic: begun by this process

static int write_file(struct SluiceFile* file, const struct SluiceExtent* extents, size_t extent_count,
                      const struct SluicePiece* pieces, size_t piece_count, uint64_t* done,
                      struct SluiceError* error) {
  __atomic_fetch_add(&writes, 1, __ATOMIC_SEQ_CST);
  return move(file, 1, extents, extent_count, pieces, piece_count, done, error);
}

static int read_file(struct SluiceFile* file, const struct SluiceExtent* extents, size_t extent_count,
                     const struct SluicePiece* pieces, size_t piece_count, uint64_t* done,
                     struct SluiceError* error) {
  while (getenv("SLUICE_DOUBLE_HOLD") && __atomic_load_n(&writes, __ATOMIC_SEQ_CST) == 0) {
    sched_yield();
  }
  return move(file, 0, extents, extent_count, pieces, piece_count, done, error);
}

static int size_of(struct SluiceFile* file, uint64_t* bytes, struct SluiceError* error) {
  struct stat status;
  if (refuse("size", error)) {
    return -1;
  }
  if (fstat(file->fd, &status) != 0) {
    return fail_errno(error, "size");
  }
  *bytes = (uint64_t)status.st_size;
  return 0;
}

static int resize(struct SluiceFile* file, uint64_t bytes, struct SluiceError* error) {
  if (refuse("resize", error)) {
    return -1;
  }
  return ftruncate(file->fd, (off_t)bytes) == 0 ? 0 : fail_errno(error, "resize");
}

static int preallocate(struct SluiceFile* file, uint64_t bytes, struct SluiceError* error) {
  uint64_t now;
  if (refuse("preallocate", error) || size_of(file, &now, error)) {
    return -1;
  }
  return now >= bytes ? 0 : resize(file, bytes, error);
}

static int flush(struct SluiceFile* file, struct SluiceError* error) {
  (void)file;
  return refuse("flush", error);
}

static int sync_file(struct SluiceFile* file, struct SluiceError* error) {
  (void)file;
  return refuse("sync", error);
}

static int close_file(struct SluiceFile* file, int commit, struct SluiceError* error) {
  const int failed = commit ? refuse("close", error) : 0;
  FILE* counts = fopen(file->counts_name, "w");
  if (counts) {
    fprintf(counts, "%d %d %llu %llu\n", file->plans[0], file->plans[1], (unsigned long long)file->exchanged,
            (unsigned long long)file->read);
    fclose(counts);
  }
  munmap(file->shared, sizeof *file->shared);
  if (file->owner) {
    unlink(file->shared_name);
  }
  close(file->fd);
  free(file);
  return failed;
}

static int remove_file(const char* path, struct SluiceError* error) {
  char name[1024];
  place(path, name, sizeof name);
  return unlink(name) == 0 ? 0 : fail_errno(error, path);
}

static int counter_add(struct SluiceFile* file, int64_t delta, int64_t* before, struct SluiceError* error) {
  if (refuse("counter", error)) {
    return -1;
  }
  *before = __atomic_fetch_add(&file->shared->counter, delta, __ATOMIC_SEQ_CST);
  return 0;
}

static int counter_set(struct SluiceFile* file, int64_t value, int64_t* before, struct SluiceError* error) {
  if (refuse("counter", error)) {
    return -1;
  }
  *before = __atomic_exchange_n(&file->shared->counter, value, __ATOMIC_SEQ_CST);
  return 0;
}

static void count_plan(struct SluiceFile* file, int two_phase, uint64_t exchanged_bytes) {
  file->plans[two_phase]++;
  file->exchanged += exchanged_bytes;
}

static int lock_file(struct SluiceFile* file, struct SluiceExtent extent, int exclusive, uint64_t* lock,
                     struct SluiceError* error) {
  (void)extent, (void)exclusive;
  *lock = 1;
  return refuse("lock", error) ? -1 : pthread_mutex_lock(&file->shared->mutex);
}

static int unlock_file(struct SluiceFile* file, uint64_t lock, struct SluiceError* error) {
  (void)lock, (void)error;
  return pthread_mutex_unlock(&file->shared->mutex);
}

static void disconnect(void) {}

const struct SluiceAbi* sluice_adio_abi(uint32_t version) {
  static const struct SluiceAbi kAbi = {
      .version = SLUICE_ABI_VERSION,
      .gather_hints = gather_hints,
      .open = open_file,
      .share = share,
      .attach = attach,
      .effective_hints = effective_hints,
      .write = write_file,
      .read = read_file,
      .size = size_of,
      .resize = resize,
      .preallocate = preallocate,
      .shape = shape,
      .flush = flush,
      .sync = sync_file,
      .close = close_file,
      .remove = remove_file,
      .counter_add = counter_add,
      .counter_set = counter_set,
      .count_plan = count_plan,
      .lock = lock_file,
      .unlock = unlock_file,
      .disconnect = disconnect,
  };
  return version == SLUICE_ABI_VERSION ? &kAbi : NULL;
}
