/* libsluice: files of a Sluice pool from C. Compile with -I and -L of this directory and of
 * build/release/lib, link with -lsluice.
 *
 *   sluice_pool* pool;
 *   sluice_file* file;
 *   sluice_error error;
 *   if (sluice_connect(NULL, &pool, &error)) die(error.message);
 *   if (sluice_open(pool, "/results/1", SLUICE_O_WRITE | SLUICE_O_CREATE, 0666, &file, &error))
 * die(error.message); if (sluice_write(file, 0, data, bytes, &error)) die(error.message); if
 * (sluice_close(file, 1, &error)) die(error.message); sluice_disconnect(pool);
 *
 * Paths are those of the pool: "/results/1", without "sluice:".
 *
 * Every function that can fail answers 0, or -1 with *error filled in (error may be NULL). All functions are
 * thread-safe, but nothing may be called for a file during or after its close, nor for a pool during or after
 * its disconnect. Sizes and offsets are bytes. Writes survive a crash of the service when they return, and
 * are durable and visible to others after sluice_sync or a committing close; until then a crash of the
 * program leaves the file as it was at the last sync.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_API __attribute__((visibility("default")))

typedef struct sluice_pool sluice_pool;
typedef struct sluice_file sluice_file;

/* What went wrong: one of the numbers below, and one sentence with cause, object and next step. */
typedef struct sluice_error {
  int code;
  int retryable;       /* the same call may succeed later */
  int data_loss;       /* acknowledged bytes cannot be given back */
  int outcome_unknown; /* it may have happened, or not */
  char message[1024];
} sluice_error;

enum sluice_error_code {
  SLUICE_E_INTERNAL = 1,
  SLUICE_E_INVALID_ARGUMENT,
  SLUICE_E_NOT_FOUND,
  SLUICE_E_EXISTS,
  SLUICE_E_ACCESS,
  SLUICE_E_NO_SPACE,
  SLUICE_E_IO,
  SLUICE_E_CORRUPT,
  SLUICE_E_UNAVAILABLE,
  SLUICE_E_TIMED_OUT,
  SLUICE_E_FENCED,
  SLUICE_E_CONFLICT,
  SLUICE_E_TOO_LARGE,
  SLUICE_E_UNSUPPORTED,
  SLUICE_E_PROTOCOL,
  SLUICE_E_BUSY,
  SLUICE_E_ABORTED
};

enum sluice_open_flags {
  SLUICE_O_READ = 1,
  SLUICE_O_WRITE = 2,
  SLUICE_O_CREATE = 4,
  SLUICE_O_EXCLUSIVE = 8,
  SLUICE_O_TRUNCATE = 16
};

/* pool: its directory, or NULL for the one that SLUICE_POOL names. Starts a service when none runs there. */
SLUICE_API int sluice_connect(const char* pool, sluice_pool** connected, sluice_error* error);
SLUICE_API void sluice_disconnect(sluice_pool* pool);

/* mode is subject to the umask. */
SLUICE_API int sluice_open(sluice_pool* pool, const char* path, int flags, uint32_t mode, sluice_file** file,
                           sluice_error* error);
/* commit != 0: as sluice_sync first; otherwise writes since the last sync are dropped. The file is gone
 * whatever it answers. */
SLUICE_API int sluice_close(sluice_file* file, int commit, sluice_error* error);
SLUICE_API int sluice_sync(sluice_file* file, sluice_error* error);

SLUICE_API int sluice_write(sluice_file* file, uint64_t offset, const void* data, size_t bytes,
                            sluice_error* error);
/* *got: bytes before the end of the file; memory beyond is untouched. */
SLUICE_API int sluice_read(sluice_file* file, uint64_t offset, void* data, size_t bytes, size_t* got,
                           sluice_error* error);
SLUICE_API int sluice_size(sluice_file* file, uint64_t* bytes, sluice_error* error);
SLUICE_API int sluice_resize(sluice_file* file, uint64_t bytes, sluice_error* error);
SLUICE_API int sluice_remove(sluice_pool* pool, const char* path, sluice_error* error);

#ifdef __cplusplus
}
#endif

#endif
