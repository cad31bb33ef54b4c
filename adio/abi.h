#pragma once

#include <stddef.h>
#include <stdint.h>

// The border between the ROMIO driver (C, adio/romio) and the client library (C++, adio/abi.cc): a table of
// functions, plain C types, no MPI and no ROMIO types. The driver loads libsluice_adio.so, which stands
// beside it, at the first open of a Sluice file and asks it for the table with sluice_adio_abi(); a program
// that opens none never loads it.
//
// Every function that can fail answers 0, or -1 with `*error` filled in. `error` is never NULL.
//
// Thread rule: any function may be called from any thread, also for the same file at the same time, except
// that nothing may be called for a file during or after its close. Calls block their caller; none hangs
// (client/client.h).

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_ABI_VERSION 4u
#define SLUICE_ABI_SYMBOL "sluice_adio_abi"
#define SLUICE_ABI_LIBRARY "libsluice_adio.so"

// By number those of sluice::ErrorCode (base/error.h); from 100 on, what only this border knows.
enum SluiceCode {
  SLUICE_OK = 0,
  SLUICE_INTERNAL = 1,
  SLUICE_INVALID_ARGUMENT,
  SLUICE_NOT_FOUND,
  SLUICE_EXISTS,
  SLUICE_ACCESS,
  SLUICE_NO_SPACE,
  SLUICE_IO,
  SLUICE_CORRUPT,
  SLUICE_UNAVAILABLE,
  SLUICE_TIMED_OUT,
  SLUICE_FENCED,
  SLUICE_CONFLICT,
  SLUICE_TOO_LARGE,
  SLUICE_UNSUPPORTED,
  SLUICE_PROTOCOL,
  SLUICE_BUSY,
  SLUICE_ABORTED,
  SLUICE_HINT_NAME = 100,  // a hint of Sluice's that does not exist
  SLUICE_HINT_VALUE = 101  // a value that its hint does not take
};

// So much of one sentence MPICH's MPI_Error_string tells; it drops the rest.
#define SLUICE_SENTENCE_BYTES 255u

// `message` is one sentence: cause, object, next step. Fixed size and without pointers, so that one rank's
// error can be sent to all others as bytes.
struct SluiceError {
  int32_t code;
  char message[508];
};

enum SluiceOpenFlags {
  SLUICE_READ = 1,
  SLUICE_WRITE = 2,
  SLUICE_CREATE = 4,
  SLUICE_EXCLUSIVE = 8,
};

struct SluiceHint {
  const char* name;
  const char* value;
};

// Half-open: [begin, end).
struct SluiceExtent {
  uint64_t begin;
  uint64_t end;
};

struct SluicePiece {
  void* data;
  uint64_t bytes;
};

// Largest text of a shared handle, and of the effective hints, with their terminating zero; the latter also
// of the hints that the environment may add.
#define SLUICE_HANDLE_BYTES 8712u
#define SLUICE_HINTS_BYTES 8192u

// What MPI takes of a hint, without the terminating zero.
#define SLUICE_HINT_NAME_BYTES 255u
#define SLUICE_HINT_VALUE_BYTES 1024u

struct SluiceFile;  // one process's hold on an open file

struct SluiceAbi {
  uint32_t version;  // SLUICE_ABI_VERSION

  // The program's hints for a path, with those of the environment (MPICH_MPIIO_HINTS, and over them
  // SLUICE_HINTS) over them, as "name\0value\0..." of `*bytes` bytes: each name once. Nothing is opened.
  // Names that begin with "sluice_" must exist, and their values make sense; of others a value that
  // makes none is passed over, and told in the log, once, when `tell` is set. A name or value longer than MPI
  // takes is refused, whoever gave it.
  int (*gather_hints)(const char* path, int tell, const struct SluiceHint* hints, size_t count, char* text,
                      size_t capacity, size_t* bytes, struct SluiceError* error);

  // Opens a file. One process of a group opens and gives the handle to the others, who attach: that asks
  // nothing, and the service hears of them with their first access. `mode` is subject to the caller's umask.
  // Hints go through gather_hints, which those that it answered may again.
  int (*open)(const char* path, uint32_t flags, uint32_t mode, const struct SluiceHint* hints, size_t count,
              struct SluiceFile** file, struct SluiceError* error);
  int (*share)(struct SluiceFile* file, char* handle, size_t capacity, struct SluiceError* error);
  int (*attach)(const char* handle, struct SluiceFile** file, struct SluiceError* error);

  // The hints in effect, as lines "name=value\n".
  int (*effective_hints)(struct SluiceFile* file, char* text, size_t capacity, struct SluiceError* error);

  // The extents' bytes come from, or go to, the pieces in order; both add up to the same number of bytes.
  // `*done` is set, also on failure, to the bytes known to be transferred. A read ends at the end of the
  // file: `*done` then counts the bytes before it, and memory beyond stays as it was.
  int (*write)(struct SluiceFile* file, const struct SluiceExtent* extents, size_t extent_count,
               const struct SluicePiece* pieces, size_t piece_count, uint64_t* done,
               struct SluiceError* error);
  int (*read)(struct SluiceFile* file, const struct SluiceExtent* extents, size_t extent_count,
              const struct SluicePiece* pieces, size_t piece_count, uint64_t* done,
              struct SluiceError* error);

  int (*size)(struct SluiceFile* file, uint64_t* bytes, struct SluiceError* error);
  int (*resize)(struct SluiceFile* file, uint64_t bytes, struct SluiceError* error);
  int (*preallocate)(struct SluiceFile* file, uint64_t bytes, struct SluiceError* error);
  // Asks for another chunk size while the file is empty. `*effective` is the size in effect afterwards.
  int (*shape)(struct SluiceFile* file, uint64_t chunk_bytes, const char* reason, uint64_t* effective,
               struct SluiceError* error);

  // flush: this process's writes have reached the service. sync: by one process after all flushed: commits
  // the writes of the whole group and starts its next transaction. close: by the process that opened, after
  // all flushed, ends the group's hold at the service; with `commit` it is a sync first. Those who attached
  // close after it, and tell the service nothing. The file is gone after close, whatever it answers.
  int (*flush)(struct SluiceFile* file, struct SluiceError* error);
  int (*sync)(struct SluiceFile* file, struct SluiceError* error);
  int (*close)(struct SluiceFile* file, int commit, struct SluiceError* error);

  int (*remove)(const char* path, struct SluiceError* error);

  // A counter that the group has in common, 0 at open: the shared file pointer. Both answer its value before.
  int (*counter_add)(struct SluiceFile* file, int64_t delta, int64_t* before, struct SluiceError* error);
  int (*counter_set)(struct SluiceFile* file, int64_t value, int64_t* before, struct SluiceError* error);

  // For SLUICE_STATS: how a collective access of this process was done. `two_phase`: the ranks exchanged its
  // pieces first, of which this one sent `exchanged_bytes` to others; otherwise each rank did its own part.
  void (*count_plan)(struct SluiceFile* file, int two_phase, uint64_t exchanged_bytes);

  // A byte-range lock; waits for its turn.
  int (*lock)(struct SluiceFile* file, struct SluiceExtent extent, int exclusive, uint64_t* lock,
              struct SluiceError* error);
  int (*unlock)(struct SluiceFile* file, uint64_t lock, struct SluiceError* error);

  // The connection to a pool stays from the first file until here, or the end of the process. Files that are
  // open stay usable.
  void (*disconnect)(void);
};

// The table, which lives as long as the process; NULL when this library does not speak `version`.
typedef const struct SluiceAbi* (*SluiceAbiGetter)(uint32_t version);
const struct SluiceAbi* sluice_adio_abi(uint32_t version);

#ifdef __cplusplus
}
#endif
